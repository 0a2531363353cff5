"""Described decoders: the states and tokens of transformers' own code, for bodies that are described and no others."""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers as hub
from torch import nn
from trellm import Greedy, generate, models

from ...thresholds import thresholds
from ...watching import watched
from ..support import BLOCK, BlockTable, Chunk
from .architectures import CONFIGS, FEW, GROUPED, NAMES, OLD
from .support import (
    BACKENDS,
    AttentionSpan,
    Backend,
    BlockStorage,
    DescribedDecoder,
    DeviceKernels,
    DeviceRows,
    DeviceStep,
    Heads,
    HostKernels,
    LayerBlocks,
    ModuleSource,
    NotDescribedError,
    PackedRunner,
    PackedStep,
    device,
    host,
    is_undivided,
)
from .test_blocks import last_states, random_history

Make = Callable[[], Any]
CUDA = torch.cuda.is_available()
MIXED = ["sliding_attention", "full_attention"]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10_000.0}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 10_000.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
KNOWN: dict[str, Make] = {
    "llama": lambda: hub.LlamaConfig(**GROUPED, **NAMES),
    "llama with biases": lambda: hub.LlamaConfig(**FEW, attention_bias=True, mlp_bias=True, **NAMES),
    "llama with frequencies of Llama 3": lambda: hub.LlamaConfig(**GROUPED, rope_parameters=LLAMA3, **NAMES),
    "llama with yarn": lambda: hub.LlamaConfig(**GROUPED, rope_parameters=YARN, **NAMES),
    "llama with tied embeddings": lambda: hub.LlamaConfig(**GROUPED, tie_word_embeddings=True, **NAMES),
    "mistral": lambda: hub.MistralConfig(**GROUPED, sliding_window=7, **NAMES),
    "ministral": lambda: hub.MinistralConfig(**GROUPED, sliding_window=7, layer_types=MIXED, **NAMES),
    "qwen2": lambda: hub.Qwen2Config(**FEW, sliding_window=6, use_sliding_window=True, layer_types=MIXED, **NAMES),
    "qwen3": lambda: hub.Qwen3Config(**GROUPED | {"head_dim": 12}, **NAMES),
    "cwm": lambda: hub.CwmConfig(**GROUPED, sliding_window=5, layer_types=MIXED, **NAMES),
}


