"""Images in prompts: how many a second, beside transformers' own `generate`; and how quick text behind one is.

A small random LLaVA with images of 112 x 112 pixels (64 patches) and one thread. Seconds are of the processor's time in
this process, the best of several rounds that take turns, so that what else runs on the machine counts little.

    python benchmarks/images.py
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from time import process_time
from typing import Any

from recording import pin_to_one_core, save, show

ROUNDS = 5
SEVERAL = 8
SIDE, PATCH = 112, 14
WRITTEN = 64
QUESTION = "What is it?"
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %} {% endfor %}assistant:"
)


def built() -> tuple[Any, Any]:
    """A model and its processor."""
    import torch
    import transformers as hub
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(BPE({token: n for n, token in enumerate(["<bos>", "<eos>", "<image>", *characters])}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = hub.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>", pad_token="<eos>", padding_side="left",
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    processor = hub.LlavaProcessor(
        hub.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}), tokenizer,
        patch_size=PATCH, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )  # fmt: skip
    vision = hub.CLIPVisionConfig(
        hidden_size=192, num_hidden_layers=8, num_attention_heads=6, intermediate_size=768, patch_size=PATCH,
        image_size=SIDE, projection_dim=192,
    )  # fmt: skip
    text = hub.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=192, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=6,
        intermediate_size=512, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1, pad_token_id=1,
        initializer_range=0.1,
    )  # fmt: skip
    torch.manual_seed(0)
    config = hub.LlavaConfig(vision_config=vision, text_config=text, image_token_id=2, vision_feature_layer=-2)
    return hub.LlavaForConditionalGeneration(config).eval(), processor


class Bench:
    """Both, and images of which none was there before."""

    def __init__(self) -> None:
        import numpy as np
        from trellm import generate, models

        self.model, self.processor = built()
        self.ours = models.transformers(self.model, self.processor)
        self.text = generate.text(self.ours)
        self._pick = np.random.default_rng(0)

    def images(self) -> list[Any]:
        """Images of one size."""
        from PIL import Image

        pixels = self._pick.integers(0, 256, (SEVERAL, 160, 200, 3), "uint8")
        return [Image.fromarray(each) for each in pixels]

    def alone(self) -> tuple[float, float]:
        """Prompts with an image each, one after the other, one token behind each: theirs, ours."""
        theirs = seconds(lambda images: [self._generate([image], 1) for image in images], self.images())
        ours = seconds(lambda images: [self.text([image, QUESTION], max_tokens=1) for image in images], self.images())
        return theirs, ours

    def together(self) -> tuple[float, float]:
        """The same at once; theirs as one batch."""
        theirs = seconds(lambda images: self._generate(images, 1), self.images())
        ours = seconds(lambda images: self.text([[image, QUESTION] for image in images], max_tokens=1), self.images())
        return theirs, ours

    def again(self) -> tuple[float, float]:
        """Questions about one image."""
        one = self.images()[0]
        questions = [f"{QUESTION} {number}" for number in range(SEVERAL)]
        theirs = seconds(lambda image: [self._generate([image], 1) for _ in questions], one)
        ours = seconds(lambda image: self.text([[image, each] for each in questions], max_tokens=1), one)
        return theirs, ours

    def vision(self) -> tuple[float, float]:
        """The vision part alone, of images that are read by the processor: one after the other, and as one batch."""
        import torch

        pixels = self.processor.image_processor(images=self.images(), return_tensors="pt")["pixel_values"]
        read = torch.inference_mode()(self.model.model.get_image_features)
        one = seconds(lambda given: [read(each[None]) for each in given], pixels)
        return one, seconds(read, pixels)

    def decoding(self) -> tuple[float, float]:
        """Tokens behind a prompt of text, and behind one of as many tokens with an image."""
        image = self.images()[0]
        words = "x" * (self.text.run([image, QUESTION], max_tokens=1).image_tokens) + QUESTION
        prompts: list[Any] = [[{"role": "user", "content": [{"type": "text", "text": words}]}], [image, QUESTION]]
        found: list[float] = []
        for prompt in prompts:
            self.text(prompt, max_tokens=1)
            short, long = (
                min(seconds(lambda asked, n=n: self.text(asked, max_tokens=n, min_tokens=n, draft=False), prompt)
                    for _ in range(3)) for n in (1, WRITTEN)
            )  # fmt: skip
            found.append(long - short)
        return found[0], found[1]

    def _generate(self, images: list[Any], tokens: int) -> Any:
        asked = [f"<bos>user: <image>{QUESTION} assistant:"] * len(images)
        read = self.processor(images=images, text=asked, return_tensors="pt", padding=True)
        return self.model.generate(**read, max_new_tokens=tokens, do_sample=False)


def seconds(work: Callable[[Any], Any], given: Any) -> float:
    """The processor's time that some work takes."""
    begin = process_time()
    work(given)
    return process_time() - begin


def main() -> None:
    """Measure, show and save."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    pin_to_one_core()
    warnings.simplefilter("ignore")
    bench = Bench()
    measured: dict[str, tuple[Callable[[], tuple[float, float]], int, str, str]] = {
        f"{SEVERAL} prompts, one after the other": (bench.alone, SEVERAL, "generate", "trellm"),
        f"{SEVERAL} prompts at once": (bench.together, SEVERAL, "generate, one batch", "trellm"),
        f"{SEVERAL} questions about one image": (bench.again, SEVERAL, "generate", "trellm"),
        f"vision part of {SEVERAL} images": (bench.vision, SEVERAL, "one after the other", "one batch"),
        f"{WRITTEN - 1} tokens": (bench.decoding, WRITTEN - 1, "behind text", "behind an image"),
    }
    best: dict[str, list[float]] = {}
    for number in range(ROUNDS + 1):
        for name, (work, *_) in measured.items():
            taken = work()
            if number:  # the first round makes what is made once
                best[name] = [min(pair) for pair in zip(best.get(name, taken), taken, strict=True)]
    first, at_once = list(measured)[:2]
    measured[f"{at_once}, beside one after the other"] = measured[at_once][0], SEVERAL, "generate", "trellm"
    best[f"{at_once}, beside one after the other"] = [best[first][0], best[at_once][1]]
    rows: list[dict[str, Any]] = []
    for name, (_, count, beside, here) in measured.items():
        before, now = best[name]
        rows.append({
            "what": name, "beside": beside, "here": here, "beside a second": round(count / before, 1),
            "here a second": round(count / now, 1), "times": round(before / now, 2),
        })  # fmt: skip
    show(rows)
    save("images", rows, ["trellm", "transformers", "torch", "numba", "pillow"])


if __name__ == "__main__":
    main()
