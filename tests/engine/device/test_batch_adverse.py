"""Rows that go on by themselves where little room, others' errors and interrupts come between."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from trellm import Engine, Greedy, LimitError, Sample, generate
from trellm.guides import RegexGuide

from ..decode.test_interrupts import InterruptAt
from ..support import BLOCK, BlockPool
from .test_batch import PROMPTS, BatchDecoder, WatchedDecoder, facts, failing_at


@pytest.fixture(scope="module")
def pair(hugging_face: Any, tokenizer: Any) -> Iterator[tuple[Any, BatchDecoder]]:
    network = hugging_face("llama").double()
    yield WatchedDecoder(network, tokenizer), BatchDecoder(network, tokenizer)
    network.float()


class Last:
    """A caller's own search: the allowed token with the highest number."""

    n = 1

    def pick(self, logits: Any, masks: Any, draws: Any) -> list[int]:
        """The last column of each row."""
        return [99] * len(logits)


class Cold(Sample):
    """A search that is derived of one that slots know."""

    def pick(self, logits: Any, masks: Any, draws: Any) -> list[int]:
        """The last column of each row."""
        return [98] * len(logits)


@pytest.mark.parametrize("search", [Last(), Cold()])
def test_a_search_of_the_callers_own_chooses(pair: Any, search: Any) -> None:
    model = pair[1]
    assert set(generate.text(model).run("the", max_tokens=20, search=search, heal=False).token_ids) == {
        search.pick([0], None, [])[0]
    }


def test_texts_that_were_at_their_ends_are_kept_where_the_model_fails(pair: Any) -> None:
    found: list[Any] = []
    for model in pair:
        model.meets = failing_at(12)
        try:
            with pytest.raises(ZeroDivisionError) as caught:
                generate.text(model).run(PROMPTS, max_tokens=70, search=Sample(), seed=1, stop=["e"], draft=False)
        finally:
            model.meets = None
        found.append([each and each.text for each in caught.value.finished])  # type: ignore[attr-defined]
    assert found[0] == found[1]
    assert None in found[0] and any(found[0])


def test_a_beginning_that_another_reads_in_the_same_step_is_waited_for(pair: Any) -> None:
    found: list[Any] = []
    for model in pair:
        for seed in range(6):
            with Engine(model) as engine:
                forced = engine.submit(generate.regex(model, "bcdfgklmpq[ab]{20}"), "aaaaaa", heal=False)
                prompt = "aaaaaabcdfgklmpqx"
                behind = engine.submit(
                    generate.text(model), prompt, max_tokens=20, heal=False, search=Sample(), seed=seed
                )
                found.append([facts(forced.result()), facts(behind.result())])
    assert found[:6] == found[6:]


def test_what_is_read_in_parts_is_known_by_what_stands_before_it(pair: Any) -> None:
    found: list[Any] = []
    for model in pair:
        with Engine(model, tokens=16, chunk=16) as engine:
            first = engine.submit(generate.text(model), "x", max_tokens=30, heal=False)
            forced = engine.submit(generate.regex(model, "bcdfgklmpq[ab]{20}"), "aaaaaa", heal=False)
            texts = [facts(first.result()), facts(forced.result())]
            prompt = texts[1][0][0][10:26] + "x"
            for seed in range(4):
                behind = engine.submit(
                    generate.text(model), prompt, max_tokens=20, heal=False, search=Sample(), seed=seed
                )
                texts.append(facts(behind.result()))
            found.append(texts)
    assert found[0] == found[1]


@pytest.mark.parametrize("search", [Greedy(), Sample(n=2)], ids=["greedy", "samples"])
@pytest.mark.slow
def test_an_interrupt_at_any_line_changes_nothing(pair: Any, search: Any) -> None:
    prompts, given = ["on", "in a", "the 12"], {"search": search, "seed": 3, "heal": False, "max_tokens": 30}
    plain, generator = (generate.regex(model, "[a-c]{2,5}xyzwvuqp[ab]{4}") for model in pair)
    expected = [facts(each) for each in plain.run(prompts, **given)]
    broken = 0
    with Engine(pair[1], memory=6 * pair[1].block_bytes) as engine:
        for line in range(1, 100_000, 421):
            handle = engine.submit(generator, prompts, **given)
            cursor = handle.cursor(grows=False)
            trace, before = InterruptAt(line, is_inside=True), sys.gettrace()
            sys.settrace(trace)
            try:
                while engine.is_busy:
                    engine.wait(handle.call)
                    engine._loop.check()
                    cursor.read(cursor.news())
            except KeyboardInterrupt:
                broken += 1
            finally:
                sys.settrace(before)
            while engine.step():
                engine._loop.check()
            assert [facts(each) for each in handle.result()] == expected
            if trace.left > 0:
                break
    assert broken > 4 and trace.left > 0, "the last one came after the end"


def test_a_row_that_finds_no_memory_holds_up_only_itself(pair: Any) -> None:
    patterns = {"[a-c]{20}": "xyzwvuqpxyzwvuq", "[ab]xyzwvuqpxyzwv[ab]{3}": "x"}
    given = {"heal": False, "max_tokens": 24}
    expected = [facts(generate.regex(pair[0], each).run(patterns[each], **given)) for each in patterns]
    with Engine(pair[1], memory=9 * pair[1].block_bytes) as engine:
        handles = [engine.submit(generate.regex(pair[1], each), patterns[each], **given) for each in patterns]
        engine.step()
        pool = engine._loop._pool
        rest = pool.table()
        assert isinstance(pool, BlockPool) and pool.extend(rest, pool.available * BLOCK) and not pool.available
        engine.step()
        assert engine._loop._is_consistent, "what was planned is read"
        pool.shrink(rest)
        assert [facts(handle.result()) for handle in handles] == expected


class Costly(RegexGuide):
    """A guide that finds too much to do where it is asked for all bytes."""

    def after_bytes(self, state: int) -> Any:
        raise LimitError("too much")


def test_what_takes_too_much_to_find_out_is_not_known(pair: Any) -> None:
    pattern = "[a-c]{9,20}x"
    expected = facts(generate.regex(pair[0], pattern).run("on"))
    assert facts(generate.Generator(pair[1], Costly(pattern, pair[1].vocabulary)).run("on")) == expected
