"""Masks without the trie, without shortcuts and without memory: one token after the other, byte by byte."""

from .support import LiftedGuide


def naive_mask(guide: LiftedGuide, state: int) -> set[int]:
    """The tokens that the byte automaton can read from a state, and EOS iff it is accepting."""
    allowed = set(guide.vocabulary.eos_ids) if guide.automaton.is_accepting(state) else set()
    for token, text in enumerate(guide.vocabulary.tokens):
        if text and _reads(guide, state, text):
            allowed.add(token)
    return allowed


def _reads(guide: LiftedGuide, state: int, text: bytes) -> bool:
    for byte in text:
        state = guide.automaton.step(state, byte)
        if state < 0:
            return False
    return True
