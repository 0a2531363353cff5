"""Prompts that end inside a token: their end is generated again, and outputs come without it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from trellm import AnyOf, Beam, BudgetError, Generator, Greedy, OptionError, Sample, Vocabulary, generate, models
from trellm.guides import ChoiceGuide, FreeGuide

from ..support import LiftedGuide, Options, ids_of, requests_of

# Tokens that overlap in many ways, some of them with pieces of characters; EOS last, a special token before it.
PIECES = [b"th", b"the", b"he", b" t", b" the", b"then", b"ab", b"bc", b"abc", b"cab", b"\xc3", b"\xa9\xc3", b"e\xc3"]
VOCABULARY = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), *PIECES, b" ", b"  ", b" a", b". ", b".\n", None, None],
    eos_ids=[256 + len(PIECES) + 6],
    special_ids=[256 + len(PIECES) + 5],
)
EOS, SPECIAL = VOCABULARY.size - 1, VOCABULARY.size - 2
TABLE = np.random.default_rng(5).normal(size=(VOCABULARY.size, VOCABULARY.size)).astype(np.float32)
TABLE[:, [*range(256, EOS)]] += 2
SEARCHES: list[Any] = [Greedy(), Sample(n=2), Sample(temperature=2.0), Beam(3, n=2)]


def bigram(**options: Any) -> Any:
    return models.from_function(lambda ids: TABLE[ids[-1]], VOCABULARY, **options)


def prefers(texts: Sequence[str], vocabulary: Vocabulary, **options: Any) -> Any:
    """A model that likes these tokens best, in this order, and EOS next."""
    likes = np.zeros(vocabulary.size, np.float32)
    for rank, text in enumerate(texts):
        likes[vocabulary.tokens.index(text.encode())] = 10 - rank
    likes[list(vocabulary.eos_ids)] = 1
    return models.from_function(lambda ids: likes, vocabulary, **options)


def all_of(results: Any) -> list[Any]:
    return [one for result in results for one in all_of(result)] if isinstance(results, list) else [results]


GREETING = Vocabulary(
    [b"Good", b" mor", b" morning", *(bytes([byte]) for byte in b" Godmrnige!"), b"ni", b"x", None], [16]
)


class TestGoodMor:
    """A prompt "Good mor", a token " morning", and no token "ning"."""

    model = prefers([" morning", "!", "x"], GREETING)

    def test_free_text(self) -> None:
        assert generate.text(self.model)("Good mor", max_tokens=2) == "ning morning"
        assert generate.text(self.model)("Good mor", max_tokens=2, heal=False) == " morning morning"

    def test_under_a_pattern(self) -> None:
        generator = generate.regex(self.model, "ning!?|x+")
        assert generator("Good mor", max_tokens=5) == "ning!"
        assert generator("Good mor", max_tokens=5, heal=False) == "xxxxx"

    def test_what_comes_with_it(self) -> None:
        result = generate.regex(self.model, "ning!?|x+").run("Good mor", logprobs=True)
        tokens = [GREETING.tokens.index(b" morning"), GREETING.tokens.index(b"!")]
        assert list(result.token_ids) == tokens and result.overlap == len(" mor")
        assert GREETING.decode(result.token_ids)[result.overlap :].decode() == result.text
        assert len(result.logprobs) == len(result.raw_logprobs) == 2

    def test_one_token_may_be_enough(self) -> None:
        """Without healing "ning" takes three tokens."""
        generator = generate.regex(self.model, "ning")
        assert generator("Good mor", max_tokens=1) == "ning"
        with pytest.raises(BudgetError, match="takes 3 tokens"):
            generator("Good mor", max_tokens=1, heal=False)
        with pytest.raises(BudgetError, match="takes 3 tokens"):
            generator("Good m", max_tokens=1, search=Beam(2), heal=False)

    def test_streaming(self) -> None:
        assert "".join(generate.regex(self.model, "ning!").stream("Good mor")) == "ning!"
        assert "".join(generate.text(self.model).stream("Good mor", max_tokens=1)) == "ning"


TEXT = "abc the then abcab. é éthe\n thé  ab"


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_prompts_cut_at_every_character_give_exactly_the_guides_texts(search: Any) -> None:
    """Whatever the model likes; a batch of many tails gives what each gives alone."""
    model = bigram()
    pairs = []
    for cut in range(1, len(TEXT)):
        pattern = "(" + "|".join(f"({text})" for text in (TEXT[cut:], "[a-eé]{2,6}", r"\s?th\w")) + ")"
        pairs.append((generate.regex(model, pattern), TEXT[:cut]))
    together = generate.batch(pairs, search=search, seed=4, batch_size=7)
    healed = 0
    for (generator, prompt), values in zip(pairs, together, strict=True):
        results = generator.run(prompt, search=search, seed=4)
        assert all_of(values) == [result.text for result in all_of(results)]
        for result in all_of(results):
            assert generator.guide.is_accepting(generator.guide.read(generator.guide.start, result.text.encode()))
            assert VOCABULARY.decode(result.token_ids)[result.overlap :].decode() == result.text
            healed += result.overlap > 0
    assert healed > 5


@settings(max_examples=50, deadline=None)
@given(st.text("abcthe .é", min_size=1, max_size=9), st.integers(0, 2**32), st.sampled_from(SEARCHES))
def test_random_prompts(prompt: str, seed: int, search: Any) -> None:
    """The output of a guide with one text is that text; the model has read the whole prompt."""
    read: list[tuple[int, ...]] = []

    def logits(ids: Sequence[int]) -> Any:
        read.append(tuple(ids))
        return TABLE[ids[-1]]

    model = models.from_function(logits, VOCABULARY)
    for text in ("the", "abcé "):
        generator = Generator(model, ChoiceGuide([text], VOCABULARY))
        for result in all_of(generator.run(prompt, search=search, seed=seed, logprobs=True)):
            assert result.text == text and len(result.logprobs) == len(result.token_ids)
    assert all((prompt + "the").encode().startswith(VOCABULARY.decode(ids)) or
               (prompt + "abcé ").encode().startswith(VOCABULARY.decode(ids)) for ids in read)  # fmt: skip


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_with_no_crossing_token_nothing_changes(search: Any) -> None:
    model = bigram()
    prompts = ["abx", "thez", "é", "a;"]
    for generator in (generate.regex(model, "[0-9x]{1,9}"), generate.regex(model, "(Q+|zz){2}")):
        options: dict[str, Any] = {"search": search, "seed": 3, "max_tokens": 9, "logprobs": True}
        assert generator.run(prompts, **options) == generator.run(prompts, **options, heal=False)
    free = generate.text(models.from_function(lambda ids: TABLE[ids[-1], :257], Vocabulary.from_bytes()))
    options = {"search": search, "seed": 3, "max_tokens": 9}
    assert free.run(prompts, **options) == free.run(prompts, **options, heal=False)


def test_free_text_behind_the_boundary_is_as_free_as_ever() -> None:
    """Special tokens too may follow: nothing is masked there."""
    likes = np.zeros(VOCABULARY.size, np.float32)
    likes[VOCABULARY.tokens.index(b"the")], likes[SPECIAL] = 3, 5
    model = models.from_function(lambda ids: likes, VOCABULARY)
    result = generate.text(model).run("xt", max_tokens=4)
    assert result.text == "he" and list(result.token_ids) == [VOCABULARY.tokens.index(b"the"), *[SPECIAL] * 3]
    assert result.finish_reason == "length"


class TestBoundaries:
    def test_white_space_at_the_end(self) -> None:
        model = prefers([" the", " a", "th"], VOCABULARY)
        assert generate.text(model)("ab ", max_tokens=1) == "the"
        assert generate.text(model)("ab ", max_tokens=1, heal=False) == " the"
        assert generate.regex(model, "[a-h]+")("ab.  ", max_tokens=1) == "a"  # after " ", and " a"

    def test_characters_split_over_tokens(self) -> None:
        """ "é" is two tokens, the second of which goes on to the first half of another."""
        token = VOCABULARY.tokens.index(b"\xa9\xc3")
        likes = np.zeros(VOCABULARY.size, np.float32)
        likes[token], likes[0xA9] = 9, 8
        model = models.from_function(lambda ids: likes, VOCABULARY)
        result = generate.regex(model, "é").run("xé")
        assert result.text == "é" and result.token_ids[0] == token and result.overlap == 1
        assert list(result.token_ids) == [token, 0xA9]

    def test_special_tokens_are_never_cut(self, tokenizer: Any, decoder: Callable[..., Any]) -> None:
        generator = generate.text(decoder("llama"))
        for prompt in ("<bos>", "th<eos>"):
            options: dict[str, Any] = {"max_tokens": 6, "logprobs": True}
            assert generator.run(prompt, **options) == generator.run(prompt, **options, heal=False)
        assert generator.run("<eos>th", max_tokens=6) != generator.run("<eos>th", max_tokens=6, heal=False)

    def test_the_leading_space_of_sentencepiece(self) -> None:
        """A prompt begins with a space that its text does not have, and that is not in the output either."""
        model = sentencepiece_model([" Hello", "!"])
        result = generate.text(model).run("Hel", max_tokens=1)
        assert model.vocabulary.decode(model.tokenizer.encode("Hel")) == b" Hel"
        assert result.text == "lo" and result.overlap == len(" Hel")
        assert generate.regex(model, "lo!{2}")("Hel") == "lo!!"

    def test_a_prompt_that_is_cut_away_completely(self) -> None:
        """It begins with BOS, or keeps its first token."""
        with_bos = sentencepiece_model([" Hello", "!"], bos=False)
        assert with_bos.tokenizer.encode("Hel")[0] != with_bos.tokenizer.bos_token_id
        assert generate.text(with_bos)("Hel", max_tokens=1) == "lo"
        model = prefers(["the", "he"], VOCABULARY)
        assert generate.text(model)("th", max_tokens=1) == generate.text(model)("th", max_tokens=1, heal=False) == "the"
        assert generate.text(model)("thth", max_tokens=1) == "e"


def sentencepiece_model(likes: Sequence[str], bos: bool = True) -> Any:
    """A model over a tokenizer in the manner of SentencePiece: "▁" for spaces, and one before the text."""
    tokens = ["<s>", "</s>", "▁", "H", "e", "l", "o", "!", "▁H", "el", "▁Hel", "lo", "▁Hello"]
    merges = [("▁", "H"), ("e", "l"), ("▁H", "el"), ("l", "o"), ("▁Hel", "lo")]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")

    class WithBos:
        bos_token_id = 0

        def encode(self, text: str) -> list[int]:
            ids = tokenizer.encode(text, add_special_tokens=False)
            return [0, *ids] if bos else ids

    return prefers(likes, Vocabulary.from_tokenizer(tokenizer), tokenizer=WithBos())


class TestLimits:
    def test_stop_strings_and_ids_are_those_of_the_output(self) -> None:
        model = prefers(["the", "ab"], VOCABULARY)
        generator = generate.text(model)
        assert generator("xth", max_tokens=3, stop="the") == "e"  # the prompt's "th" is no part of it
        assert generator.run("xth", max_tokens=3, stop="eth").finish_reason == "stop"
        inside = VOCABULARY.tokens.index(b"ab")
        model = prefers(["ab", "the"], VOCABULARY)
        result = generate.text(model).run("xab", max_tokens=2, stop_ids=[inside])
        assert (result.text, result.finish_reason) == ("", "stop") and result.token_ids == ()

    @pytest.mark.parametrize("search", SEARCHES, ids=repr)
    def test_budgets_count_the_tokens_of_the_output(self, search: Any) -> None:
        model = bigram()
        for prompt in ("xab", "x the", "xé", "th. "):
            for budget in (1, 2, 3, 4):
                for generator in (generate.text(model), generate.regex(model, "[a-h]{1,9}")):
                    for result in all_of(generator.run(prompt, max_tokens=budget, search=search, seed=1)):
                        assert len(result.token_ids) <= budget
                        if result.finish_reason == "length":
                            assert len(result.token_ids) == budget

    @pytest.mark.parametrize("search", SEARCHES, ids=repr)
    def test_what_has_to_fit_does(self, search: Any) -> None:
        """The shortest output takes four tokens, or three if one begins in the prompt."""
        generator = generate.regex(bigram(), "(he[QZ]{3}|Q{4})")
        for budget in (4, 5, 6):
            for result in all_of(generator.run("x t", max_tokens=budget, search=search, seed=2)):
                assert len(result.token_ids) <= budget and len(result.text) >= 4
        with pytest.raises(BudgetError, match="takes 4 tokens"):
            generator("x t", max_tokens=3, search=search)

    @pytest.mark.parametrize("search", SEARCHES, ids=repr)
    def test_goals_are_those_of_the_output(self, search: Any) -> None:
        """What the prompt has of them does not count, and a token that begins in the prompt may advance them."""
        model = bigram()
        for prompt in ("x the", "xab", "a. "):
            for generator in (generate.text(model), generate.regex(model, "[a-z ]{1,20}")):
                for goal in ("the", ["he", "bc"], AnyOf("ecab", "cth")):
                    options: dict[str, Any] = {"search": search, "include": goal, "max_tokens": 9, "seed": 5}
                    for result in all_of(generator.run(prompt, **options)):
                        wanted = [goal] if isinstance(goal, str) else goal
                        met = any(text in result.text for text in ("ecab", "cth")) if isinstance(goal, AnyOf) else all(
                            text in result.text for text in wanted)  # fmt: skip
                        assert met and result.unmet == () and len(result.token_ids) <= 9
                        assert (
                            VOCABULARY.decode(result.token_ids)[result.overlap :].decode(errors="replace")
                            == result.text
                        )

    def test_a_model_that_reads_its_prompt_apart_has_nothing_to_heal(self) -> None:
        model: Any = prefers(["the", "he"], VOCABULARY)
        assert generate.text(model)("xth", max_tokens=1) == "e"
        model.is_encoder_decoder = True
        assert generate.text(model)("xth", max_tokens=1) == "the"

    def test_a_full_context_leaves_prompts_as_they_are(self) -> None:
        """Spelt byte by byte, the prompt's end could take more room than there is."""
        room_for = {size: generate.text(prefers(["the", "he"], VOCABULARY, context=size)) for size in (4, 5, 6, 7)}
        assert room_for[7]("xxth", max_tokens=3) == "ethethe"
        assert room_for[6]("xxth", max_tokens=3) == "thethethe"
        assert [room_for[size]("xxth") for size in (7, 6, 5, 4)] == ["ethethe", "ethe", "e", "the"]
        with pytest.raises(OptionError, match="max_tokens can be up to 2"):
            room_for[5]("xxth", max_tokens=3)

    def test_a_guide_of_whole_tokens_is_left_alone(self, table_guide: Any) -> None:
        the, he = VOCABULARY.tokens.index(b"the"), VOCABULARY.tokens.index(b"he")
        guide = table_guide(VOCABULARY, [{the: 1, he: 1}, {}], {1})
        assert Generator(prefers(["the"], VOCABULARY), guide)("xth") == "the"

    def test_wrong_values_are_refused(self) -> None:
        with pytest.raises(OptionError, match="heal='yes': True or False"):
            generate.text(bigram())("a", heal="yes")  # type: ignore[call-overload]


