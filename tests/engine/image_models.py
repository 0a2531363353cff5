"""Small random image-text models of several architectures, with processors that are built from configurations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from warnings import catch_warnings

import numpy as np
import torch
import transformers as hub
from PIL import Image
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers.models.smolvlm import processing_smolvlm
from transformers.processing_utils import ProcessorMixin
from trellm import models

MARKS = ["<image>", "<begin>", "<end>", "<break>", "<video>", "<fake_token_around_image>", "<global-img>"]
CELLS = [f"<row_{row}_col_{column}>" for row in (1, 2, 3, 4) for column in (1, 2, 3, 4)]
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endif %} {% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
PARTS = TEMPLATE.replace("{% if message['content'] is string %}{{ message['content'] }}{% else %}", "").replace(
    "{% endfor %}{% endif %} ", "{% endfor %} "
)
"""A template that knows no contents but lists."""
TEXTS = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + ' ' }}{% endfor %}assistant:"
"""A template that knows no contents but texts."""
TEXT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "max_position_embeddings": 4096, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
    "initializer_range": 0.4,
}  # fmt: skip
SEEN = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "patch_size": 4}
BOTH = ["sliding_attention", "full_attention"]
AXES = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]}


def tokenizer_of(**special: str) -> Any:
    """Bytes, a few merges of blank lines, and marks of images."""
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ċ", "Ċ"), ("ĊĊ", "ĊĊ"), ("t", "h"), ("th", "e"), ("Ġ", "the")]
    tokens = ["<bos>", "<eos>", *characters, *(left + right for left, right in merges)]
    backend = Tokenizer(BPE({token: number for number, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    made = hub.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>", pad_token="<eos>", extra_special_tokens=special
    )
    made.add_tokens([*MARKS, *CELLS], special_tokens=True)
    return made


def _siglip(**more: Any) -> Any:
    return hub.SiglipVisionConfig(**{**SEEN, "image_size": 16, **more})


def _llava(tokenizer: Any) -> tuple[Any, Any]:
    size = {"height": 16, "width": 16}
    vision = hub.CLIPVisionConfig(**SEEN, image_size=16, projection_dim=16)
    processor = hub.LlavaProcessor(
        hub.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size=size), tokenizer, patch_size=4,
        vision_feature_select_strategy="default", num_additional_image_tokens=1,
    )  # fmt: skip
    text = hub.LlamaConfig(**TEXT, vocab_size=len(tokenizer))
    return hub.LlavaConfig(
        vision_config=vision, text_config=text, image_token_id=processor.image_token_id, vision_feature_layer=-2
    ), processor


def _llava_next(tokenizer: Any) -> tuple[Any, Any]:
    size, grids = {"height": 16, "width": 16}, [[16, 32], [32, 16], [32, 32]]
    vision = hub.CLIPVisionConfig(**SEEN, image_size=16, projection_dim=16)
    processor = hub.LlavaNextProcessor(
        hub.LlavaNextImageProcessorPil(size={"shortest_edge": 16}, crop_size=size, image_grid_pinpoints=grids),
        tokenizer, patch_size=4, vision_feature_select_strategy="default", num_additional_image_tokens=1,
    )  # fmt: skip
    text = hub.MistralConfig(**TEXT, vocab_size=len(tokenizer), sliding_window=None)
    config = hub.LlavaNextConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=processor.image_token_id,
        image_grid_pinpoints=grids,
        vision_feature_layer=-2,
    )
    return config, processor


def _llava_onevision(tokenizer: Any) -> tuple[Any, Any]:
    size, grids = {"height": 16, "width": 16}, [[16, 32], [32, 16], [32, 32], [48, 16]]
    processor = hub.LlavaOnevisionProcessor(
        hub.LlavaOnevisionImageProcessorPil(size=size, image_grid_pinpoints=grids), tokenizer, None,
        num_image_tokens=16, vision_feature_select_strategy="full",
    )  # fmt: skip
    config = hub.LlavaOnevisionConfig(
        vision_config=_siglip(vision_use_head=False), text_config=hub.Qwen2Config(**TEXT, vocab_size=len(tokenizer)),
        image_token_id=processor.image_token_id, video_token_id=processor.video_token_id, image_grid_pinpoints=grids,
        vision_feature_select_strategy="full", vision_feature_layer=-1,
    )  # fmt: skip
    return config, processor


def _idefics3(tokenizer: Any) -> tuple[Any, Any]:
    images = hub.Idefics3ImageProcessorPil(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    processor = hub.Idefics3Processor(images, tokenizer, image_seq_len=4)
    vision = {**SEEN, "image_size": 16}
    text = hub.LlamaConfig(**TEXT, vocab_size=len(tokenizer))
    return hub.Idefics3Config(
        vision_config=vision, text_config=text, scale_factor=2, image_token_id=processor.image_token_id
    ), processor


def _smolvlm(tokenizer: Any) -> tuple[Any, Any]:
    images = hub.SmolVLMImageProcessorPil(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    processor = hub.SmolVLMProcessor(images, tokenizer, None, image_seq_len=4)
    vision = {**SEEN, "image_size": 16}
    text = hub.LlamaConfig(**TEXT, vocab_size=len(tokenizer))
    return hub.SmolVLMConfig(
        vision_config=vision, text_config=text, scale_factor=2, image_token_id=processor.image_token_id
    ), processor


def _qwen(name: str, vision: dict[str, Any], patch: int) -> Callable[[Any], tuple[Any, Any]]:
    def make(tokenizer: Any) -> tuple[Any, Any]:
        images = hub.Qwen2VLImageProcessorPil(
            patch_size=patch, merge_size=2, temporal_patch_size=2,
            size={"shortest_edge": 16 * patch**2, "longest_edge": 100 * patch**2},
        )  # fmt: skip
        processor = getattr(hub, f"{name}Processor")(images, tokenizer, None)
        more = {"rope_parameters": AXES, "use_sliding_window": False} if "2" in name else {"rope_parameters": AXES}
        ids = {"image_token_id": processor.image_token_id, "video_token_id": tokenizer.convert_tokens_to_ids("<video>")}
        config = getattr(hub, f"{name}Config")(
            vision_config={**vision, "patch_size": patch}, text_config={**TEXT, **more, "vocab_size": len(tokenizer)},
            vision_start_token_id=tokenizer.convert_tokens_to_ids("<begin>"), **ids,
        )  # fmt: skip
        return config, processor

    return make


def _internvl(tokenizer: Any) -> tuple[Any, Any]:
    images = hub.GotOcr2ImageProcessorPil(size={"height": 16, "width": 16}, crop_to_patches=True, max_patches=4)
    processor = hub.InternVLProcessor(images, tokenizer, None, image_seq_length=4)
    vision = {**SEEN, "image_size": [16, 16], "patch_size": [4, 4]}
    text = hub.Qwen2Config(**TEXT, vocab_size=len(tokenizer))
    return hub.InternVLConfig(
        vision_config=vision, text_config=text, image_token_id=processor.image_token_id, downsample_ratio=0.5
    ), processor


def _mistral3(tokenizer: Any) -> tuple[Any, Any]:
    images = hub.PixtralImageProcessorPil(size={"longest_edge": 32}, patch_size={"height": 4, "width": 4})
    with patch("transformers.utils.is_vision_available", lambda: False):  # else it wants torchvision
        kind = import_module("transformers.models.pixtral.processing_pixtral").PixtralProcessor
    processor = kind(
        images, tokenizer, patch_size=4, spatial_merge_size=2, image_token="<image>", image_break_token="<break>",
        image_end_token="<end>",
    )  # fmt: skip
    vision = hub.PixtralVisionConfig(**SEEN, image_size=32, head_dim=8)
    text = hub.MistralConfig(**TEXT, vocab_size=len(tokenizer), sliding_window=None)
    config = hub.Mistral3Config(
        vision_config=vision,
        text_config=text,
        image_token_id=processor.image_token_id,
        spatial_merge_size=2,
        vision_feature_layer=-1,
    )
    return config, processor


def _gemma3(tokenizer: Any) -> tuple[Any, Any]:
    images = hub.Gemma3ImageProcessorPil(size={"height": 16, "width": 16})
    processor = hub.Gemma3Processor(images, tokenizer, image_seq_length=4)
    text = hub.Gemma3TextConfig(**TEXT, vocab_size=len(tokenizer), sliding_window=24, layer_types=BOTH,
                                query_pre_attn_scalar=8, tie_word_embeddings=False)  # fmt: skip
    config = hub.Gemma3Config(
        text_config=text, vision_config=_siglip(vision_use_head=False), mm_tokens_per_image=4,
        tie_word_embeddings=False, image_token_id=tokenizer.image_token_id,
        boi_token_index=tokenizer.boi_token_id, eoi_token_index=tokenizer.eoi_token_id,
    )  # fmt: skip
    return config, processor


def _paligemma(tokenizer: Any) -> tuple[Any, Any]:
    images = hub.SiglipImageProcessorPil(size={"height": 16, "width": 16})
    images.image_seq_length = 16
    processor = hub.PaliGemmaProcessor(images, tokenizer)
    text = hub.GemmaConfig(**TEXT, vocab_size=len(tokenizer), tie_word_embeddings=False)
    config = hub.PaliGemmaConfig(
        vision_config=_siglip(vision_use_head=False),
        text_config=text,
        image_token_id=processor.image_token_id,
        projection_dim=32,
        hidden_size=32,
        tie_word_embeddings=False,
    )
    return config, processor


FLAT = {"depth": 2, "hidden_size": 16, "num_heads": 2, "temporal_patch_size": 2, "spatial_merge_size": 2}
WINDOWS = {**FLAT, "out_hidden_size": 32, "intermediate_size": 24, "fullatt_block_indexes": [1], "window_size": 16}
DEEP = {**FLAT, "out_hidden_size": 32, "intermediate_size": 24, "deepstack_visual_indexes": [0, 1],
        "num_position_embeddings": 64}  # fmt: skip
OLD = {"depth": 2, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "temporal_patch_size": 2,
       "spatial_merge_size": 2}  # fmt: skip
MODELS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "llava": _llava,
    "llava_next": _llava_next,
    "llava_onevision": _llava_onevision,
    "idefics3": _idefics3,
    "smolvlm": _smolvlm,
    "qwen2_vl": _qwen("Qwen2VL", OLD, 4),
    "qwen2_5_vl": _qwen("Qwen2_5_VL", WINDOWS, 4),
    "qwen3_vl": _qwen("Qwen3VL", DEEP, 4),
    "internvl": _internvl,
    "mistral3": _mistral3,
    "gemma3": _gemma3,
    "paligemma": _paligemma,
}
_NAMED = {
    "qwen2_vl": {"image_token": "<image>", "video_token": "<video>"},
    "qwen2_5_vl": {"image_token": "<image>", "video_token": "<video>"},
    "qwen3_vl": {"image_token": "<image>", "video_token": "<video>", "vision_start_token": "<begin>",
                 "vision_end_token": "<end>"},
    "internvl": {"context_image_token": "<image>", "start_image_token": "<begin>", "end_image_token": "<end>",
                 "video_token": "<video>"},
    "gemma3": {"image_token": "<image>", "boi_token": "<begin>", "eoi_token": "<end>"},
}  # fmt: skip


def build(name: str, template: str | None = TEMPLATE) -> tuple[Any, Any]:
    """A random model and its processor, with a chat template; PaliGemma has none."""
    # What processors need for videos, torchvision and num2words, need not be there.
    with (
        patch.object(ProcessorMixin, "check_argument_for_proper_class", lambda self, name, given: type(given)),
        patch.object(processing_smolvlm, "num2words", str),
    ):
        config, processor = MODELS[name](tokenizer_of(**_NAMED.get(name, {})))
    torch.manual_seed(3)
    model = hub.AutoModelForImageTextToText.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    if name == "smolvlm":
        processor.video_processor = SimpleNamespace(num_frames=1, fps=1)
    if name != "paligemma" and template is not None:
        around = ("<begin>", "<end>") if name.startswith("qwen") else ("", "")
        processor.chat_template = template.replace("IMAGE", processor.image_token.join(around))
    return model, processor


def picture(width: int, height: int, seed: int = 0) -> Any:
    """An image of PIL's, of random colours in large squares."""
    pick = np.random.default_rng(seed)
    small = Image.fromarray(pick.integers(0, 256, (5, 4, 3), np.uint8))
    return small.resize((width, height), Image.Resampling.NEAREST)


def expected(model: Any, processor: Any, chat: Any, tokens: int, beams: int = 1) -> list[int]:
    """What transformers' own `generate` makes of a chat, or of a text with images beside it."""
    if isinstance(chat, tuple):
        text, images = chat
        with catch_warnings(action="ignore", category=DeprecationWarning):  # PaliGemma's, about NumPy
            read = processor(images=images, text=text, return_tensors="pt")
    else:
        read = processor.apply_chat_template(
            chat, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
        )
    made = model.generate(**read, max_new_tokens=tokens, do_sample=False, num_beams=beams)
    return made[0, read["input_ids"].shape[1] :].tolist()


Loaded = Callable[[str], tuple[Any, Any, Any]]
"""A model and processor of transformers, and the model in our hands, by name."""


def loaded(build_one: Callable[[str], tuple[Any, Any]]) -> Loaded:
    """Models that are built when they are first asked for, and kept as long as this is."""

    @cache
    def load(name: str) -> tuple[Any, Any, Any]:
        model, processor = build_one(name)
        return model, processor, models.transformers(model, processor)

    return load
