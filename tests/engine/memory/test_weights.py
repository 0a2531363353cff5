"""Keys and values are found again as long as the model is what it was when they were computed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest
import torch
from trellm import Engine, Generator, OptionError, models

from ..conftest import until
from ..support import Weights

PROMPT = "The whale and the sea are here with men " + "and men " * 6


def ours(model: Any) -> list[int]:
    return list(Generator(model).run(PROMPT, heal=False, max_tokens=8).token_ids)


def noisy(network: Any) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    return {name: value + torch.randn(value.shape, generator=made) for name, value in network.state_dict().items()}


def train(network: Any) -> None:
    network.zero_grad()
    network(torch.arange(16)[None]).logits.square().mean().backward()
    torch.optim.SGD(network.parameters(), lr=30.0).step()


def load(network: Any) -> None:
    network.load_state_dict(noisy(network))


def replace_parameter(network: Any) -> None:
    layer = network.model.layers[0].self_attn.v_proj
    layer.weight = torch.nn.Parameter(-layer.weight.detach())


def replace_module(network: Any) -> None:
    network.model.layers[0].mlp = copy.deepcopy(network.model.layers[1].mlp)


def write_buffer(network: Any) -> None:
    network.model.rotary_emb.inv_freq.mul_(0.3)


CHANGES = [train, load, replace_parameter, replace_module, write_buffer]


@pytest.fixture
def network(hugging_face: Callable[[str], Any]) -> Any:
    return copy.deepcopy(hugging_face("llama"))


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_read_prompts_again(network: Any, tokenizer: Any, change: Callable[[Any], None]) -> None:
    model = models.transformers(network, tokenizer)
    before = ours(model)
    assert ours(model) == before
    change(network)
    after = ours(model)
    assert after == ours(models.transformers(copy.deepcopy(network), tokenizer))
    assert after != before, "or else this shows nothing"


@pytest.mark.parametrize("change", [train, load, replace_parameter, write_buffer])
def test_texts_that_join_others_read_nothing_of_weights_that_were_changed_since(
    network: Any, tokenizer: Any, change: Callable[[Any], None]
) -> None:
    """Where the engine is never idle, so that what it holds cannot be forgotten as a whole."""
    model = models.transformers(network, tokenizer)
    engine, generator = Engine(model), Generator(model)
    engine.submit(generator, PROMPT, heal=False, max_tokens=8).result()
    other = engine.submit(generator, "The sea and the whale", heal=False, max_tokens=60, min_tokens=60)
    for _ in range(4):
        engine.step()
    change(network)
    joined = engine.submit(generator, PROMPT, heal=False, max_tokens=8).result()
    fresh = models.transformers(copy.deepcopy(network), tokenizer)
    assert list(joined.token_ids) == ours(fresh)
    assert len(other.result().token_ids) == 60
    engine.close()


def test_what_takes_the_place_of_weights_that_are_gone_is_seen(network: Any, tokenizer: Any) -> None:
    """Also where it lies in the same memory, and was never written since."""
    weights = Weights(models.transformers(network, tokenizer))
    layer = network.model.layers[0].self_attn.v_proj
    seen = {weights.state()}
    for _ in range(20):
        shape = layer.weight.shape
        layer.weight = None
        layer.weight = torch.nn.Parameter(torch.empty(shape))
        seen.add(weights.state())
    assert len(seen) == 21


def test_modules_in_training_are_seen(network: Any, tokenizer: Any) -> None:
    weights = Weights(models.transformers(network, tokenizer))
    before = weights.state()
    network.model.layers[0].train()
    assert weights.state() != before
    network.eval()
    assert weights.state() == before


def test_blocks_are_kept_as_long_as_weights_are(network: Any, tokenizer: Any) -> None:
    model = models.transformers(network, tokenizer)
    weights = Weights(model)
    state = weights.state()
    ours(model)
    network.train().eval()
    assert weights.state() == state


@pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft 0.21
def test_adapters_are_seen(network: Any, tokenizer: Any) -> None:
    peft = import_module("peft")
    config = peft.LoraConfig(r=4, task_type="CAUSAL_LM", init_lora_weights=False)
    torch.manual_seed(3)
    wrapped = peft.get_peft_model(network, config)
    wrapped.add_adapter("other", config)
    model = models.transformers(wrapped.eval(), tokenizer)
    changes: list[Callable[[], Any]] = [
        lambda: wrapped.set_adapter("other"),
        wrapped.base_model.disable_adapter_layers,
        wrapped.base_model.enable_adapter_layers,
        wrapped.merge_adapter,
        wrapped.unmerge_adapter,
        lambda: wrapped.base_model.model.model.layers[0].self_attn.q_proj.scale_layer(9.0),
    ]
    weights = Weights(model)
    seen = [weights.state()]
    found = [ours(model)]
    for change in changes:
        change()
        seen.append(weights.state())
        found.append(ours(model))
        assert found[-1] == ours(models.transformers(copy.deepcopy(wrapped), tokenizer))
    assert all(one != other for one, other in pairwise(seen))
    assert len({tuple(each) for each in found}) >= 3


def test_sources_are_encoded_again(tokenizer: Any, t5: Callable[[], Any]) -> None:
    network = t5()
    model = models.transformers(network, tokenizer)
    kept = Generator(model).run(PROMPT, heal=False, max_tokens=8)
    with torch.no_grad():
        for parameter in network.encoder.parameters():
            parameter.neg_()
    assert ours(model) == ours(models.transformers(copy.deepcopy(network), tokenizer))
    assert ours(model) != list(kept.token_ids)


def test_a_model_without_a_module_never_changes() -> None:
    assert Weights(object()).state() == 0


def test_weights_of_another_type_are_refused_until_they_are_as_before(network: Any, tokenizer: Any) -> None:
    model = models.transformers(network, tokenizer)
    before = ours(model)
    network.double()
    for _ in range(2):
        with pytest.raises(OptionError, match=r"are torch.float64 on cpu now, and were torch.float32 .* wrap it again"):
            ours(model)
    again = models.transformers(network, tokenizer)
    assert ours(again) == before
    network.float()
    assert ours(model) == before
    with pytest.raises(OptionError, match=r"were torch\.float64"):
        ours(again)
    unused = models.transformers(network, tokenizer)
    network.half()
    with pytest.raises(OptionError, match=r"are torch\.float16 on cpu now"):
        ours(unused)


def test_whoever_waits_for_an_engine_of_its_own_thread_is_told_of_weights_of_another_type(
    network: Any, tokenizer: Any
) -> None:
    """Who has been taken up and who has not; and whoever watches the engine is told of it, too."""
    model = models.transformers(network, tokenizer)
    engine, generator = Engine(model), Generator(model)
    running = engine.submit(generator, PROMPT, heal=False, max_tokens=40, min_tokens=40)
    engine.step()
    network.double()
    handles = [running, *(engine.submit(generator, PROMPT, heal=False, max_tokens=8) for _ in range(2))]
    ended = list[bool]()
    engine.watch(lambda: ended.append(not engine.is_busy))
    engine.start()
    for handle in handles:
        with pytest.raises(OptionError, match=r"are torch.float64 on cpu now"):
            handle.result()
    until(lambda: True in ended)
    network.float()
    assert len(engine.submit(generator, PROMPT, heal=False, max_tokens=8, min_tokens=8).result().token_ids) == 8
    engine.close()


@pytest.mark.parametrize("change", CHANGES)
def test_texts_that_gave_their_memory_up_read_nothing_of_weights_that_were_changed_since(
    network: Any, tokenizer: Any, change: Callable[[Any], None]
) -> None:
    """They come back beside others that run, and find blocks that they had filled themselves."""
    model = models.transformers(network, tokenizer)
    engine, generator = Engine(model, memory=8 * model.block_bytes), Generator(model)

    def submit(prompt: str, tokens: int) -> Any:
        return engine.submit(generator, prompt, heal=False, max_tokens=tokens, min_tokens=tokens)

    stays, goes, last = submit("The sea", 60), submit("The whale", 60), submit(PROMPT[:40], 40)
    engine.step()
    scheduler = engine._loop._scheduler
    while not scheduler.preempted:
        assert engine.step()
    (entry,) = scheduler.preempted
    asked = [*entry.work.request.start.prompt, *entry.work.tokens]
    change(network)
    goes.cancel()
    fresh = Generator(models.transformers(copy.deepcopy(network), tokenizer))
    left = 40 - len(entry.work.tokens)
    engine.step()
    assert len(engine._loop._scheduler.running) == 2, "or else this shows nothing"
    rest = fresh.run(asked, max_tokens=left, min_tokens=left)
    assert list(last.result().token_ids)[-left:] == list(rest.token_ids)
    assert len(stays.result().token_ids) == 60
    engine.close()
