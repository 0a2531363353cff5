"""A Llama model with random weights as a GGUF file, some kilobytes long, written by the `gguf` package."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

MERGES = ["t h", "th e", "Ġ the", "o n", "1 2", '" :', '" ,', "t r", "tr u", "tru e", "Ġ 1"]
NORMAL, CONTROL, UNUSED = 1, 3, 5
HIDDEN, HEADS, INNER = 32, 4, 64


def write_model(path: Path, seed: int = 0, tokens: int = 300) -> None:
    """A model of bytes and some merges; the last tokens are BOS, EOS, and an end of turn that no field names."""
    gguf = import_module("gguf")
    texts = [*map(bytes_to_unicode().get, range(256)), *(merge.replace(" ", "") for merge in MERGES)]
    kinds = [NORMAL] * len(texts)
    unused = tokens - 3 - len(texts)
    texts += [f"[unused{number}]" for number in range(unused)]
    texts += ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    kinds += [UNUSED] * unused + [CONTROL] * 3
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(tokens - 3)
    writer.add_eos_token_id(tokens - 2)
    random = np.random.default_rng(seed)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.normal(0, 0.4, shape).astype(np.float32))

    add("token_embd.weight", tokens, HIDDEN)
    add("output.weight", tokens, HIDDEN)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.0.{name}.weight", HIDDEN, HIDDEN)
    add("blk.0.ffn_gate.weight", INNER, HIDDEN)
    add("blk.0.ffn_up.weight", INNER, HIDDEN)
    add("blk.0.ffn_down.weight", HIDDEN, INNER)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
