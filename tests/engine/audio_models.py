"""Small random models of several architectures that read audio, with processors that are built from configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers as hub
from trellm import Audio

from .image_models import TEMPLATE, TEXT, tokenizer_of

RATE = 16_000
HEARD = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
"""A second has 100 frames for the encoder, of which it makes 50 positions."""
_NAMED = {"audio_token": "<image>", "audio_bos_token": "<begin>", "audio_eos_token": "<end>"}


def _extractor(kind: Any, window: int) -> Any:
    more = {"min_length": 3200} if kind is hub.Qwen3ASRFeatureExtractor else {}
    return kind(chunk_length=window, feature_size=8, **more)


def _flamingo(tokenizer: Any) -> tuple[Any, Any]:
    processor = hub.AudioFlamingo3Processor(
        _extractor(hub.WhisperFeatureExtractor, 1), tokenizer, audio_token="<image>", max_audio_len=4
    )
    return hub.AudioFlamingo3Config(
        audio_config={**HEARD, "num_mel_bins": 8, "max_source_positions": 50},
        text_config=hub.Qwen2Config(**TEXT, vocab_size=len(tokenizer)), audio_token_id=processor.audio_token_id,
    ), processor  # fmt: skip


def _glmasr(tokenizer: Any) -> tuple[Any, Any]:
    processor = hub.GlmAsrProcessor(
        _extractor(hub.WhisperFeatureExtractor, 2), tokenizer, audio_token="<image>", max_audio_len=4
    )
    return hub.GlmAsrConfig(
        audio_config={**HEARD, "num_mel_bins": 8, "max_position_embeddings": 100},
        text_config={"model_type": "llama", **TEXT, "vocab_size": len(tokenizer)},
        audio_token_id=processor.audio_token_id, tie_word_embeddings=False,
    ), processor  # fmt: skip


def _qwen2_audio(tokenizer: Any) -> tuple[Any, Any]:
    processor = hub.Qwen2AudioProcessor(_extractor(hub.WhisperFeatureExtractor, 2), tokenizer)
    audio = {"d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24}
    return hub.Qwen2AudioConfig(
        audio_config={"model_type": "qwen2_audio_encoder", **audio, "num_mel_bins": 8, "max_source_positions": 100},
        text_config=hub.Qwen2Config(**TEXT, vocab_size=len(tokenizer)), audio_token_index=processor.audio_token_id,
    ), processor  # fmt: skip


def _qwen3_asr(tokenizer: Any) -> tuple[Any, Any]:
    processor = hub.Qwen3ASRProcessor(_extractor(hub.Qwen3ASRFeatureExtractor, 1), tokenizer)
    audio = {"d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24}
    return hub.Qwen3ASRConfig(
        audio_config={
            "model_type": "qwen3_asr_encoder", **audio, "num_mel_bins": 8, "output_dim": 32,
            "downsample_hidden_size": 4,
        },
        text_config={"model_type": "qwen3", **TEXT, "vocab_size": len(tokenizer)},
        audio_token_id=processor.audio_token_id, tie_word_embeddings=False,
        eos_token_id=1, pad_token_id=1,
    ), processor  # fmt: skip


MODELS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "audioflamingo3": _flamingo,
    "glmasr": _glmasr,
    "qwen2_audio": _qwen2_audio,
    "qwen3_asr": _qwen3_asr,
}


def build(name: str, template: str | None = TEMPLATE) -> tuple[Any, Any]:
    """A random model and its processor, with a chat template."""
    config, processor = MODELS[name](tokenizer_of(**_NAMED))
    torch.manual_seed(3)
    model = hub.AutoModelForSeq2SeqLM.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    if template is not None:
        processor.chat_template = template.replace("'image'", "'audio'").replace("IMAGE", "<begin><image><end>")
    return model, processor


def sound(seconds: float, seed: int = 0, rate: int = RATE) -> Audio:
    """Audio of some tones and noise."""
    pick = np.random.default_rng(seed)
    at = np.arange(round(seconds * rate)) / rate
    tones = sum(np.sin(2 * np.pi * pick.uniform(30, 900) * at) for _ in range(4))
    return Audio((tones / 8 + pick.uniform(-0.1, 0.1, len(at))).astype(np.float32), rate)


def expected(model: Any, processor: Any, chat: Any, tokens: int, beams: int = 1) -> list[int]:
    """What transformers' own `generate` makes of a chat whose audio is at the model's rate."""
    parts = [part for message in chat for part in message["content"] if part["type"] == "audio"]
    plain = [
        {**message, "content": [{"type": "audio"} if part["type"] == "audio" else part for part in message["content"]]}
        for message in chat
    ]
    text = processor.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
    audio = [part["audio"].samples for part in parts]
    # Processors that want one clip a text nevertheless make the same of several.
    with patch.object(type(processor), "validate_inputs", lambda self, **given: None):
        read = processor(text=[text], audio=audio or None, return_tensors="pt")
    made = model.generate(**read, max_new_tokens=tokens, do_sample=False, num_beams=beams)
    return made[0, read["input_ids"].shape[1] :].tolist()
