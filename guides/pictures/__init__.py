"""Pictures of automata and grammars: a graph of labelled nodes and arrows, written as SVG, Mermaid or Graphviz text."""

from .parts import Arrow, Node
from .picture import Drawable, Picture

__all__ = ["Arrow", "Drawable", "Node", "Picture"]