def network_of(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A random model; its biases and norms are random too, which those of new models are not."""
    torch.manual_seed(3)
    model = hub.AutoModelForCausalLM.from_config(KNOWN[name]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += torch.randn_like(parameter) * 0.3
    return model.to(dtype)


def described_of(network: Any, kind: type[Backend] = DeviceKernels) -> DescribedDecoder:
    found = DescribedDecoder.of(network.base_model, network.config, kind)
    assert found is not None and type(found.kernels) is kind
    return found


def is_described(network: Any, kind: type[Backend] = DeviceKernels) -> bool:
    return DescribedDecoder.of(network.base_model, network.config, kind) is not None


@pytest.fixture(params=["at once", "kernels", "torch"])
def everywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Backend]:
    """What runs on the CPU: a kernel of all layers, those of each, or torch operations, as on a GPU."""
    if "TRELLM_TEST_DEVICE" in os.environ:
        pytest.skip("models are on a device")
    if request.param == "kernels":
        thresholds(monkeypatch, call_for_all_layers=0)
    kind = DeviceKernels if request.param == "torch" else HostKernels
    monkeypatch.setitem(BACKENDS, "cpu", kind)
    return kind


def rows_of(slots: list[int], *rows: tuple[list[int], int, int, int], device: Any = "cpu") -> DeviceRows:
    """Rows of a step: blocks, the first token in the step, how many there are, and where they lie in their text."""
    columns = (torch.tensor(each, dtype=torch.int32, device=device) for each in (slots, *zip(*rows, strict=True)))
    return DeviceRows(*columns, max(width + start for *_, width, start in rows), max(row[2] for row in rows))


def states_of(fused: DescribedDecoder, body: Any, text: list[int], layers: list[LayerBlocks] | None = None) -> Any:
    """The states of one text, in the first blocks."""
    size = len(text)
    layers = layers or [LayerBlocks(1 + size // BLOCK) for _ in fused.description.reaches]
    rows = rows_of([*range(size)], ([*range(1 + size // BLOCK)], 0, size, 0), device=body.device)
    ids, places = torch.tensor([text, [*range(size)]], device=body.device)
    assert fused.prepare() is not None
    return fused.kernels.read(ids, places, DeviceStep(layers, list(fused.description.reaches), rows))


def agrees(network: Any, fused: DescribedDecoder, tolerance: float = 1e-4) -> None:
    text = [7, 3, 99, 0, 21]
    with torch.no_grad():
        expected = network.model(torch.tensor([text], device=network.device), use_cache=False).last_hidden_state[0]
    torch.testing.assert_close(states_of(fused, network.model, text), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", KNOWN)
def test_any_history_of_texts_gives_what_the_text_alone_does(
    name: str, dtype: torch.dtype, tokenizer: Any, everywhere: type[Backend]
) -> None:
    network = network_of(name, dtype)
    model = models.transformers(network, tokenizer)
    assert isinstance(model._runner, PackedRunner) and model._runner.described is not None
    assert type(model._runner.described.kernels) is everywhere
    tolerance = 1e-3 if dtype == torch.float32 else 1e-5  # norms are float32
    with torch.inference_mode():
        seen = random_history(model, seed=int(dtype == torch.float64))
        assert len(seen) > 20
        for (state, *_), expected in zip(seen, last_states(network, [text for *_, text in seen]), strict=True):
            torch.testing.assert_close(state.cpu(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama with biases", "qwen3"])
def test_short_types(name: str, dtype: torch.dtype) -> None:
    network = network_of(name, dtype)
    agrees(network, described_of(network), 0.1 if dtype == torch.bfloat16 else 0.02)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3"])
def test_the_same_tokens_through_the_engine(name: str, hugging_face: Callable[[str], Any], tokenizer: Any) -> None:
    prompts = ["the", "a 12 on the one", "one two three four five six seven eight"]

    def tokens(network: Any) -> list[Any]:
        model = models.transformers(network, tokenizer)
        assert isinstance(model._runner, PackedRunner)
        made: list[Any] = [model._runner.described is not None]
        for generator in (generate.text(model), generate.regex(model, r"[a-z]+ \d{3}( [a-z]+)*")):
            made += [each.token_ids for each in generator.run(prompts, max_tokens=24, search=Greedy())]
        return made

    own, changed = copy.deepcopy(hugging_face(name)), copy.deepcopy(hugging_face(name))
    changed.model.layers[0].register_forward_hook(lambda *_: None)
    fused, stock = tokens(own), tokens(changed)
    assert (fused[0], stock[0]) == (True, False)
    assert fused[1:] == stock[1:]
    assert max(map(len, stock[1:])) > 10


@pytest.mark.skipif("TRELLM_TEST_DEVICE" in os.environ, reason="these kernels are for the CPU")
@pytest.mark.parametrize("name", ["llama with biases", "ministral", "qwen3", "gpt2"])
@pytest.mark.parametrize("threads", [1, 2])
def test_small_steps_are_one_call(
    name: str, threads: int, tokenizer: Any, use_threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way layers are read, states are the same to the last bit; much is not read without a break."""
    use_threads(threads)
    network = hub.GPT2LMHeadModel(hub.GPT2Config(**OLD, **NAMES)).eval() if name == "gpt2" else network_of(name)
    model = models.transformers(network, tokenizer)
    assert isinstance(model._runner, PackedRunner) and model._runner.described is not None
    found: list[list[torch.Tensor]] = []
    # All layers of a step, and the last norm where each is read apart
    together, apart = (watched(monkeypatch, host, name) for name in ("read_layers", "normalise_rows"))
    for much in (None, 0):
        thresholds(monkeypatch, call_for_all_layers=much)
        with torch.inference_mode():
            found.append([state for state, _, _ in random_history(model, 1)])
    assert len(together) == len(apart) > 10
    for state, expected in zip(*found, strict=True):
        assert torch.equal(state, expected)


@pytest.mark.skipif("TRELLM_TEST_DEVICE" in os.environ, reason="these kernels are for the CPU")
def test_weights_stay_while_a_kernel_reads_them(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread, that finds the weights moved, may lay them out anew in the midst of a step."""
    model = models.transformers(network_of("qwen3"), tokenizer)
    assert isinstance(model._runner, PackedRunner) and model._runner.described is not None
    fused = model._runner.described
    assert isinstance(fused.kernels, HostKernels)
    known = [weakref.ref(array) for own in fused.kernels.arrays for array in own]

    def still_there(*_: Any) -> int:
        fused._arrange()
        gc.collect()
        return sum(each() is not None for each in known)

    seen = watched(monkeypatch, host, "read_layers", still_there)
    generate.text(model).run("the", max_tokens=1)
    assert seen and seen[0] == len(known) > 0


def test_attention_that_is_worth_threads_has_them(use_threads: Any) -> None:
    storage, reaches = BlockStorage(512, 2), [AttentionSpan(), AttentionSpan(window=64)]

    def step(*lengths: tuple[int, int]) -> PackedStep:
        chunks: list[Chunk] = []
        for start, width in lengths:
            table = BlockTable()
            table.blocks.extend(range((start + width) // BLOCK + 1))
            table.tokens.extend([0] * start)
            chunks.append(Chunk(table, [1] * width))
        return PackedStep(chunks, storage, reaches, torch.device("cpu"))

    use_threads(2)
    assert is_undivided(step((3, 1), (90, 2), (0, 20)), Heads(4, 1, 64))
    assert is_undivided(step((0, 30)), Heads(4, 1, 64))
    assert not is_undivided(step(*[(4000, 1)] * 8), Heads(16, 4, 64))
    assert not is_undivided(step((3, 1), (0, 512)), Heads(4, 1, 64))
    use_threads(1)
    assert is_undivided(step(*[(4000, 1)] * 8), Heads(16, 4, 64))


@pytest.mark.parametrize("kind", [HostKernels, DeviceKernels])
def test_a_token_without_a_slot_is_not_kept(kind: type[Backend]) -> None:
    network = network_of("qwen3")
    fused = described_of(network, kind)
    reaches = list(fused.description.reaches)
    layers, others = ([LayerBlocks(2) for _ in reaches] for _ in range(2))
    ids, positions, slots = torch.tensor([5, 9, 5]), torch.tensor([0, 0, 1]), [BLOCK + 2, -1, 3]
    first, last = ([1], 0, 1, 2), ([0], 2, 1, 3)
    states = fused.kernels.read(ids, positions, DeviceStep(layers, reaches, rows_of(slots, first, last)))
    step = DeviceStep(others, reaches, rows_of(slots[:1], first))
    torch.testing.assert_close(states[:1], fused.kernels.read(ids[:1], positions[:1], step))
    for layer in layers:
        assert layer.keys.abs().sum((1, 3)).nonzero().tolist() == [[0, 3], [1, 2]]
        assert layer.values.abs().sum((1, 3)).nonzero().tolist() == [[0, 3], [1, 2]]


def test_how_often_a_layer_calls_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of("qwen3")
    fused = described_of(network)
    names = "norm", "place", "multiply_normed", "multiply_gated", "multiply_onto"
    calls = {name: watched(monkeypatch, device, name) for name in names}
    states_of(fused, network.model, [1, 2, 3])
    layers = fused.description.layers
    each = dict.fromkeys(("place", "multiply_normed", "multiply_gated"), layers)
    assert {name: len(calls[name]) for name in names} == {**each, "multiply_onto": 2 * layers, "norm": 1}


# What is changed in a model, and what is said of it.
CHANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "in training": ("training", lambda model: model.train()),
    "another activation": (
        "act_fn: GELU",
        lambda model: setattr(model.model.layers[1].mlp, "act_fn", nn.GELU()),
    ),
    "a wrapped linear layer": (
        "q_proj: Wrapped",
        lambda model: setattr(model.model.layers[0].self_attn, "q_proj", Wrapped(8, 8)),
    ),
    "an adapter beside": (
        "parts of layer 0 mlp",
        lambda model: model.model.layers[0].mlp.add_module("lora", nn.Identity()),
    ),
    "a hook": ("hooks", lambda model: model.model.layers[1].mlp.register_forward_hook(print)),
    "a hook before": ("hooks", lambda model: model.model.norm.register_forward_pre_hook(print)),
    "another forward": ("another forward", lambda model: setattr(model.model.layers[0], "forward", print)),
    "another scale": ("scaling", lambda model: setattr(model.model.layers[1].self_attn, "scaling", 1.0)),
    "attention to both sides": ("causal", lambda model: setattr(model.model.layers[0].self_attn, "is_causal", False)),
    "dynamic frequencies": ("rotary", lambda model: model.config.rope_parameters.update(rope_type="dynamic")),
    "frequencies of a part": (
        "a part of a head",
        lambda model: setattr(model.model.rotary_emb, "inv_freq", torch.ones(2)),
    ),
    "types that are mixed": ("several types", lambda model: model.model.norm.double()),
    "a bias of one product": (
        "biases of up",
        lambda model: setattr(model.model.layers[0].mlp.up_proj, "bias", nn.Parameter(torch.zeros(48))),
    ),
    "a shape that does not fit": ("queries of shape", lambda model: model.config.update({"hidden_size": 64})),
    "a shared weight": (
        "share",
        lambda model: setattr(
            model.model.layers[0].self_attn.k_proj, "weight", model.model.layers[1].self_attn.k_proj.weight
        ),
    ),
    "weights that lie apart": (
        "lie apart",
        lambda model: setattr(model.model.embed_tokens, "weight", nn.Parameter(torch.zeros(32, 128).T)),
    ),
    "a bounded embedding": ("max_norm", lambda model: setattr(model.model.embed_tokens, "max_norm", 1.0)),
    "layers of another architecture": (
        "layers",
        lambda model: setattr(model.model, "layers", nn.Sequential(*model.model.layers)),
    ),
}


class Wrapped(nn.Linear):
    """What adapters put in place of a linear layer."""


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_not_known(change: str) -> None:
    network = network_of("llama")
    assert ModuleSource(network.model, network.config).weights
    reason, make = CHANGES[change]
    make(network)
    with pytest.raises(NotDescribedError, match=reason):
        ModuleSource(network.model, network.config)
    assert not is_described(network)


@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"llama", "mistral", "qwen3", "gpt2"}))
def test_other_architectures_are_not_known(name: str) -> None:
    network = hub.AutoModelForCausalLM.from_config(CONFIGS[name](), experts_implementation="eager").eval()
    assert not is_described(network, DeviceKernels) and not is_described(network, HostKernels)


def test_configurations_may_have_a_size_for_each_layer() -> None:
    network = network_of("llama")
    network.config.__dict__["intermediate_size"] = [48, 48]
    assert is_described(network, HostKernels)


def test_a_subclass_is_not_known() -> None:
    class LlamaModel(hub.LlamaModel):
        pass

    torch.manual_seed(0)
    body = LlamaModel(KNOWN["llama"]()).eval()
    assert DescribedDecoder.of(body, body.config, DeviceKernels) is None


@pytest.mark.parametrize("part", ["LlamaRMSNorm", "LlamaMLP", "LlamaAttention", "LlamaRotaryEmbedding"])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_classes_that_are_patched_are_not_described(
    part: str, is_wrapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.llama import modeling_llama

    network = network_of("llama")
    agrees(network, described_of(network))
    which = getattr(modeling_llama, part)
    stock = which.forward

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        made = stock(self, *arguments, **named)
        return (made[0] * 1.5, *made[1:]) if isinstance(made, tuple) else made * 1.5

    monkeypatch.setattr(which, "forward", functools.wraps(stock)(forward) if is_wrapped else forward)
    with pytest.raises(NotDescribedError, match=f"another forward of {part}"):
        ModuleSource(network.model, network.config)


def test_functions_of_a_file_that_are_patched_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    network = network_of("llama")
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda query, key, *others: (key, query))
    with pytest.raises(NotDescribedError, match="another forward of LlamaAttention"):
        ModuleSource(network.model, network.config)


def test_parametrizations_are_seen() -> None:
    network = network_of("llama")
    nn.utils.parametrize.register_parametrization(network.model.layers[0].mlp.up_proj, "weight", nn.Identity())
    with pytest.raises(NotDescribedError, match="up_proj: ParametrizedLinear"):
        ModuleSource(network.model, network.config)


@pytest.mark.parametrize("name", [*KNOWN, "gpt2"])
def test_descriptions_say_what_weights_there_are(name: str) -> None:
    network = hub.GPT2LMHeadModel(hub.GPT2Config(**OLD, **NAMES)).eval() if name == "gpt2" else network_of(name)
    source = ModuleSource(network.base_model, network.config)
    said = source.description
    assert (said.tied_head, said.layers) == (network.config.tie_word_embeddings, network.config.num_hidden_layers)
    assert len(said.reaches) == len(source.weights.layers) == said.layers
    assert tuple(source.weights.embedding.shape) == (said.vocabulary, said.hidden)


def test_hooks_that_transformers_leaves_do_no_harm() -> None:
    network = network_of("llama")
    network.model(torch.tensor([[1, 2]]), output_hidden_states=True, output_attentions=True)
    agrees(network, described_of(network))


def storages(network: Any) -> Counter[int]:
    """How many parameters each piece of memory has."""
    return Counter(parameter.untyped_storage().data_ptr() for parameter in network.parameters())


@pytest.mark.parametrize("name", ["llama with biases", "llama with tied embeddings", "qwen3"])
def test_weights_lie_in_memory_once(name: str) -> None:
    network = network_of(name)
    before = copy.deepcopy(network.state_dict())
    trained = [parameter.requires_grad for parameter in network.parameters()]
    layers = ModuleSource(network.model, network.config).weights.layers
    own = {layer.attention.weight.untyped_storage().data_ptr() for layer in layers}
    own |= {layer.up.weight.untyped_storage().data_ptr() for layer in layers}
    shared = storages(network)
    assert {shared[place] for place in own} == {2, 3}
    size = sum(parameter.nbytes for parameter in network.parameters())
    held = {memory.data_ptr(): memory.nbytes() for memory in map(torch.Tensor.untyped_storage, network.parameters())}
    assert sum(held.values()) == size
    assert [parameter.requires_grad for parameter in network.parameters()] == trained
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


@pytest.mark.parametrize("kind", [HostKernels, DeviceKernels])
def test_weights_that_are_written_are_seen(kind: type[Backend]) -> None:
    network, other = network_of("llama with biases"), network_of("llama with biases")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.25)
    fused = described_of(network, kind)
    number = fused.prepare()
    network.load_state_dict(other.state_dict())
    assert fused.prepare() == number
    agrees(other, fused)


@pytest.mark.parametrize(
    "move",
    [
        lambda model: model.double(),
        lambda model: model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()}, assign=True),
        lambda model: setattr(model.model.layers[1].mlp.up_proj, "weight", nn.Parameter(torch.randn(48, 32))),
        lambda model: setattr(model.model, "norm", copy.deepcopy(model.model.norm)),
        lambda model: setattr(model.model.layers[0].mlp.down_proj.weight, "data", torch.randn(32, 48)),
    ],
    ids=["another dtype", "assigned", "a weight", "a module", "data"],
)
@pytest.mark.parametrize("kind", [HostKernels, DeviceKernels])
def test_weights_that_are_moved_are_laid_anew(move: Callable[[Any], Any], kind: type[Backend]) -> None:
    network = network_of("llama")
    fused = described_of(network, kind)
    number = fused.prepare()
    agrees(network, fused)
    move(network)
    agrees(network, fused)
    assert fused.prepare() not in (None, number)
    assert fused.prepare() == fused.prepare()


def test_a_body_that_is_changed_is_given_up() -> None:
    network = network_of("llama")
    fused = described_of(network)
    network.model.layers[0].self_attn.q_proj = Wrapped(32, 32)
    assert fused.prepare() is None


@pytest.mark.usefixtures("everywhere")
def test_a_model_that_is_changed_runs_its_own_code(tokenizer: Any) -> None:
    model = models.transformers(network_of("llama"), tokenizer)
    network = model.model
    assert isinstance(model._runner, PackedRunner) and model._runner.described is not None
    old = network.model.layers[0].self_attn.q_proj
    new = Wrapped(32, 32, bias=False, device=network.device)
    new.weight = nn.Parameter(old.weight.data * -1)
    network.model.layers[0].self_attn.q_proj = new
    with torch.inference_mode():
        seen = random_history(model, 0)
        for (state, *_), expected in zip(seen, last_states(network, [text for *_, text in seen]), strict=True):
            torch.testing.assert_close(state, expected.to(state), rtol=1e-3, atol=1e-3)
    assert model._runner.described.prepare() is None


@pytest.mark.parametrize("kind", [HostKernels, DeviceKernels])
def test_two_decoders_of_one_body_leave_each_other_alone(kind: type[Backend]) -> None:
    network = network_of("llama with biases")
    first, second = described_of(network, kind), described_of(network, kind)
    numbers = first.prepare(), second.prepare()
    agrees(network, first)
    agrees(network, second)
    assert (first.prepare(), second.prepare()) == numbers
    network.double()
    agrees(network, first)
    agrees(network, second)
    after = first.prepare(), second.prepare()
    assert after == (first.prepare(), second.prepare())


def copies(fused: DescribedDecoder) -> Iterator[DescribedDecoder | None]:
    yield copy.deepcopy(fused)
    yield pickle.loads(pickle.dumps(fused))


@pytest.mark.parametrize("kind", [HostKernels, DeviceKernels])
def test_copies_are_of_a_body_of_their_own(kind: type[Backend]) -> None:
    network = network_of("qwen3")
    fused = described_of(network, kind)
    for other in copies(fused):
        assert other is not None
        with torch.no_grad():
            for parameter in other._body.parameters():
                parameter.mul_(1.5)
        agrees(network, fused)
        twin = network_of("qwen3")
        twin.model = other._body
        agrees(twin, other)
    network.model.layers[0].mlp.act_fn = nn.GELU()
    assert fused.prepare() is None
    assert not any(copies(fused))


def test_a_model_is_saved_and_loaded(tmp_path: Any) -> None:
    network = network_of("qwen3")
    before = copy.deepcopy(network.state_dict())
    described_of(network)
    network.save_pretrained(tmp_path)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    loaded = hub.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    for state in (loaded.state_dict(), torch.load(tmp_path / "weights.pt")):
        assert state.keys() == before.keys()
        for key, value in state.items():
            torch.testing.assert_close(value, before[key], rtol=0, atol=0)
    agrees(loaded, described_of(loaded))


def test_a_model_can_be_trained_further() -> None:
    network = network_of("llama with biases")
    with torch.inference_mode():
        fused = described_of(network)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    before = network.model.layers[0].self_attn.k_proj.weight.detach().clone()
    network(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()
    optimiser.step()
    assert not torch.equal(network.model.layers[0].self_attn.k_proj.weight, before)
    agrees(network, fused)


def test_what_is_loaded_in_inference_mode_is_left_alone() -> None:
    with torch.inference_mode():
        network = network_of("llama")
        assert not is_described(network)


def test_what_the_kernels_are_not_for(use_threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_described(network_of("llama", torch.bfloat16), HostKernels)
    network = network_of("llama")
    fused = described_of(network, HostKernels)
    network.half()
    assert fused.prepare() is None
    network.float()
    thresholds(monkeypatch, layer_for_threads=32 * 48)
    use_threads(3)
    assert not is_described(network, HostKernels)
    use_threads(2)
    assert described_of(network, HostKernels)


@pytest.mark.skipif(not CUDA, reason="this needs a GPU")
@pytest.mark.parametrize("name", KNOWN)
def test_states_on_a_gpu(name: str) -> None:
    tolerances = {torch.float32: 1e-3, torch.float64: 1e-5, torch.bfloat16: 0.1, torch.float16: 0.02}
    for dtype, tolerance in tolerances.items():
        network = network_of(name, dtype).to("cuda")
        agrees(network, described_of(network), tolerance)


@pytest.mark.skipif(not CUDA, reason="this needs a GPU")
@pytest.mark.parametrize(("tokens", "most"), [(1, 5), (4, 5), (16, 8)])
def test_launches_of_a_layer_on_a_gpu(tokens: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside those of attention."""
    from torch.profiler import ProfilerActivity, profile

    monkeypatch.setattr(device, "attend_layer", lambda step, number, queries, scale: queries)

    def launches(layers: int) -> int:
        config = KNOWN["qwen3"]()
        config.num_hidden_layers, config.layer_types = layers, ["full_attention"] * layers
        network = hub.AutoModelForCausalLM.from_config(config).eval().to("cuda", torch.bfloat16)
        fused = described_of(network)
        reaches, ids = list(fused.description.reaches), torch.arange(tokens, device="cuda")
        rows = rows_of([*range(tokens)], ([0], 0, tokens, 0), device="cuda")
        step = DeviceStep([LayerBlocks(1) for _ in reaches], reaches, rows)
        fused.kernels.read(ids, ids, step)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            fused.kernels.read(ids, ids, step)
            torch.cuda.synchronize()
        return sum(event.count for event in seen.key_averages() if event.device_type.name == "CUDA")

    assert (launches(5) - launches(2)) / 3 <= most


@pytest.mark.skipif(not CUDA, reason="this needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 3, 9])
def test_a_step_is_captured_in_a_graph(dtype: torch.dtype, tokens: int) -> None:
    network = network_of("qwen3", dtype).to("cuda")
    fused = described_of(network)
    reaches, ids = list(fused.description.reaches), torch.arange(tokens, device="cuda")
    rows, positions = rows_of([*range(tokens)], ([0], 0, tokens, 0), device="cuda"), ids.clone()
    step = DeviceStep([LayerBlocks(4) for _ in reaches], reaches, rows)
    fused.kernels.read(ids, positions, step)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        states = fused.kernels.read(ids, positions, step)
    for shift in (1, 2):
        ids += shift
        positions += 3 * shift
        graph.replay()
        expected = fused.kernels.read(ids, positions, step)
        torch.testing.assert_close(states, expected, rtol=0, atol=0)
