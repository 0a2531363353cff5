"""A whole answer as a piece of a guide: thinking, content, calls, an answer that a schema asks for."""

from __future__ import annotations

from typing import Literal

from ...guides import RegexGuide
from ...guides.tagged.pieces import NOTHING, Fixed, Free, Inner, InOrder, Marker, OneOf, Piece, perhaps
from .calls import Asked, Calls
from .families import Family
from .spelling import Spelling

# What a text that is no call does not begin with, where a call is told by how it begins: the reader passes over these
BLANKS = (" ", "\t", "\r", "\n")
BEHIND_STOP = 24
"""Characters of a token behind the stop string that it completes."""
LINES = 2
"""So many line breaks may stand between thinking and what follows."""
Thinks = Literal["no", "may", "must", "open"]
"""Whether an answer has thinking before it: "open" where its marker is in the prompt already."""


def answer_piece(family: Family, spelling: Spelling, asked: Asked, calls: Calls, thinks: bool) -> Piece | None:
    """What comes behind thinking; None where anything may. thinks: whether the markers of thinking are markers here"""
    thinking = tuple(map(spelling.marker, family.thinking)) if thinks and family.thinking else ()
    stops = _stops(spelling, asked)
    if not asked.callable:
        if asked.answer is not None:
            return asked.inner
        refused = thinking + (call_markers(family, spelling) if asked.tools else ())
        unlike = call_beginnings(family) if asked.tools else ()
        return Free(stops, refused, may_end=True, unlike=unlike) if stops or refused or unlike else None
    whole = calls.piece(behind_trigger=False)
    if family.lead:
        whole = InOrder((perhaps(spelling.fixed(family.lead)), whole))
    if asked.choice.mode == "required":
        return whole
    if asked.answer is not None:
        return OneOf((whole, asked.inner))
    if family.trigger:
        exits = ((spelling.marker(family.trigger), calls.piece(behind_trigger=True)),)
        return Free(exits + stops, thinking, may_end=True)
    refused = thinking + call_markers(family, spelling)
    unlike = (*call_beginnings(family), *_stopped_calls(family, asked))
    return OneOf((whole, Free(stops, refused, may_end=True, unlike=unlike)))


def _stops(spelling: Spelling, asked: Asked) -> tuple[tuple[Marker, Piece], ...]:
    """What ends content, each with the rest of the token that it ends in: the reader leaves both out."""
    if not asked.stop:
        return ()
    rest = Inner(RegexGuide(f"[\\s\\S]{{0,{BEHIND_STOP}}}", spelling.vocabulary))
    return tuple((text, rest) for text in asked.stop)


def _stopped_calls(family: Family, asked: Asked) -> tuple[str, ...]:
    """Beginnings of calls up to a stop string in them, which would end content there and begin a call as well."""
    heads = call_beginnings(family)
    return tuple(head[: head.index(stop) + len(stop)] for head in heads for stop in asked.stop if stop in head)


def call_markers(family: Family, spelling: Spelling) -> tuple[Marker, ...]:
    """The markers that begin calls, wherever they stand."""
    openings = [frame.opening for frame in family.frames if frame.opening in family.markers]
    return tuple(spelling.marker(each) for each in ([family.trigger] if family.trigger else openings))


def call_beginnings(family: Family) -> tuple[str, ...]:
    """What texts that are no calls do not begin with, where a call is told by how it begins."""
    if family.trigger:
        return ()
    heads = [frame.opening + frame.head for frame in family.frames if frame.opening not in family.markers]
    return (*heads, *BLANKS)


def with_thinking(family: Family, spelling: Spelling, piece: Piece, thinks: Thinks) -> Piece:
    """The piece with thinking before it, of any length."""
    if thinks == "no" or family.thinking is None:
        return piece
    begin, end = family.thinking
    thought: Piece = Free(((spelling.marker(end), behind_thinking(NOTHING)),), (spelling.marker(begin),))
    if thinks != "open":
        thought = InOrder((spelling.fixed(begin), thought))
    return InOrder((perhaps(thought) if thinks == "may" else thought, piece))


def behind_thinking(piece: Piece) -> Piece:
    """The piece behind line breaks."""
    return InOrder((*[perhaps(Fixed(("\n",)))] * LINES, piece))


def leads_of(family: Family, *, has_thought: bool) -> list[bytes]:
    """What may stand before calls. has_thought: whether there was thinking before it"""
    lines = range(LINES + 1 if has_thought else 1)
    return list(dict.fromkeys(b"\n" * number + lead for number in lines for lead in (b"", family.lead.encode())))
