"""Encoder-decoder models: transformers' own outputs, every generator and search, sources encoded once and shared."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import Unigram
from trellm import Beam, Engine, Generator, Greedy, ModelError, OptionError, Sample, generate, models

from ...thresholds import thresholds
from ..support import BLOCK, BlockTable, Chunk, engines

PROMPTS = ["the 12", "an inning then", "23", "in the on the in the on"]
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64, "forced_eos_token_id": None,
}  # fmt: skip
CONFIGS: dict[str, Callable[..., Any]] = {
    "t5": lambda **names: transformers.T5Config(**T5, **names),
    "bart": lambda **names: transformers.BartConfig(**BART, **names),
    "marian": lambda **names: transformers.MarianConfig(**BART, **names),
}


@pytest.fixture(scope="module")
def adapter(tokenizer: Any) -> Callable[[str], Any]:
    """Random models in our hands, with large weights, so that choices are far apart, and several EOS ids."""
    made: dict[str, Any] = {}

    def make(name: str) -> Any:
        if name not in made:
            torch.manual_seed(5)
            names = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 2}
            config = CONFIGS[name](vocab_size=len(tokenizer), **names)
            model = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    torch.nn.init.normal_(parameter, std=0.3)
            if name == "marian":
                model.final_logits_bias.normal_(std=2.0)
            model.generation_config.eos_token_id = [1, 5, 17, 30, 44, 80, 101]
            made[name] = models.transformers(model, tokenizer)
        return made[name]

    return make


def peer(model: Any, prompt: str, max_tokens: int, **options: Any) -> tuple[list[list[int]], Any]:
    """What transformers writes: token ids up to the first EOS, and scores."""
    ids = torch.tensor([model.tokenizer.encode(prompt)])
    found = model.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False,
        return_dict_in_generate=True, output_scores=True, **options,
    )  # fmt: skip
    texts: list[list[int]] = []
    for sequence in found.sequences[:, 1:].tolist():
        end = next((i for i, token in enumerate(sequence) if token in model.vocabulary.eos_ids), len(sequence))
        texts.append(sequence[:end])
    return texts, getattr(found, "sequences_scores", None)


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_is_that_of_transformers(adapter: Callable[..., Any], name: str) -> None:
    model = adapter(name)
    wanted = [peer(model, prompt, 14)[0][0] for prompt in PROMPTS]
    assert len({tuple(tokens) for tokens in wanted}) == len(PROMPTS), "the outputs follow from the prompts"
    for batch_size in (1, 3, 4):
        found = generate.text(model).run(PROMPTS, max_tokens=14, batch_size=batch_size)
        assert [list(result.token_ids) for result in found] == wanted


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("width", "length_penalty", "early_stopping"), [(3, 1.0, False), (4, 0.3, True), (2, 2.0, "never")]
)
def test_beams_are_those_of_transformers(
    adapter: Callable[..., Any], name: str, width: int, length_penalty: float, early_stopping: Any
) -> None:
    model = adapter(name)
    search = Beam(width, length_penalty, n=2, early_stopping=early_stopping)
    found = generate.text(model).run(PROMPTS, search=search, max_tokens=12, batch_size=3 * width)
    for prompt, results in zip(PROMPTS, found, strict=True):
        texts, scores = peer(model, prompt, 12, num_beams=width, num_return_sequences=2, length_penalty=length_penalty,
                             early_stopping=early_stopping)  # fmt: skip
        assert [list(result.token_ids) for result in results] == texts
        assert [result.score for result in results] == pytest.approx(scores.tolist(), abs=2e-4)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("search", [Greedy(), Sample(n=2), Beam(3, n=2)])
def test_every_generator_works_with_every_search(adapter: Callable[..., Any], name: str, search: Any) -> None:
    model = adapter(name)
    pattern = "(the|on) [0-9]{2,6}(in)?"
    integers = {"type": "array", "items": {"type": "integer"}}
    generators = [generate.regex(model, pattern), generate.choice(model, ["then", "on", "in"]),
                  generate.json(model, integers), generate.text(model)]  # fmt: skip
    pairs = [(generator, prompt) for generator in generators for prompt in PROMPTS[:2]]
    together = generate.batch(pairs, search=search, max_tokens=11, seed=1, batch_size=7)
    assert together == [generator(prompt, search=search, max_tokens=11, seed=1) for generator, prompt in pairs]
    first = together[0] if search.n == 1 else together[0][0]
    assert re.fullmatch(pattern, first)


def test_a_prompt_is_encoded_once_for_all_its_beams_and_samples(adapter: Callable[..., Any]) -> None:
    model = adapter("t5")
    read: list[tuple[int, ...]] = []
    hook = model.model.get_encoder().register_forward_hook(lambda module, args, out: read.append(out[0].shape[:2]))
    generate.text(model)(["then 12", "on 3"], search=Beam(4), max_tokens=6)
    generate.text(model)("in 23", search=Sample(n=5), max_tokens=6, seed=1)
    hook.remove()
    assert [rows for rows, _ in read] == [2, 1]


def test_a_first_token_that_the_model_forces_is_where_the_decoder_starts(tokenizer: Any, adapter: Any) -> None:
    network = adapter("bart").model
    network.generation_config.forced_bos_token_id = 7
    try:
        model = models.transformers(network, tokenizer)
        assert model.start_ids == (2, 7)
        found = generate.text(model).run("the 12", max_tokens=9)
        assert [7, *found.token_ids] == peer(model, "the 12", 10)[0][0]
    finally:
        network.generation_config.forced_bos_token_id = None


def test_what_encoder_decoder_models_cannot_do_is_refused(adapter: Callable[..., Any], tokenizer: Any) -> None:
    model = adapter("bart")
    with pytest.raises(OptionError, match="cache=False: BartForConditionalGeneration"):
        models.transformers(model.model, tokenizer, cache=False)
    with pytest.raises(OptionError, match="needs its tokenizer"):
        models.transformers(model.model)
    with pytest.raises(OptionError, match="prompt 0 takes 70 tokens; the model's encoder reads up to 64"):
        Generator(model)("on" * 70)
    with pytest.raises(OptionError, match="max_tokens can be up to 63"):
        Generator(model)("on", max_tokens=64)
    with pytest.raises(OptionError, match=r"takes [\d,.]+ GiB"):
        Generator(model)("on", search=Beam(10**7), max_tokens=60)


def test_the_space_before_every_sentencepiece_text_is_no_part_of_it(adapter: Callable[..., Any]) -> None:
    pieces = ["<s>", "</s>", "\u2581", "\u2581the", "the", "\u2581on", "n", "o", "t", "h", "e", "1", "2", "\u25811"]
    backend = Tokenizer(Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)]))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    torch.manual_seed(3)
    config = CONFIGS["t5"](vocab_size=len(pieces), eos_token_id=1, pad_token_id=0, decoder_start_token_id=0)
    model = models.transformers(transformers.T5ForConditionalGeneration(config).eval(), tokenizer)
    assert model.text_prefix == b" "
    for search in (Greedy(), Beam(3), Sample()):
        result = generate.regex(model, "the( on)+( 12)?").run("the", search=search, max_tokens=5, seed=2)
        assert re.fullmatch("the( on)+( 12)?", result.text)
    free = generate.text(model).run("the", search=Sample(n=9), max_tokens=5, seed=1)
    spelt = [b"".join(model.vocabulary.tokens[token] or b"" for token in result.token_ids).decode() for result in free]
    assert [result.text for result in free] == [text.removeprefix(" ") for text in spelt]
    assert any(text.startswith(" ") for text in spelt)
    generator = generate.text(model)
    assert "".join(generator.stream("the", max_tokens=5)) == generator("the", max_tokens=5)


@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_texts_of_several_sources_share_blocks_and_calls(adapter: Callable[..., Any], name: str) -> None:
    """Texts at different lengths, forks, and a text that begins with what another reads in the same call."""
    model = adapter(name)
    sources = [[5, 9, 11], list(range(20, 37)), [7] * 9]
    encoded = model.encode(sources)
    memory = model.make_memory(16)
    free = iter([3, 14, 0, 7, 9, 2, 11, 5, 1, 15])
    tables = [BlockTable(encoded[number]) for number in (0, 1, 2, 1)]
    long, other = list(range(30, 50)), BlockTable(encoded[1])

    def read(*chunks: Chunk) -> None:
        for table, tokens in chunks:
            while len(table.blocks) * BLOCK < len(table.tokens) + len(tokens):
                table.blocks.append(next(free))
        logits = model.logits(model.forward(chunks, memory), list(range(len(chunks))), None)
        for row, (table, tokens) in zip(logits, chunks, strict=True):
            table.tokens.extend(tokens)
            source = sources[next(number for number in range(3) if encoded[number] is table.source)]
            whole = model.model(
                input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([table.tokens]), use_cache=False
            ).logits[0, -1]
            torch.testing.assert_close(row, whole, rtol=1e-3, atol=1e-3)

    read(*(Chunk(table, [2, 4 + number]) for number, table in enumerate(tables[:3])))
    tables[3].blocks.append(next(free))
    other.blocks.append(tables[3].blocks[0])
    other.tokens.extend(long[:BLOCK])
    read(Chunk(other, [1, 2]), Chunk(tables[0], [9]), Chunk(tables[3], long), Chunk(tables[2], [8, 8]))
    fork = BlockTable(tables[0].source)
    fork.tokens.extend(tables[0].tokens)
    fork.blocks.append(next(free))
    memory.copy([(tables[0].blocks[0], fork.blocks[0])])
    read(Chunk(fork, [1]), Chunk(tables[0], [2]), Chunk(tables[1], [3]), Chunk(other, [4]))
    assert model.source_bytes(17) == sum(k.nbytes + v.nbytes for k, v in encoded[1].layers)
    assert memory.bytes == 16 * model.block_bytes and model.window is None


def test_what_the_encoder_makes_of_a_prompt_counts(
    adapter: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = adapter("t5")
    Engine(model)
    enough = model.source_bytes(20) + 4 * model.vocabulary.size
    thresholds(monkeypatch, memory_worth_checking=1)
    monkeypatch.setattr(engines, "free_bytes", lambda device: enough)
    assert Generator(model)("on" * 10, max_tokens=3) is not None
    with pytest.raises(OptionError, match=r"1 beams and the encoded prompt of \d+ tokens take"):
        Generator(model)("on" * 30, max_tokens=3)


def test_weights_that_are_not_numbers_are_named(tokenizer: Any) -> None:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 128}
    network = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=2))
    with torch.no_grad():
        network.encoder.block[0].layer[0].SelfAttention.q.weight[0, 0] = torch.nan
    with pytest.raises(
        ModelError, match=r"T5For.* NaN .*: some weights of encoder\.block\.0\.layer\.0\.SelfAttention\.q"
    ):
        models.transformers(network, tokenizer)
