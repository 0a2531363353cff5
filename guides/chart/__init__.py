"""Lazy states over a graph: the automaton of the chart kernels, and its arrays."""
