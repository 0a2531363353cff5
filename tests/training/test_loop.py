"""The loop: packing, the tokenizer's folder, and that a training that was broken off goes on as if it had not been."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from .support import (
    ANSWER,
    END,
    GIVEN,
    ROWS,
    STOP,
    Plan,
    Training,
    batches,
    chat_prompt,
    chunk,
    documents,
    held_out_task,
    messages_of,
    tokenizers,
    tool_task,
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizers.train(600, 1, 200)


def test_rows_are_whole_documents(tokenizer: Any) -> None:
    ids, kinds = chunk(tokenizer, 1, 0, 256)
    assert ids.shape == kinds.shape == (ROWS, 256)
    assert (kinds > 0).mean() > 0.8
    ends = {tokenizer.token_to_id(END), tokenizer.token_to_id(STOP)}
    for row, marks in zip(ids, kinds, strict=True):
        size = int((marks > 0).sum())
        assert (marks[:size] > 0).all() and not marks[size:].any()
        assert int(row[size - 1]) in ends and marks[size - 1] == ANSWER
    assert (kinds == GIVEN).any()


def test_long_documents_have_rows_of_double_length() -> None:
    """Documents of one token each, that is the document's length."""
    sizes = np.random.default_rng(1)
    several = iter(lambda: [([size] * size, [ANSWER] * size) for size in sizes.integers(20, 500, ROWS).tolist()], None)
    found = [batches.packed(several, number, 256, 0) for number in (7, 8)]
    assert [ids.shape for ids, _ in found] == [(ROWS // 2, 512), (ROWS, 256)]
    assert (found[0][0][:, 0] > 256).all() and (found[1][0] <= 256).all()
    for ids, kinds in found:
        assert (kinds > 0).mean() > 0.9
        for row, marks in zip(ids, kinds, strict=True):
            at = 0
            while at < len(row) and marks[at]:
                assert (row[at : at + row[at]] == row[at]).all(), "each in one piece"
                at += int(row[at])
    assert [batches.shape(number, 1024) for number in (7, 8)] == 2 * [(ROWS, 1024)], "the context has no room"


def test_a_chunk_depends_on_seed_and_number_alone(tokenizer: Any) -> None:
    first, again, other = (chunk(tokenizer, 1, number, 128)[0] for number in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_text_survives_its_tokens(tokenizer: Any) -> None:
    random = Random(1)
    for text in [
        "Zoë paid 1,250.50 € – 北京\n\n  twice\t!",
        *(held_out_task(random, "record").passage for _ in range(20)),
    ]:
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_names_and_numbers_are_the_same_tokens_everywhere(tokenizer: Any) -> None:
    inside = tokenizer.encode("It was Tarovin, 1987.").tokens
    quoted = tokenizer.encode('{"Tarovin": 1987}').tokens
    name, year = tokenizer.encode("Tarovin").tokens, list("1987")
    for tokens in (inside, quoted):
        for part in (name, year):
            assert any(tokens[at : at + len(part)] == part for at in range(len(tokens)))


def test_the_chat_template_is_what_training_reads(tokenizer: Any, tmp_path: Path) -> None:
    tokenizers.save(tokenizer, tmp_path, 1024)
    loaded: Any = AutoTokenizer.from_pretrained(str(tmp_path))
    random = Random(2)
    for number in range(10):
        task = tool_task(random, False) if number % 2 else held_out_task(random, "quotation")
        messages = messages_of(task, "Answer briefly." if number % 3 else "")
        made = loaded.apply_chat_template(messages, tools=task.tools, tokenize=False, add_generation_prompt=True)
        assert made == chat_prompt(messages, task.tools)
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "tool", "content": "{}"}]
    made = loaded.apply_chat_template(talk, tokenize=False)
    assert made == "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in talk)
    ids = loaded(documents.START).input_ids
    assert len(ids) == 1


PLAN = Plan(
    *(Path(), Path()),
    **{"steps": 4, "vocabulary": 400, "documents": 40, "width": 32, "layers": 1, "length": 64, "batch": 1024},
    **{"part": 1024, "warmup": 2, "workers": 1, "validation": 1},
)


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).named_parameters())


def test_resuming_changes_nothing(tmp_path: Path) -> None:
    whole, broken = (replace(PLAN, out=tmp_path / name, checkpoint=tmp_path / name / "c") for name in ("a", "b"))
    Training(whole).run()
    training = Training(broken)
    while training.step < 2:
        training.advance()
    training.checkpoint()
    training.workers.close()
    Training(broken).run()
    expected, found = _weights(whole.out), _weights(broken.out)
    assert all(torch.equal(weight, found[name]) for name, weight in expected.items())
    record = json.loads((whole.out / "training.json").read_text())
    assert record["steps"] == 4 and set(record["validation"].values()) <= {0.0, 1.0}
    with (whole.out / "loss.csv").open() as file:
        assert float(next(csv.DictReader(file))["loss"]) == pytest.approx(np.log(400), rel=0.1)
    assert (whole.out / "loss.svg").read_text().startswith("<svg")
