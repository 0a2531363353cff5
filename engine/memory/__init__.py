"""The KV cache's bookkeeping: blocks, block tables and their holders, and changes of weights."""
