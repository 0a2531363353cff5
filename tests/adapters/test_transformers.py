"""Guides in transformers' own `generate`: greedy, the same tokens as our engine; always, texts of the guide."""

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import GenerationConfig, LogitsProcessorList
from transformers.generation import ContinuousBatchingConfig
from trellm import BudgetError, OptionError, Vocabulary, generate, models
from trellm.adapters.transformers import (
    ContinuousGuideProcessor,
    GuideLogitsProcessor,
    HealedPrompts,
    heal,
    mask_logits,
    vocabulary_for,
)
from trellm.guides import ChoiceGuide, JSONGuide, RegexGuide

PATTERN = r"(on [0-9]{2,4}|the [a-z]{2,5};?)+"
PROMPTS = ["The date is", "the", "12 or 123"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 1, "maxItems": 3},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "tags", "ok"],
    "additionalProperties": False,
}
Network = Callable[..., Any]


def said(network: Any, tokenizer: Any, processor: Any, prompts: Any = PROMPTS, **options: Any) -> list[str]:
    """What `generate` writes behind the prompts under a processor."""
    inputs = tokenizer(prompts, padding=True, return_tensors="pt")
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    found = network.generate(
        **inputs, **{"do_sample": False, **options}, logits_processor=LogitsProcessorList([processor])
    )
    vocabulary = vocabulary_for(network, tokenizer)
    return [vocabulary.decode(row[inputs["input_ids"].shape[1] :].tolist()).decode() for row in found]


def ours(network: Any, tokenizer: Any, pattern: Any, prompts: Any, tokens: int, heal: bool = False) -> list[str]:
    """What our engine writes, greedy."""
    model = models.transformers(network, tokenizer)
    make = generate.regex if isinstance(pattern, str) else generate.json
    options = {} if isinstance(pattern, str) else {"order": "any", "spelling": "any"}
    return [each.text for each in make(model, pattern, **options).run(prompts, max_tokens=tokens, heal=heal)]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("constraint", [PATTERN, SCHEMA], ids=["regex", "json"])
def test_the_same_tokens_as_our_engine(network: Network, tokenizer: Any, name: str, constraint: Any) -> None:
    """Prompts of different lengths, padded on the left, each text within the budget."""
    model = network(name)
    vocabulary = vocabulary_for(model, tokenizer)
    guide = RegexGuide(constraint, vocabulary) if isinstance(constraint, str) else JSONGuide(constraint, vocabulary)
    needed = guide.distance(guide.start)
    for tokens in (needed, needed + 7, 60):
        texts = said(model, tokenizer, GuideLogitsProcessor(guide, max_new_tokens=tokens), max_new_tokens=tokens)
        for text in texts:
            assert guide.is_accepting(guide.read(guide.start, text.encode()))
        assert texts == ours(model, tokenizer, constraint, PROMPTS, tokens)


def test_without_a_budget_texts_are_cut_short(network: Network, tokenizer: Any) -> None:
    guide = RegexGuide("[ab]{30}", vocabulary_for(network(), tokenizer))
    texts = said(network(), tokenizer, GuideLogitsProcessor(guide), max_new_tokens=5)
    assert all(re.fullmatch("[ab]{5}", text) for text in texts)
    with pytest.raises(BudgetError, match=r"max_new_tokens=5: the shortest text of this guide has 30 tokens"):
        GuideLogitsProcessor(guide, max_new_tokens=5)


