"""Log-probabilities of prompts: `prompt_logprobs` as vLLM has it, and `echo` with `logprobs` of OpenAI's older API."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .conftest import Running

PROMPT = "Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n"
CHAT: list[Any] = [{"role": "user", "content": "Convert a quarter past four in the afternoon into HH:MM."}]


def logprobs_of(model: Any, ids: list[int]) -> torch.Tensor:
    """What transformers says of each token behind those before it, [len(ids) - 1, V]."""
    with torch.inference_mode():
        return torch.log_softmax(model.model(torch.tensor([ids])).logits[0, :-1], -1)


def check(told: list[Any], ids: list[int], scores: torch.Tensor, k: int) -> None:
    """Compare the log-probabilities of a prompt with those of transformers."""
    assert told[0] is None and len(told) == len(ids)
    for token, row, each in zip(ids[1:], scores, told[1:], strict=True):
        own = each[str(token)]
        assert own["logprob"] == pytest.approx(row[token].item(), abs=1e-3)
        assert own["rank"] == int((row > row[token]).sum()) + 1
        best = row.topk(k).indices.tolist()
        assert {*each} == {str(token), *map(str, best)}
        assert [each[str(other)]["rank"] for other in best] == list(range(1, k + 1))


@pytest.mark.parametrize("k", [0, 3])
def test_prompt_logprobs_of_a_completion(server: Running, model: Any, k: int) -> None:
    ids = server.post("/tokenize", {"prompt": PROMPT}).json()["tokens"]
    scores = logprobs_of(model, ids)
    answer = server.client.completions.create(
        model="small", prompt=PROMPT, temperature=0, max_tokens=4, extra_body={"prompt_logprobs": k}
    )
    choice = answer.choices[0].model_dump()
    assert choice["text"] == "1969" and choice["logprobs"] is None
    check(choice["prompt_logprobs"], ids, scores, k)
    names = [next(each["decoded_token"] for token, each in one.items() if token == str(name))
             for one, name in zip(choice["prompt_logprobs"][1:], ids[1:], strict=True)]  # fmt: skip
    assert PROMPT.endswith("".join(names))
    both = server.complete([ids, ids], max_tokens=0, prompt_logprobs=k)
    assert [each["text"] for each in both["choices"]] == ["", ""]
    for each in both["choices"]:
        check(each["prompt_logprobs"], ids, scores, k)
    assert both["usage"]["completion_tokens"] == 0 and both["usage"]["prompt_tokens"] == 2 * len(ids)


def test_prompt_logprobs_of_a_chat(server: Running, model: Any) -> None:
    ids = server.post("/tokenize", {"messages": CHAT}).json()["tokens"]
    for body in ({}, {"n": 2, "temperature": 1}, {"regex": r"\d\d:\d\d"}):
        answer = server.post(
            "/v1/chat/completions", {"model": "small", "messages": CHAT, "temperature": 0, "prompt_logprobs": 2, **body}
        ).json()
        check(answer["prompt_logprobs"], ids, logprobs_of(model, ids), 2)
        assert "prompt_logprobs" not in answer["choices"][0]
        assert answer["choices"][0]["message"]["content"] == "16:15" or body
    plain = server.post("/v1/chat/completions", {"model": "small", "messages": CHAT, "max_tokens": 1}).json()
    assert "prompt_logprobs" not in plain


@pytest.mark.parametrize("most", [0, 1, 6])
def test_echo_with_logprobs(server: Running, model: Any, most: int) -> None:
    ids = server.post("/tokenize", {"prompt": PROMPT}).json()["tokens"]
    answer = server.client.completions.create(
        model="small", prompt=PROMPT, echo=True, logprobs=2, max_tokens=most, temperature=0
    )
    choice = answer.choices[0]
    assert choice.text == PROMPT + "1969-07-20"[: len(choice.text) - len(PROMPT)]
    said: Any = choice.logprobs
    assert len(said.tokens) == len(said.token_logprobs) == len(said.top_logprobs) == len(said.text_offset)
    assert said.token_logprobs[0] is None and said.top_logprobs[0] is None
    found = said.token_logprobs[1 : len(ids)]
    wanted = [row[token].item() for row, token in zip(logprobs_of(model, ids), ids[1:], strict=True)]
    assert found == pytest.approx(wanted, abs=1e-3)
    for at, token in zip(said.text_offset, said.tokens, strict=True):
        assert choice.text[at : at + len(token)] == token
    assert all(len(each) == 2 for each in said.top_logprobs[1:])
    assert "prompt_logprobs" not in choice.model_dump()


def test_what_evaluation_harnesses_read(server: Running, model: Any) -> None:
    """Of token ids, a context and how it goes on, with one token more: the sum, and whether greedy search writes it."""
    context, going_on = (server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in (PROMPT, "1969"))
    for end in (going_on, going_on[::-1]):
        ids = context + end
        choice = server.complete([ids], max_tokens=1, logprobs=1, echo=True, seed=1234)["choices"][0]["logprobs"]
        tokens, tops = (choice[name][len(context) : -1] for name in ("token_logprobs", "top_logprobs"))
        rows = logprobs_of(model, ids)[len(context) - 1 :]
        wanted = sum(row[token].item() for row, token in zip(rows, end, strict=True))
        assert sum(tokens) == pytest.approx(wanted, abs=1e-3)
        is_greedy = all(token == max(top.values()) for token, top in zip(tokens, tops, strict=True))
        assert is_greedy == all(int(row.argmax()) == token for row, token in zip(rows, end, strict=True))
    assert not is_greedy


def test_what_was_read_is_echoed_with_its_scores(server: Running) -> None:
    """A prompt that was cut, and one behind which a frame stands; both fields at once; several texts of a prompt."""
    ids = server.post("/tokenize", {"prompt": PROMPT}).json()["tokens"]
    text = server.post("/detokenize", {"tokens": ids[-3:]}).json()["prompt"]
    said = server.complete(PROMPT, truncate_prompt_tokens=3, echo=True, logprobs=0, max_tokens=0)["choices"][0]
    assert said["text"] == text and len(said["logprobs"]["tokens"]) == 3 and said["logprobs"]["top_logprobs"] is None
    long = server.complete("word " * 2000, truncate_prompt_tokens=-1, prompt_logprobs=0, max_tokens=0)
    assert len(long["choices"][0]["prompt_logprobs"]) == 1024
    framed = server.complete(PROMPT, trellm={"frame": ["The day is ", "."]}, echo=True, logprobs=1, max_tokens=2)
    assert framed["choices"][0]["text"].startswith(f"{PROMPT}The day is ")
    both = server.complete(PROMPT, echo=True, logprobs=1, prompt_logprobs=4, max_tokens=1, n=2, temperature=1)
    for choice in both["choices"]:
        assert {len(each) for each in choice["logprobs"]["top_logprobs"][1 : len(ids)]} == {1}
        assert all(len(each) in (4, 5) for each in choice["prompt_logprobs"][1:])
    best = server.complete(PROMPT, echo=True, logprobs=1, best_of=2, max_tokens=3, temperature=1)["choices"][0]
    assert best["text"].startswith(PROMPT) and best["logprobs"]["token_logprobs"][0] is None


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/completions", {"prompt": "a", "prompt_logprobs": 21}, "less than or equal to 20"),
        ("/v1/completions", {"prompt": "a", "prompt_logprobs": -1}, "greater than or equal to 0"),
        ("/v1/completions", {"prompt": "a", "prompt_logprobs": 1, "stream": True}, "leave out stream"),
        ("/v1/completions", {"prompt": "a", "echo": True, "logprobs": 1, "stream": True}, "leave out stream"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}, "max_tokens=0 needs prompt_logprobs"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0, "echo": True}, "max_tokens=0 needs prompt_logprobs"),
        ("/v1/completions", {"prompt": "a", "prompt_logprobs": 1, "trellm": {"beams": 2}}, "prompt_logprobs=1 with"),
        ("/v1/chat/completions", {"messages": CHAT, "prompt_logprobs": 1, "max_tokens": 0}, "greater than or equal"),
        ("/v1/responses", {"input": "a", "prompt_logprobs": 1}, "and /v1/completions have it"),
    ],
)
def test_mistakes(server: Running, path: str, body: dict[str, Any], said: str) -> None:
    assert said in server.error(path, {"model": "small", **body})["message"]
