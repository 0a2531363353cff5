"""The token trie: which tokens may follow a state of a chart, and which texts tokens spell.

branches.py has the trie in the form that walks read, walk.py the walks, and loop_slice.py, shortcut.py and
whole_mask.py the shortcuts that replace most of them. align.py follows literal text along the trie; texts.py builds
trees of texts.
"""
