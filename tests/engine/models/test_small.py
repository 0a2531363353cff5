"""The small model in the package: what it writes, letter for letter, and that other libraries can load it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trellm import Beam, generate, models
from trellm.cli.demo import CALL, MOODS, ORDER, PASSAGE, TOOLS

FOLDER = Path(models.__file__).with_name("small")


@pytest.fixture(scope="module")
def model() -> Any:
    return models.small()


def test_it_is_small_and_complete() -> None:
    names = {file.name for file in FOLDER.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 8_000_000


def test_transformers_loads_it_and_writes_the_same(model: Any) -> None:
    loader: Any = AutoModelForCausalLM
    loaded = loader.from_pretrained(str(FOLDER), dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(FOLDER))
    assert 2_000_000 <= sum(weight.numel() for weight in loaded.parameters()) <= 3_800_000
    prompt = "What is 47 + 38?\n"
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    found = loaded.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=60, do_sample=False)
    expected = tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True)
    assert generate.text(model)(prompt, max_tokens=60) == expected


def test_a_record(model: Any) -> None:
    shown = ", ".join(f"{name} ({field.get('format', field['type'])})" for name, field in ORDER["properties"].items())
    prompt = f"{PASSAGE}\n\nExtract the data from this text as JSON.\nFields: {shown}\nJSON:\n"
    assert generate.json(model, ORDER)(prompt) == {
        "buyer": "Brela Stonkard",
        "product": "copper kettle",
        "count": 12,
        "price": 1250.5,
        "order_date": "2021-03-03",
        "paid": False,
    }
    assert json.loads(generate.text(model)(prompt, max_tokens=120))["buyer"] == "Brela Stonkard"


def test_quotations(model: Any) -> None:
    asked = {
        "Who sold it?": "Velmor Trading",
        "Where was the parcel sent?": "Marlhaven",
        "How much did it cost?": "$1,250.50",
        "When was the order placed?": "3 March 2021",
    }
    prompts = [f"{PASSAGE}\n\n{question} Quote the text.\nAnswer: " for question in asked]
    spans = generate.extract(model, PASSAGE)(prompts)
    assert [span.text for span in spans] == list(asked.values())
    assert [PASSAGE[span.start : span.end] for span in spans] == list(asked.values())


def test_healing_ends_the_word_that_was_begun(model: Any) -> None:
    text = generate.text(model)
    begun = {"The seat has been booked in adv": "ance", "The meeting was held in the boa": "rdroom"}
    for prompt, rest in begun.items():
        assert text(prompt, max_tokens=8, stop=".").startswith(rest)
        assert not text(prompt, max_tokens=8, stop=".", heal=False).startswith(rest)


def test_a_choice(model: Any) -> None:
    prompt = f"{PASSAGE}\n\nWhat is the mood of the text? Choose one: {', '.join(MOODS)}.\nAnswer: "
    assert generate.choice(model, MOODS)(prompt) == "joyful"
    beams = generate.choice(model, MOODS)(prompt, search=Beam(5, n=5))
    assert beams[0] == "joyful" and sorted(beams) == MOODS


@pytest.mark.parametrize(
    ("written", "pattern", "expected"),
    [
        ("Write the 3rd of September 2024 as YYYY-MM-DD.", r"\d{4}-\d{2}-\d{2}", "2024-09-03"),
        ("Convert a quarter past four in the afternoon into HH:MM.", r"\d{2}:\d{2}", "16:15"),
        ("Write twelve thousand and forty as digits.", r"\d{1,6}", "12040"),
    ],
)
def test_normal_forms(model: Any, written: str, pattern: str, expected: str) -> None:
    assert generate.regex(model, pattern)(f"{written}\nAnswer:\n") == expected


def test_a_call_of_a_tool(model: Any) -> None:
    messages = [{"role": "user", "content": "Will it rain in Marlhaven on June 10, 2024?"}]
    expected = {"name": "get_weather", "arguments": {"city": "Marlhaven", "date": "2024-06-10"}}
    assert generate.json(model, CALL)(messages, tools=TOOLS) == expected


def test_a_sum_after_a_thought(model: Any) -> None:
    text = generate.text(model)("What is 47 + 38?\n", max_tokens=60)
    assert re.fullmatch(r"<think>.*</think>85", text)
    assert generate.regex(model, r"\d{1,4}", after="</think>", thinking=60)("What is 47 + 38?\n") == "85"
