"""Pictures of automata and grammars: labelled nodes and arrows, rendered as SVG, Mermaid or Graphviz text."""

from .picture import (
    MAX_PICTURED,
    Arrow,
    Drawable,
    Picture,
    PictureBuilder,
    PictureNode,
    refuse_tokens,
    shortened,
    svg_of,
)

__all__ = [
    "MAX_PICTURED",
    "Arrow",
    "Drawable",
    "Picture",
    "PictureBuilder",
    "PictureNode",
    "refuse_tokens",
    "shortened",
    "svg_of",
]
