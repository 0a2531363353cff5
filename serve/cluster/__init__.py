"""The server on several machines with Ray: a router, replicas, and batches of data sets."""
