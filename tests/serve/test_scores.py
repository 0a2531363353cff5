"""Log-probabilities, biases and penalties."""

import math
from typing import Any

import pytest
from trellm import generate, models

from .conftest import Running

PROMPT = "Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n"
CHAT: list[Any] = [{"role": "user", "content": "Convert a quarter past four in the afternoon into HH:MM."}]


def test_scores_of_a_chat(server: Running) -> None:
    answer = server.client.chat.completions.create(
        model="small", messages=CHAT, temperature=0, logprobs=True, top_logprobs=3
    )
    scores = answer.choices[0].logprobs
    assert scores is not None and scores.content is not None
    assert "".join(each.token for each in scores.content) == "16:15"
    for each in scores.content:
        assert each.bytes == list(each.token.encode())
        assert len(each.top_logprobs) == 3
        assert each.top_logprobs[0].token == each.token  # the likeliest was taken
        assert each.top_logprobs[0].logprob == pytest.approx(each.logprob)
        assert sum(math.exp(top.logprob) for top in each.top_logprobs) <= 1.0001
    body = {"model": "small", "messages": CHAT, "temperature": 0, "logprobs": True}
    events = server.events("/v1/chat/completions", body)
    streamed = [each for event in events for each in (event["choices"][0]["logprobs"] or {}).get("content", ())]
    assert [each["token"] for each in streamed] == [each.token for each in scores.content]
    assert [each["logprob"] for each in streamed] == pytest.approx([each.logprob for each in scores.content], abs=1e-4)


def test_scores_of_a_completion(server: Running) -> None:
    scores = server.complete(PROMPT, logprobs=2, max_tokens=6, trellm={"heal": False})["choices"][0]["logprobs"]
    text = "".join(scores["tokens"])
    assert text.startswith("1969")
    assert [text[at : at + len(token)] for at, token in zip(scores["text_offset"], scores["tokens"], strict=True)] == (
        scores["tokens"]
    )
    assert all(len(top) == 2 for top in scores["top_logprobs"])
    events = server.events(
        "/v1/completions", {"model": "small", "prompt": PROMPT, "temperature": 0, "logprobs": 0, "max_tokens": 6}
    )
    several = [event["choices"][0]["logprobs"] for event in events if event["choices"][0]["logprobs"]]
    assert [at for each in several for at in each["text_offset"]] == scores["text_offset"]


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        ({"prompt": PROMPT, "regex": "é→x"}, [0, 0, 1, 1, 1, 2]),
        (
            {"prompt": "The bill has been pai", "max_tokens": 4},
            None,
        ),  # whose first token is the end of the prompt as well
    ],
    ids=["characters of several tokens", "healed"],
)
def test_where_tokens_begin(server: Running, body: dict[str, Any], offsets: list[int] | None) -> None:
    choice = server.complete(logprobs=0, **body)["choices"][0]
    found, tokens, text = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"], choice["text"]
    if offsets is None:
        ends = [*found[1:], len(text)]
        assert text.startswith(tokens[0][-ends[0] :]) and len(tokens[0]) > ends[0]
        assert [text[begin:end] for begin, end in zip(found[1:], ends[1:], strict=True)] == tokens[1:]
    else:
        assert found == offsets
    events = server.events("/v1/completions", {"model": "small", "temperature": 0, "logprobs": 0, **body})
    several = [event["choices"][0]["logprobs"] for event in events if event["choices"][0]["logprobs"]]
    assert [at for each in several for at in each["text_offset"]] == found


def test_special_tokens_have_their_names_and_no_bytes(server: Running, model: models.Model) -> None:
    """As OpenAI and vLLM show them: where a grammar has one, where one might have come, and in prompts."""
    grammar = 'start: "a" <|im_start|> "b"'
    choice = server.complete("Write.", grammar=grammar, logprobs=3, max_tokens=9)["choices"][0]
    assert choice["text"] == "ab" and choice["logprobs"]["tokens"] == ["a", "<|im_start|>", "b"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1]
    body = {"model": "small", "messages": CHAT, "temperature": 0, "grammar": grammar, "logprobs": True}
    body |= {"top_logprobs": 20, "max_tokens": 9, "prompt_logprobs": 1}
    answer = server.post("/v1/chat/completions", body).json()
    content = answer["choices"][0]["logprobs"]["content"]
    assert [(each["token"], each["bytes"] is None) for each in content] == [
        ("a", False), ("<|im_start|>", True), ("b", False)
    ]  # fmt: skip
    names = model.vocabulary.added_tokens
    bare = {top["token"] for each in content for top in each["top_logprobs"] if top["bytes"] is None}
    assert "" not in bare and bare <= names.keys()
    told = [each["decoded_token"] for one in answer["prompt_logprobs"][1:] for each in one.values()]
    assert "<|im_end|>" in told and "" not in told


def test_biases(server: Running) -> None:
    one, two = (server.post("/tokenize", {"prompt": digit}).json()["tokens"][0] for digit in "12")
    assert server.text(PROMPT, max_tokens=1)[0] == "1"
    assert server.text(PROMPT, max_tokens=1, logit_bias={str(one): -100, str(two): 100})[0] == "2"
    assert server.error("/v1/completions", {"model": "small", "prompt": "a", "logit_bias": {"x": 1}})["param"]
    error = server.error("/v1/completions", {"model": "small", "prompt": "a", "logit_bias": {"99999": 1}})
    assert error["param"] == "logit_bias"


def test_penalties(server: Running, model: models.Model) -> None:
    """As the engine does them."""
    prompt = "Write a sentence with the words kettle, paid.\nAnswer: "
    plain = server.text(prompt, max_tokens=40)
    for name in ("frequency_penalty", "presence_penalty"):
        text = server.text(prompt, max_tokens=40, **{name: 2.0})
        assert text == generate.text(model).run(prompt, max_tokens=40, **{name: 2.0}).text
        assert text != plain
    assert server.error("/v1/completions", {"model": "small", "prompt": "a", "presence_penalty": 3})["code"]


def test_what_cannot_be(server: Running) -> None:
    error = server.error("/v1/chat/completions", {"model": "small", "messages": CHAT, "top_logprobs": 2})
    assert error["param"] == "top_logprobs"
    error = server.error(
        "/v1/chat/completions", {"model": "small", "messages": CHAT, "logprobs": True, "top_logprobs": 21}
    )
    assert error["param"] == "top_logprobs"
