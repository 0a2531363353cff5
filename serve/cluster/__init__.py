"""The server on several machines, by Ray: a router of requests, replicas that answer them, rows of a data set."""
