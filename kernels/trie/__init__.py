"""The trie of a vocabulary: which tokens may follow a state of a chart, and which texts tokens spell.

branches.py is the trie as walks take it, walk.py the walks, and loop_slice.py and shortcut.py what spares most of
them; align.py goes along the trie itself, and texts.py makes trees of texts for graphs.
"""
