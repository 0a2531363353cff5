"""The trie of a vocabulary: which tokens may follow a state of a chart, and which texts tokens spell.

branches.py is the trie as walks take it, walk.py the walks, and loops.py, loop_slice.py, dividing.py and shortcut.py
what spares most of them; preorder.py and align.py go along the trie itself, and texts.py makes trees of texts for
graphs.
"""
