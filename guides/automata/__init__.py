"""Finite automata as tables: of a chart, of other libraries, and with as few states as possible."""
