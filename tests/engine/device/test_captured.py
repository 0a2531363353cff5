"""Captured launches, on a device that is made of a CPU: by Triton's interpreter, in a run of their own."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from trellm import Greedy, Sample, generate, models

from .support import WaitsError, WithoutWaiting
from .test_graphs import PROMPTS, GraphDecoder, facts

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="TRITON_INTERPRET=1 runs the kernels of a GPU")
NARROW = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
NAMES = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "initializer_range": 0.4}


def experts(tokenizer: Any) -> Any:
    """A model that asks which of its experts are at work."""
    torch.manual_seed(2)
    config = transformers.MixtralConfig(
        **NARROW, **NAMES, intermediate_size=48, num_local_experts=2, num_experts_per_tok=1, vocab_size=len(tokenizer)
    )
    return transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()


@needs_interpreter
@pytest.mark.filterwarnings("ignore:(overflow|invalid|divide):RuntimeWarning")  # of what nobody's tokens come to
@pytest.mark.parametrize("search", [Greedy(), Sample(temperature=0.8, n=2)], ids=["greedy", "sample"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_what_is_repeated_depends_on_nothing_but_what_launches_are_told(
    hugging_face: Any, tokenizer: Any, name: str, search: Any
) -> None:
    from .recorded import recorded

    network = hugging_face(name)
    given = {"max_tokens": 9, "search": search, "seed": 3}
    several = PROMPTS[:2], PROMPTS[:1]
    plain = generate.regex(models.transformers(network, tokenizer), "([a-z]{1,9}[ .,])*")
    expected = [facts(plain.run(each, **given)) for each in several]
    with recorded() as device:
        model = GraphDecoder(copy.deepcopy(network), tokenizer)
        generator = generate.regex(model, "([a-z]{1,9}[ .,])*")
        assert [facts(generator.run(each, **given)) for each in several] == expected
        assert [facts(generator.run(each, **given)) for each in several] == expected
    assert device.repeated > device.captured == len(model.made._graphs) > 0
    assert device.streams == 1, "for each of them the device's library would keep memory"


@needs_interpreter
@pytest.mark.filterwarnings("ignore:(overflow|invalid|divide):RuntimeWarning")
def test_a_model_that_asks_what_the_device_found_is_not_captured(tokenizer: Any) -> None:
    from .recorded import recorded

    network = experts(tokenizer)
    expected = facts(generate.text(models.transformers(network, tokenizer)).run(PROMPTS[:1], max_tokens=7))
    with recorded() as device:
        model = GraphDecoder(network, tokenizer)
        assert facts(generate.text(model).run(PROMPTS[:1], max_tokens=7)) == expected
    assert model.made._graphs and not device.repeated


WAITING: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": lambda given: given[0].item(),
    "condition": lambda given: bool(given[0] > 1),
    "list": lambda given: [float(each) for each in given],
    "nonzero": lambda given: given.nonzero(),
    "mask": lambda given: given[given > 1],
    "written by a mask": lambda given: given.clone().index_put_((given > 1,), given[:2]),
    "repeats": lambda given: given.repeat_interleave((given > 1).long()),
    "places": lambda given: torch.where(given > 1),
    "equal": lambda given: torch.equal(given, given),
}
GOING_ON: dict[str, Callable[[torch.Tensor], Any]] = {
    "numbers": lambda given: (given * 2 + given.cumsum(0)).softmax(0).sort(),
    "where": lambda given: torch.where(given > 1, -1, given),
    "by places": lambda given: given[torch.arange(2)].index_fill_(0, torch.arange(1), 3),
    "repeated": lambda given: given[None].repeat_interleave(3, 0),
    "asked for its shape": lambda given: given.new_empty(given.shape[0], int(given.stride(0))),
}


@pytest.mark.parametrize("name", [*WAITING, *GOING_ON])
@torch.inference_mode()
def test_what_a_host_waits_for(name: str) -> None:
    given = torch.tensor([1.0, 2.0, 3.0])
    with pytest.raises(WaitsError) if name in WAITING else nullcontext(), WithoutWaiting(given.device):
        (WAITING | GOING_ON)[name](given)
    with WithoutWaiting(torch.device("cuda")):
        (WAITING | GOING_ON)[name](given)


@torch.inference_mode()
def test_what_goes_from_one_device_to_another_is_waited_for() -> None:
    given = torch.tensor([1.0, 2.0])
    for move in (lambda: given.to("meta"), lambda: given.new_empty(2, device="meta").copy_(given)):
        with pytest.raises(WaitsError), WithoutWaiting(given.device):
            move()


def test_one_launch_is_captured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = pytest.importorskip("trellm.engine.device.graphs", reason="Triton is not installed")
    now, most = 0, 0

    @contextmanager
    def capturing(graph: Any, **how: Any) -> Iterator[None]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        yield
        now -= 1

    def run(self: Any, *given: Any) -> None:
        sleep(0.01)

    monkeypatch.setattr(graphs.GraphBackend, "_run", run)
    graph = SimpleNamespace(pool=int, replay=None)
    for name, other in (("CUDAGraph", lambda: graph), ("graph", capturing)):
        monkeypatch.setattr(graphs.torch.cuda, name, other)

    def capture(_: int) -> None:
        backend = object.__new__(graphs.GraphBackend)
        backend._pool, backend._device = None, torch.device("cpu")
        backend._capture(None, None, None)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(capture, range(8)))
    assert most == 1


def adapt(network: Any) -> Any:
    """A layer as PEFT's are, which keep what is at work in attributes."""
    layer = network.model.layers[0].mlp
    layer._disable_adapters, layer._active_adapter, layer.merged_adapters = False, ["one"], []
    return layer


def choose(network: Any) -> None:
    network.model.layers[0].mlp._active_adapter = ["other"]


def turn_off(network: Any) -> None:
    network.model.layers[0].mlp._disable_adapters = True


def replace_buffer(network: Any) -> None:
    rotary = network.model.rotary_emb
    name = next(iter(rotary._buffers))
    rotary.register_buffer(name, getattr(rotary, name) * 2, persistent=False)


def replace_module(network: Any) -> None:
    network.model.layers[0].mlp.act_fn = torch.nn.ReLU()


def replace_bias(network: Any) -> None:
    network.lm_head.bias.data = network.lm_head.bias.data + 1


@pytest.mark.parametrize("change", [choose, turn_off, replace_buffer, replace_module, replace_bias])
@pytest.mark.parametrize("name", ["gemma3", "llama"])
def test_graphs_hold_as_long_as_what_they_were_captured_of(
    hugging_face: Any, tokenizer: Any, name: str, change: Callable[[Any], None]
) -> None:
    network = copy.deepcopy(hugging_face(name))
    if change is not replace_module:
        adapt(network)
    network.lm_head.bias = torch.nn.Parameter(torch.zeros(len(network.lm_head.weight)))
    parts = models.transformers(network, tokenizer).parts
    assert parts is not None
    reader, head = parts

    def baked() -> Any:
        return reader.baked, head.baked

    before = baked()
    assert before == baked()
    change(network)
    if name == "llama" and change in (choose, turn_off):
        assert baked() == before, "such a body has none"
    else:
        assert baked() != before