def test_a_guide_for_each_prompt(network: Network, tokenizer: Any) -> None:
    model = network()
    vocabulary = vocabulary_for(model, tokenizer)
    patterns = ["[0-9]{2}x", "(ab|cd){2,3}", "the end"]
    guides = [RegexGuide(pattern, vocabulary) for pattern in patterns]
    options: list[dict[str, Any]] = [
        {},
        {"do_sample": True, "num_return_sequences": 4},
        {"num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_beams": 2, "top_k": 8},
        {"do_sample": True, "temperature": 3.0, "top_p": 0.9, "num_return_sequences": 2, "repetition_penalty": 1.5},
    ]
    for each in options:
        texts = said(model, tokenizer, GuideLogitsProcessor(guides, max_new_tokens=12), max_new_tokens=12, **each)
        several = each.get("num_return_sequences", 1)
        assert len(texts) == 3 * several
        for row, text in enumerate(texts):
            assert re.fullmatch(patterns[row // several], text), (each, text)


def test_beams_find_no_worse_texts_than_greedy_search(network: Network, tokenizer: Any) -> None:
    """Whatever beams do to rows, each keeps its own state: the scores are those of the texts under the mask."""
    model = network("gpt2")
    vocabulary = vocabulary_for(model, tokenizer)
    guide = ChoiceGuide(["the end", "then", "on and on", "one", "12", "true"], vocabulary)
    inputs = tokenizer("the", return_tensors="pt").input_ids
    found = model.generate(
        inputs, num_beams=6, num_return_sequences=6, max_new_tokens=12, length_penalty=0.0, do_sample=False,
        output_scores=True, return_dict_in_generate=True,
        logits_processor=LogitsProcessorList([GuideLogitsProcessor(guide)]),
    )  # fmt: skip
    texts = [vocabulary.decode(row[inputs.shape[1] :].tolist()).decode() for row in found.sequences]
    assert set(texts) <= set(guide.choices)
    for row, score in zip(found.sequences, found.sequences_scores, strict=True):
        ids = [token for token in row[inputs.shape[1] :].tolist() if token != 1]
        with torch.inference_mode():
            logits = model(row[None, : inputs.shape[1] + len(ids)]).logits[0, inputs.shape[1] - 1 :]
        chosen = torch.log_softmax(logits, -1)[range(len(ids) + 1), [*ids, 1]]
        assert abs(float(chosen.sum() - score)) < 1e-3


@pytest.mark.parametrize("help", ["assistant", "lookup"])
def test_assisted_decoding_is_greedy_search(network: Network, tokenizer: Any, help: str) -> None:
    model, assistant = network(), network(seed=5)
    guide = JSONGuide(SCHEMA, vocabulary_for(model, tokenizer))
    options = {"assistant_model": assistant} if help == "assistant" else {"prompt_lookup_num_tokens": 4}
    prompt = ['["red", "red"], "ok": true']
    plain = said(model, tokenizer, GuideLogitsProcessor(guide, max_new_tokens=50), prompt, max_new_tokens=50)
    helped = said(
        model, tokenizer, GuideLogitsProcessor(guide, max_new_tokens=50), prompt, max_new_tokens=50, **options
    )
    assert helped == plain


def test_healed_prompts(network: Network, tokenizer: Any) -> None:
    model = network()
    guide = RegexGuide(r"the [a-z]{2,5}|12[0-9]{2}", vocabulary_for(model, tokenizer))
    prompts = ["The date is ", "it is the", "on", " "]
    healed = HealedPrompts(guide, tokenizer, prompts)
    assert [each.tail for each in healed.healed] == [b" ", b"", b"", b" "]
    processor = GuideLogitsProcessor(healed.guides, max_new_tokens=30)
    found = model.generate(
        **healed.inputs, max_new_tokens=30, do_sample=False, logits_processor=LogitsProcessorList([processor])
    )
    assert healed.texts(found) == ours(model, tokenizer, guide.pattern, prompts, 30, heal=True)
    several = model.generate(
        **healed.inputs, max_new_tokens=30, do_sample=True, num_return_sequences=3,
        logits_processor=LogitsProcessorList([GuideLogitsProcessor(healed.guides)]),
    )  # fmt: skip
    assert all(re.fullmatch(guide.pattern, text) for text in healed.texts(several))
    with pytest.raises(OptionError, match="5 rows of output for 4 prompts"):
        healed.texts(torch.zeros((5, 9), dtype=torch.int64))
    with pytest.raises(OptionError, match="does not begin with the prompt's end"):
        healed.healed[0].text([5])
    with pytest.raises(OptionError, match="2 guides for 1 prompts"):
        HealedPrompts([guide, guide], tokenizer, "on")
    with pytest.raises(OptionError, match="is a list of token ids from 0 to"):
        heal(guide, "on")  # type: ignore[arg-type]


def test_encoder_decoder_models(tokenizer: Any) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=16, d_ff=32, num_layers=1, num_heads=2, d_kv=8, eos_token_id=1,
        pad_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
    guide = RegexGuide("[0-9]{3}(the)?", vocabulary_for(model, tokenizer))
    inputs = tokenizer(PROMPTS, padding=True, return_tensors="pt")
    found = model.generate(
        input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, num_beams=2, max_new_tokens=9,
        logits_processor=LogitsProcessorList([GuideLogitsProcessor(guide, max_new_tokens=9)]),
    )  # fmt: skip
    for row in found:
        assert re.fullmatch("[0-9]{3}(the)?", guide.vocabulary.decode(row.tolist()).decode())


def test_a_model_wider_than_its_tokenizer(network: Network, tokenizer: Any) -> None:
    model = network(width=339)
    vocabulary = vocabulary_for(model, tokenizer)
    assert vocabulary.size == 339
    narrow = Vocabulary.from_tokenizer(tokenizer)
    texts = [
        said(model, tokenizer, GuideLogitsProcessor(RegexGuide(PATTERN, each), max_new_tokens=20), max_new_tokens=20)
        for each in (vocabulary, narrow)
    ]
    assert texts[0] == texts[1]
    with pytest.raises(OptionError, match=r"logits have 269 values, but the guide's vocabulary has 339 tokens"):
        said(network(), tokenizer, GuideLogitsProcessor(RegexGuide(PATTERN, vocabulary)), max_new_tokens=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_scores_of_any_kind_stay_as_they_are(dtype: torch.dtype) -> None:
    scores = torch.randn((3, 80)).to(dtype)[:, :70]
    before = scores.clone()
    allowed = np.random.default_rng(0).random((3, 96)) < 0.5
    found, left = mask_logits(scores, np.packbits(allowed, axis=1, bitorder="little").view(np.int32))
    assert torch.equal(scores, before) and np.array_equal(left, found.float().amax(-1).numpy())
    assert torch.equal(found.double(), before.double().masked_fill(~torch.from_numpy(allowed[:, :70]), -torch.inf))


def test_one_call_of_generate(network: Network, tokenizer: Any) -> None:
    guide = RegexGuide(PATTERN, vocabulary_for(network(), tokenizer))
    processor = GuideLogitsProcessor(guide, max_new_tokens=20)
    texts = said(network(), tokenizer, processor, max_new_tokens=20)
    for prompts in (["12"], ["a", "b", "c"]):
        with pytest.raises(OptionError, match="not those that this logits processor began with"):
            said(network(), tokenizer, processor, prompts, max_new_tokens=20)
    processor.reset()
    assert said(network(), tokenizer, processor, max_new_tokens=20) == texts
    assert said(network(), tokenizer, processor, max_new_tokens=20) == texts  # the same prompts once more


def test_mistakes(network: Network, tokenizer: Any) -> None:
    guide = RegexGuide(PATTERN, vocabulary_for(network(), tokenizer))
    with pytest.raises(OptionError, match="is no guide"):
        GuideLogitsProcessor(PATTERN)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="there is no guide"):
        GuideLogitsProcessor([])
    with pytest.raises(OptionError, match="max_new_tokens=0"):
        GuideLogitsProcessor(guide, max_new_tokens=0)
    with pytest.raises(OptionError, match="2 guides for 3 rows"):
        said(network(), tokenizer, GuideLogitsProcessor([guide, guide]), max_new_tokens=3)
    with pytest.raises(OptionError, match="has no logits; give a generative model of transformers"):
        vocabulary_for(object(), tokenizer)


def manager_of(model: Any, **options: Any) -> Any:
    config = GenerationConfig(max_new_tokens=30, do_sample=False, eos_token_id=1, pad_token_id=1)
    settings = {"use_async_batching": False, "use_cuda_graph": False, "num_blocks": 16, "max_batch_tokens": 64}
    return model.init_continuous_batching(
        generation_config=config, continuous_batching_config=ContinuousBatchingConfig(**settings | options)
    )


def test_continuous_batching(network: Network, tokenizer: Any) -> None:
    """Requests with guides of their own and without, some of which wait for others."""
    model = network(seed=7)
    vocabulary = vocabulary_for(model, tokenizer)
    guides = [RegexGuide(pattern, vocabulary) for pattern in (r"(on [0-9]{2}){1,3}", "[0-9]{3}x", "the end")]
    jobs = [(prompt, guide) for prompt in PROMPTS for guide in [*guides, None]]
    alone = [
        said(model, tokenizer, GuideLogitsProcessor(guide), [prompt], max_new_tokens=30)[0] if guide else None
        for prompt, guide in jobs
    ]
    manager = manager_of(model)
    ContinuousGuideProcessor.install(manager, vocabulary)
    manager.start()
    try:
        for number, (prompt, guide) in enumerate(jobs):
            more = {} if guide is None else {"guide": guide}
            manager.add_request(tokenizer(prompt).input_ids, str(number), max_new_tokens=30, **more)
        results: dict[int, Any] = {}
        begin = time.monotonic()
        while len(results) < len(jobs) and time.monotonic() < begin + 60:
            if (result := manager.get_result(timeout=1)) is not None:
                results[int(result.request_id)] = result
        with pytest.raises(OptionError, match="has started; install the processor before"):
            ContinuousGuideProcessor.install(manager, vocabulary)
    finally:
        manager.stop(block=True)
    assert [results[number].error for number in range(len(jobs))] == [None] * len(jobs)
    for number, text in enumerate(alone):
        if text is not None:
            assert vocabulary.decode(results[number].generated_tokens).decode() == text


def test_continuous_batching_that_chooses_ahead(network: Network, tokenizer: Any) -> None:
    model = network(seed=7)
    with pytest.raises(OptionError, match="set use_async_batching=False"):
        ContinuousGuideProcessor.install(manager_of(model, use_async_batching=True), vocabulary_for(model, tokenizer))
    with pytest.raises(OptionError, match="logits have 269 values"):
        ContinuousGuideProcessor.install(manager_of(model), Vocabulary.from_tokenizer(tokenizer, size=500))


def test_requests_that_were_preempted() -> None:
    """What was written before is a part of the prompt then; a request's text goes back, and starts anew."""
    guide = RegexGuide("[ab]{9}", Vocabulary.from_bytes())
    processor = ContinuousGuideProcessor(guide.vocabulary)

    class Request:
        def __init__(self, prompt: bytes, text: bytes, true: int = 0) -> None:
            self.state = self
            self.request_id, self._true_initial_tokens = "0", true
            self.initial_tokens, self.generated_tokens = list(prompt), list(text)
            self.logit_processor_kwargs = {"guide": guide}

    for request in (
        Request(b"xyz", b""),
        Request(b"xyz", b"ab"),
        Request(b"xyzab", b"", 3),
        Request(b"xyzab", b"ba", 3),
        Request(b"xyz", b"a"),
        Request(b"uvw", b"abb"),
    ):
        row = processor.prepare_tensor_args([request])
        state = guide.read(guide.start, bytes([*request.initial_tokens, *request.generated_tokens][3:]))
        found = processor.masks.table[row.long()][0].numpy().view(np.uint32)
        np.testing.assert_array_equal(found, guide.mask(state))
