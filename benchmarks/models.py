"""Models whose layers keep a state, beside `transformers.generate` with its cache.

    python benchmarks/models.py TOKENIZER [--hidden 256 --layers 4 --rounds 5 --save]

Random weights over the tokenizer's whole vocabulary: a token's time does not depend on them. Everything runs in turn
on one core with one thread, greedy, in float32; times are CPU time, medians of the rounds.

one: ms for a token of a single text of 64 tokens, after a prompt of 40
eight: ms for a token that is wanted, of eight texts of 16 to 96 tokens, after prompts of 8 to 64; transformers pads
    them on the left, and goes on until the longest ends
equal: whether the single text is the same in both
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from recording import pin_to_one_core, save, show

ONE = [(40, 64)]
LENGTHS = [8, 16, 24, 32, 40, 48, 56, 64]
WANTED = [96, 16, 32, 48, 24, 64, 40, 80]


def configs(size: int, hidden: int, layers: int) -> dict[str, Callable[[], Any]]:
    """A configuration of each architecture; a fourth of the layers of hybrids attend, or as near as they allow."""
    import transformers as hub

    names = {"vocab_size": size, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    heads = hidden // 32
    attention = {
        "hidden_size": hidden, "intermediate_size": 3 * hidden, "num_attention_heads": heads,
        "num_key_value_heads": heads, "max_position_embeddings": 1024, "num_hidden_layers": layers,
    }  # fmt: skip
    linear = {
        "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_key_heads": heads,
        "linear_num_value_heads": heads, "head_dim": 32,
    }  # fmt: skip
    mamba = {"mamba_n_heads": 2 * heads, "mamba_d_state": 32, "mamba_n_groups": 1}
    every = [
        "full_attention" if number % 4 == 3 or number == layers - 1 else "linear_attention" for number in range(layers)
    ]
    conv = ["conv" if kind == "linear_attention" else kind for kind in every]
    shared = ["hybrid" if kind == "full_attention" else kind for kind in every] + ["hybrid"]
    plain = {"hidden_size": hidden, "num_hidden_layers": layers}
    return {
        "mamba": lambda: hub.MambaConfig(**plain, **names),
        "mamba2": lambda: hub.Mamba2Config(
            **plain, num_heads=2 * heads, head_dim=32, state_size=32, n_groups=1, **names
        ),
        "falcon_mamba": lambda: hub.FalconMambaConfig(**plain, **names),
        "qwen3_5": lambda: hub.Qwen3_5TextConfig(**attention, **linear, layer_types=every, **names),
        "bamba": lambda: hub.BambaConfig(**attention, **mamba, attn_layer_indices=[layers - 1], **names),
        "lfm2": lambda: hub.Lfm2Config(**attention, layer_types=conv, block_auto_adjust_ff_dim=False, **names),
        "granitemoehybrid": lambda: hub.GraniteMoeHybridConfig(
            **attention, **mamba, num_local_experts=0, shared_intermediate_size=3 * hidden, layer_types=every, **names
        ),
        "falcon_h1": lambda: hub.FalconH1Config(**attention, **mamba, mamba_d_ssm=2 * hidden, **names),
        "jamba": lambda: hub.JambaConfig(
            **attention, num_experts=2, attn_layer_period=4, attn_layer_offset=3, mamba_d_state=16, **names),
        "nemotron_h": lambda: hub.NemotronHConfig(
            **attention, head_dim=32, mamba_num_heads=2 * heads, mamba_head_dim=32, ssm_state_size=32, n_groups=1,
            time_step_min=1e-9,
            layers_block_type=[*["linear_attention", "mlp"] * (layers - 1), "full_attention", "mlp"],
            **names),
        "zamba": lambda: hub.ZambaConfig(
            **{**attention, "num_hidden_layers": len(shared)}, mamba_d_state=16, layers_block_type=shared, **names),
        "zamba2": lambda: hub.Zamba2Config(
            **{**attention, "num_hidden_layers": len(shared)}, mamba_d_state=32, n_mamba_heads=2 * heads,
            num_mem_blocks=1, use_mem_rope=True, time_step_min=1e-9, layers_block_type=shared, **names),
        "qwen3_next": lambda: hub.Qwen3NextConfig(
            **attention, **linear, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=hidden,
            shared_expert_intermediate_size=hidden, layer_types=every, **names),
        "kimi_linear": lambda: hub.KimiLinearConfig(
            **attention, layer_types=every, kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32,
            linear_head_dim=32, linear_num_heads=heads, num_experts=4, n_routed_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=hidden, **names),
        "recurrent_gemma": lambda: hub.RecurrentGemmaConfig(
            **{key: value for key, value in attention.items() if key != "max_position_embeddings"},
            attention_window_size=512, **names),
        "minimax": lambda: hub.MiniMaxConfig(
            **attention, head_dim=32, num_local_experts=2, layer_types=every, block_size=64, **names
        ),
        "olmo_hybrid": lambda: hub.OlmoHybridConfig(
            **attention, **{key: value for key, value in linear.items() if key != "head_dim"}, layer_types=every,
            **names),
    }  # fmt: skip


def measured(name: str, config: Any, tokenizer: Any, rounds: int) -> dict[str, Any]:
    """One row of the table."""
    import torch
    import transformers
    from trellm import Greedy, generate, models
    from trellm.engine.decode.requests import requests_of
    from trellm.engine.engine import Engine
    from trellm.engine.options import Options

    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()
    network.generation_config.eos_token_id = network.generation_config.pad_token_id = None
    model = models.transformers(network, tokenizer)
    generator = generate.text(model)
    pick = random.Random(1)
    words = [token for token in range(300, model.vocabulary.size - 300) if model.vocabulary.tokens[token]]
    texts = [[pick.choice(words) for _ in range(length)] for length in (40, *LENGTHS)]

    def ours(prompts: list[list[int]], wanted: list[int]) -> list[list[int]]:
        call_requests: list[Any] = []
        for prompt, count in zip(prompts, wanted, strict=True):
            options = Options(search=Greedy(), max_tokens=count, min_tokens=count, heal=False, draft=False)
            request = requests_of(model, [generator.job(" ")], options)[0]
            object.__setattr__(request.start, "prompt", tuple(prompt))
            call_requests.append(request)
        engine = Engine.of(model)
        call = engine.enter(call_requests, 8)
        while engine.step():
            pass
        return [list(call.outcomes[number].rows[0].tokens) for number in range(len(prompts))]

    def theirs(prompts: list[list[int]], wanted: list[int]) -> list[list[int]]:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        out = network.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=max(wanted), do_sample=False, pad_token_id=0,
            suppress_tokens=[0],
        )  # fmt: skip
        return [row[longest : longest + count].tolist() for row, count in zip(out, wanted, strict=True)]

    row: dict[str, Any] = {"model": name, "equal": ours(texts[:1], [64]) == theirs(texts[:1], [64])}
    for label, prompts, wanted in (("one", texts[:1], [64]), ("eight", texts[1:], WANTED)):
        times: dict[str, list[float]] = {"ours": [], "transformers": []}
        for _ in range(rounds + 1):
            for who, run in (("ours", ours), ("transformers", theirs)):
                begin = time.process_time()
                run(prompts, wanted)
                times[who].append(1e3 * (time.process_time() - begin) / sum(wanted))
        mine, other = (statistics.median(each[1:]) for each in times.values())
        row |= {f"{label} ms": mine, f"{label} transformers ms": other, f"{label} ratio": other / mine}
    return row


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    pin_to_one_core()
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.tokenizer)
    rows: list[dict[str, Any]] = []
    for name, config in configs(len(tokenizer), given.hidden, given.layers).items():
        if not given.only or name in given.only:
            rows.append(measured(name, config(), tokenizer, given.rounds))
            show(rows[-1:])
    show(rows)
    if given.save:
        save("models", rows, ["trellm", "transformers", "torch"], given.tokenizer)


if __name__ == "__main__":
    main()
