"""From syntax to a graph of bytes and calls, by fragments in the way of Thompson; UTF-8 and trees of many texts."""
