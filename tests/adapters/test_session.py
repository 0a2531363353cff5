"""Sessions against the plain way of doing what they do: the guide asked from its start, token by token."""

from random import Random

import numpy as np
import pytest
from trellm import OptionError
from trellm.adapters import Session, allocate_bitmask
from trellm.adapters.session import fill_sessions
from trellm.guides import DEAD, AlignedGuide, Guide, RegexGuide, mask_within, tokens_of

from .texts import MAKERS, SMALL, states_of, text_of

EOS, OTHER_EOS = SMALL.eos_ids


def state_after(guide: Guide, tokens: list[int]) -> int:
    """The state after tokens, DEAD where one is not allowed, or comes after EOS."""
    state, ended = guide.start, False
    for token in tokens:
        state = DEAD if ended else guide.advance(state, token)
        if state == DEAD:
            return DEAD
        ended = token in guide.vocabulary.eos_ids
    return state


@pytest.mark.parametrize("name", MAKERS)
def test_random_walks_forwards_and_back(name: str) -> None:
    guide, random = MAKERS[name](SMALL), Random(name)
    session, tokens = Session(guide), list[int]()
    for turn in range(150):
        chosen = random.choice(["accept", "accept", "draft", "rollback", "end"])
        if chosen == "rollback" and tokens:
            count = random.randint(0, min(4, len(tokens)))
            session.rollback(count)
            del tokens[len(tokens) - count :]
        elif chosen == "end" and not session.ended:
            assert session.accept(EOS) == session.is_accepting
            tokens += [EOS] * session.ended
        else:
            allowed = tokens_of(session.mask())
            draft = [random.choice(allowed) if allowed and random.random() < 0.8 else random.randrange(SMALL.size)]
            if chosen == "draft":
                draft += text_of(guide, turn, 3)
            good = [n for n in range(len(draft) + 1) if state_after(guide, tokens + draft[:n]) != DEAD][-1]
            assert session.validate(draft) == good
            assert session.accept(draft) == (good == len(draft))
            if good == len(draft):
                tokens += draft
        assert session.length == len(tokens)
        assert session.ended == (bool(tokens) and tokens[-1] in SMALL.eos_ids)
        assert session.state == state_after(guide, tokens)
    session.reset()
    assert (session.state, session.length, session.ended) == (guide.start, 0, False)


def test_forks_go_their_own_way() -> None:
    guide = MAKERS["regex"](SMALL)
    session = Session(guide)
    assert session.accept(b"ab")
    other = session.fork()
    assert other.accept(b"the 12") and not session.accept(b";")
    other.rollback(6)
    assert (other.state, other.length) == (session.state, session.length) == (state_after(guide, [*b"ab"]), 2)


@pytest.mark.parametrize("name", MAKERS)
def test_masks_and_budgets(name: str) -> None:
    guide = MAKERS[name](SMALL)
    session = Session(guide)
    for token in text_of(guide, 3):
        bitmask = allocate_bitmask(SMALL, 2)
        session.fill(bitmask, 1)
        np.testing.assert_array_equal(bitmask[1].view(np.uint32), guide.mask(session.state))
        np.testing.assert_array_equal(session.mask(5), mask_within(guide, session.state, 5))
        assert not bitmask[0].any()
        assert session.accept(token)


def test_stop_ids_end_where_the_text_is_complete() -> None:
    guide = RegexGuide(r"[0-9]{2};?(the)?", SMALL)
    session = Session(guide, stop_ids=[ord(";"), EOS])
    assert ord(";") not in tokens_of(session.mask())
    assert session.validate(list(b"12;")) == 3
    assert session.accept(b"12")
    assert {ord(";"), *SMALL.eos_ids} <= set(tokens_of(session.mask()))
    assert session.accept(ord(";")) and session.ended
    assert tokens_of(session.mask()) == sorted(SMALL.eos_ids)
    session.rollback(1)
    assert session.accept(OTHER_EOS) and session.ended and not session.accept(OTHER_EOS)
    only = Session(RegexGuide("1;2", SMALL), stop_ids=[ord(";")])  # nothing but the stop token leads on
    assert only.accept(b"1;2") and not only.ended and only.is_accepting
    never = Session(RegexGuide("[1;]2", SMALL), stop_ids=[ord(";")])
    assert not never.accept(ord(";")) and tokens_of(never.mask()) == [ord("1"), 259]
    bitmask = allocate_bitmask(SMALL, 3)
    fill_sessions([never, session], bitmask, [2, 0])
    assert [tokens_of(row.view(np.uint32)) for row in bitmask] == [sorted(SMALL.eos_ids), [], [ord("1"), 259]]


@pytest.mark.parametrize("name", MAKERS)
def test_jump_forward_is_what_all_texts_have(name: str) -> None:
    """Every token allowed at a place of what is certain goes on in it, or reaches its end."""
    guide = MAKERS[name](SMALL)
    for tokens in (text_of(guide, seed, 4) for seed in range(5)):
        session = Session(guide)
        assert session.accept(tokens)
        certain = session.jump_forward()
        if certain:
            assert not session.is_accepting
        for at in range(len(certain)):
            state = guide.read(session.state, certain[:at])
            assert not guide.is_accepting(state)
            for token in tokens_of(guide.mask(state)):
                text, rest = SMALL.tokens[token] or b"", certain[at:]
                assert text.startswith(rest) or rest.startswith(text)
        assert session.jump_forward(2) == certain[:2]
        end = guide.read(session.state, certain)
        assert guide.is_accepting(end) or len({(SMALL.tokens[t] or b"x")[0] for t in tokens_of(guide.mask(end))}) != 1
        assert session.length == len(tokens)


def test_certain_texts() -> None:
    session = Session(RegexGuide("the cab is here(, or there)?", SMALL))
    assert session.jump_forward() == b"the cab is here"
    assert session.accept(b"the cab is here,") and session.jump_forward() == b" or there"
    assert session.accept(b" or there") and session.jump_forward() == b""
    assert Session(AlignedGuide(RegexGuide("é+", SMALL), b"<")).jump_forward() == "<é".encode()


def test_mistakes() -> None:
    session = Session(MAKERS["regex"](SMALL))
    assert session.accept(b"ab")
    for count in (3, -1, None, True):
        with pytest.raises(OptionError, match=r"rollback\(.*has accepted 2 tokens"):
            session.rollback(count)  # type: ignore[arg-type]
    assert session.length == 2
    with pytest.raises(OptionError, match="is no guide"):
        Session("[0-9]")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="a stop id=272: a whole number from 0 to 271"):
        Session(MAKERS["regex"](SMALL), stop_ids=[272])
    with pytest.raises(OptionError, match="most=0"):
        session.jump_forward(0)
    assert session.accept(-1) is False and session.accept(10**9) is False
    assert len(states_of(session.guide)) > 1
