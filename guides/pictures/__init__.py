"""Pictures of automata and grammars: a graph of labelled nodes and arrows, written as SVG, Mermaid or Graphviz text."""

from .picture import MAX_PICTURED, Arrow, Drawable, Picture, PictureNode

__all__ = ["MAX_PICTURED", "Arrow", "Drawable", "Picture", "PictureNode"]
