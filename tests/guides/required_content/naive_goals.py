"""What goals mean, by trying every place in a text; it shares nothing with the library but the descriptions."""

from __future__ import annotations

from trellm import AllOf, AnyOf, Gap, Ordered, Phrase, Template

from .support import Goal


def met(goal: Goal, text: str) -> bool:
    """Whether the text has what the goal asks for."""
    if isinstance(goal, AllOf):
        return all(met(each, text) for each in goal.goals)
    return any(ends(goal, text, begin) for begin in range(len(text) + 1))


def ends(part: Goal | Gap, text: str, begin: int) -> set[int]:
    """Where the part can end when it begins at `begin`."""
    if isinstance(part, Phrase):
        assert isinstance(part.text, str)
        end = begin + len(part.text)
        inside = part.word and any(map(is_word, text[max(0, begin - 1) : begin] + text[end : end + 1]))
        return {end} if text.startswith(part.text, begin) and not inside else set()
    if isinstance(part, Gap):
        most_words = len(text) if part.max_words is None else part.max_words
        most_chars = len(text) if part.max_chars is None else part.max_chars
        return {
            end
            for end in range(begin, min(len(text), begin + most_chars) + 1)
            if part.min_words <= len(text[begin:end].split()) <= most_words
        }
    if isinstance(part, AnyOf):
        return {end for each in part.goals for end in ends(each, text, begin)}
    assert isinstance(part, (Ordered, Template))
    parts = [p for each in part.goals for p in (Gap(), each)][1:] if isinstance(part, Ordered) else part.parts
    reached = {begin}
    for each in parts:
        reached = {end for place in reached for end in ends(each, text, place)}
    return reached


def is_word(character: str) -> bool:
    """Whether it is a letter, digit or underscore."""
    return character.isalnum() or character == "_"
