"""The guides that those of texts with tags are made of, each named in this place alone."""

from trellm.guides.tagged import AfterGuide, EitherGuide, Part
from trellm.guides.tagged.closed_guide import ClosedGuide
from trellm.guides.tagged.composed_guide import ComposedGuide
from trellm.guides.tagged.mention_guide import MentionGuide
from trellm.guides.tagged.pieces import EMPTY, Fixed, Free, Inner, InOrder, Named, OneOf, Piece, Several, optional
from trellm.tokenizers_adapter.marked import marker_bytes, with_markers, without_markers

__all__ = [
    "EMPTY",
    "AfterGuide",
    "ClosedGuide",
    "ComposedGuide",
    "EitherGuide",
    "Fixed",
    "Free",
    "InOrder",
    "Inner",
    "MentionGuide",
    "Named",
    "OneOf",
    "Part",
    "Piece",
    "Several",
    "marker_bytes",
    "optional",
    "with_markers",
    "without_markers",
]
