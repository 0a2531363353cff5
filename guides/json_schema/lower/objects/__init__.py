"""Objects: from an `Object` of the algebra to nodes for its members.

`members` has a node for each place in an object; `member_set` has one node for all places, where only the set of
earlier members matters.
"""
