"""Objects: an `Object` of the algebra in, nodes for its members out.

`members` has a node for each place an object may have come to; `member_set` one node for all, where it only matters
which members there are already.
"""
