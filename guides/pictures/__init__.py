"""Pictures of automata and grammars: a graph of labelled nodes and arrows, written as SVG, Mermaid or Graphviz text."""

from .picture import MAX_PICTURED, Arrow, Drawable, Joined, Picture, PictureNode, refuse_tokens, shortened, svg_of

__all__ = [
    "MAX_PICTURED",
    "Arrow",
    "Drawable",
    "Joined",
    "Picture",
    "PictureNode",
    "refuse_tokens",
    "shortened",
    "svg_of",
]
