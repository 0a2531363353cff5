"""From a graph to states on demand: the automaton that kernels work on, its arrays, and which guides are remembered."""