def test_scores_are_those_of_all_tokens_generated() -> None:
    """Of those within the prompt's end too, for these are a choice as well."""
    model = prefers(["ab", "c", "abc"], VOCABULARY)
    result = generate.regex(model, "c").run("xab", logprobs=True)
    assert result.text == "c" and list(result.token_ids) == [ord("c")] and result.overlap == 0
    ab = np.log(np.exp(10) / (np.exp(10) + np.exp(8) + 1))  # among "ab", "abc" and "a"
    assert result.logprobs == pytest.approx((0.0,)) and result.score == pytest.approx(ab)
    [best] = all_of(generate.regex(model, "c").run("xab", search=Beam(4), diagnostics=True))
    assert best.text == "c" and [step.token for step in best.diagnostics][:2] == ["ab", "c"]


def test_a_guide_for_free_text_is_free_text() -> None:
    model = bigram()
    for prompt in ("xab", "th "):
        with_guide = Generator(model, FreeGuide(VOCABULARY)).run(prompt, max_tokens=9)
        assert with_guide.text == generate.text(model).run(prompt, max_tokens=9).text


def test_a_trained_model_recovers_the_word_that_a_prompt_breaks(tokenizer: Any) -> None:
    """It has only ever seen "the" and "12" as one token each; the prompts end with "th" and "1"."""
    torch.manual_seed(0)
    size = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**size, vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=1)
    model = transformers.LlamaForCausalLM(config)
    text = "on the 12 an, in the end; "
    ids = torch.tensor([[0, *tokenizer.encode(text * 3, add_special_tokens=False)]])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = models.transformers(model.eval(), tokenizer)
    free, pattern = generate.text(trained), generate.regex(trained, "[a-z0-9 ]{3,12}")
    for broken, rest in (("on th", "e 12 an, in the end; "), ("on the 1", "2 an, in the end; ")):
        prompt = text + broken
        for search in (Greedy(), Beam(3)):
            assert free(prompt, max_tokens=12, search=search).startswith(rest[:8])
            assert not free(prompt, max_tokens=12, search=search, heal=False).startswith(rest[:8])
        assert pattern(prompt).startswith(rest[:3]) and not pattern(prompt, heal=False).startswith(rest[:3])


def test_prompts_that_a_constraint_has_seen_wait_for_nobody_who_is_at_it() -> None:
    """Whoever takes requests to the engine may be the one thread that answers all."""
    model = models.small()
    task = generate.regex(model, r"[a-m ]{3,9}")
    prompt, options = "Write a word", Options(max_tokens=12)
    ids = ids_of(model, prompt, 0, {})
    assert not task.knows(prompt, ids, options), "where it is cut back is not known"
    expected = requests_of(model, [task.job(prompt)], options)
    assert task.knows(prompt, ids, options)
    assert not task.knows("Write a wor", ids_of(model, "Write a wor", 0, {}), options)
    assert isinstance(task.guide, LiftedGuide)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with task.guide._lock:
            held.set()
            assert done.wait(60)

    holding = threading.Thread(target=hold)
    holding.start()
    held.wait(60)
    found: list[Any] = []
    entering = threading.Thread(target=lambda: found.extend(requests_of(model, [task.job(prompt)], options)))
    entering.start()
    entering.join(60)
    assert found, "it waits for who has the lock"
    done.set()
    holding.join(60)
    entering.join(60)
    assert (found[0].start, found[0].budget) == (expected[0].start, expected[0].budget)
