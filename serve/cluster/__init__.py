"""The server on several machines, by Ray: a door that takes requests, replicas that answer them, rows of a data set."""
