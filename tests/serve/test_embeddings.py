"""/v1/embeddings and /v1/rerank, as the clients of OpenAI, Jina, Cohere and vLLM ask."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import openai
import pytest
from trellm import generate, models

from .conftest import SETTINGS, Running, running

TEXTS = ["The bill has not been paid.", "Who bought the kettle?", "é→x"]
DOCUMENTS = ["a copper kettle", "the bill was paid in full", "the bill has been paid"]


@pytest.fixture(scope="module")
def vectors(model: Any) -> Any:
    return np.array(generate.embedding(model)(TEXTS))


def test_openais_client(server: Running, vectors: Any) -> None:
    """Which asks for base64 and gives numbers; where it is asked for numbers it gets these."""
    for options in ({}, {"encoding_format": "float"}):
        answer = server.client.embeddings.create(model="small", input=TEXTS, user="somebody", **options)  # type: ignore[arg-type]
        assert [each.index for each in answer.data] == [0, 1, 2]
        np.testing.assert_allclose([each.embedding for each in answer.data], vectors, atol=1e-5)
        assert (answer.object, answer.model, answer.data[0].object) == ("list", "small", "embedding")
    one = server.client.embeddings.create(model="gpt-4o", input=TEXTS[1])
    np.testing.assert_allclose(one.data[0].embedding, vectors[1], atol=1e-5)
    size = server.post("/tokenize", {"prompt": TEXTS[1]}).json()["count"]
    assert (one.usage.prompt_tokens, one.usage.total_tokens) == (size, size)
    with pytest.raises(openai.BadRequestError) as caught:
        server.client.embeddings.create(model="small", input=TEXTS, dimensions=193)
    assert caught.value.param == "dimensions"


def test_token_ids(server: Running, vectors: Any) -> None:
    ids = [server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in TEXTS]
    answer = server.client.embeddings.create(model="small", input=ids)
    np.testing.assert_allclose([each.embedding for each in answer.data], vectors, atol=1e-5)
    answer = server.client.embeddings.create(model="small", input=ids[0])
    np.testing.assert_allclose(answer.data[0].embedding, vectors[0], atol=1e-5)


def test_dimensions_and_base64(server: Running, vectors: Any) -> None:
    body = {"model": "small", "input": TEXTS[0], "dimensions": 8, "encoding_format": "base64"}
    data = server.post("/v1/embeddings", body).json()["data"][0]["embedding"]
    found = np.frombuffer(base64.b64decode(data), "<f4")
    np.testing.assert_allclose(found, vectors[0][:8] / np.linalg.norm(vectors[0][:8]), atol=1e-5)


def test_a_prompt_that_is_cut(server: Running) -> None:
    ids = server.post("/tokenize", {"prompt": TEXTS[0]}).json()["tokens"]
    long, last = (
        server.post("/v1/embeddings", {"model": "small", **body}).json()
        for body in ({"input": TEXTS[0], "truncate_prompt_tokens": 3}, {"input": ids[-3:]})
    )
    np.testing.assert_allclose(long["data"][0]["embedding"], last["data"][0]["embedding"], atol=1e-5)
    assert long["usage"]["prompt_tokens"] == 3
    whole = {"model": "small", "input": "word " * 2000, "truncate_prompt_tokens": -1}
    assert server.post("/v1/embeddings", whole).json()["usage"]["prompt_tokens"] == 1024, "nothing is to follow"


@pytest.mark.parametrize(
    ("path", "body", "param", "said"),
    [
        ("/v1/embeddings", {}, "input", "input is missing"),
        ("/v1/embeddings", {"input": []}, "input", "at least 1"),
        ("/v1/embeddings", {"input": [[1], ["a"]]}, "input", ""),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, "encoding_format", "base64"),
        ("/v1/embeddings", {"input": "a", "max_tokens": 1}, "max_tokens", "unknown field"),
        ("/v1/embeddings", {"input": [9999]}, "input", "9999"),
        ("/v1/embeddings", {"input": ["word " * 2000]}, "input", "maximum context length is 1024"),
        ("/v1/embeddings", {"input": ["a", "word " * 2000]}, "input", "input 1 takes 2001 tokens"),
        ("/v1/embeddings", {"input": ["a", "b", ""]}, "input", "input 2 is empty"),
        ("/v1/embeddings", {"input": ["a"] * 65}, "input", "exceed the capacity"),
        ("/v1/rerank", {"query": "a"}, "documents", "missing"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents", "at least 1"),
        ("/v1/rerank", {"query": "a", "documents": ["a", {"title": "b"}]}, "documents[1]", ""),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n", "greater than or equal to 1"),
        ("/v2/rerank", {"query": "a", "documents": ["a"], "max_tokens_per_doc": 0}, "max_tokens_per_doc", "equal to 1"),
        ("/v1/rerank", {"query": "a", "documents": ["word " * 2000]}, "documents", "maximum context length"),
        ("/v1/rerank", {"query": "a", "documents": ["a", ""]}, "documents", "documents 1 is empty"),
        ("/v1/rerank", {"query": "", "documents": ["a", "b"]}, "query", "the query is empty"),
        ("/v2/rerank", {"query": "word " * 2000, "documents": ["a"]}, "query", "the query takes 2001 tokens"),
        ("/v2/rerank", {"query": "word " * 9000, "documents": ["a"]}, "query", "the query has 45,000 characters"),
    ],
)  # fmt: skip
def test_mistakes(server: Running, path: str, body: dict[str, Any], param: str, said: str) -> None:
    error = server.error(path, {"model": "small", **body})
    assert str(error["param"]).startswith(param) and said in error["message"], error
    assert server.service.texts == 0, "a request that is refused holds no room"


def test_reranking(server: Running, model: Any) -> None:
    query = "the bill has been paid?"
    *found, asked = generate.embedding(model)([*DOCUMENTS, query])
    cosines = [float(each @ asked) for each in found]
    order = sorted(range(3), key=lambda index: -cosines[index])
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        answer = server.post(path, {"model": "small", "query": query, "documents": DOCUMENTS}).json()
        assert [each["index"] for each in answer["results"]] == order
        assert [each["document"]["text"] for each in answer["results"]] == [DOCUMENTS[index] for index in order]
        scores = [each["relevance_score"] for each in answer["results"]]
        assert scores == pytest.approx(sorted(cosines, reverse=True), abs=1e-5)
        assert answer["model"] == "small" and answer["id"].startswith("rerank-")
        assert answer["usage"]["total_tokens"] > 0
    named = [DOCUMENTS[0], {"text": DOCUMENTS[1]}, {"text": DOCUMENTS[2]}]
    body = {"query": query, "documents": named, "top_n": 2, "return_documents": False}
    few = server.post("/v1/rerank", body).json()["results"]
    assert [each["index"] for each in few] == order[:2] and all("document" not in each for each in few)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_documents_that_are_cut(server: Running, model: Any, path: str) -> None:
    """Behind so many tokens, as Cohere has it; the query is not."""
    query, several = "the bill has been paid?", [*DOCUMENTS, "the bill " * 2000]
    heads = [server.post("/tokenize", {"prompt": text}).json()["tokens"][:4] for text in several]
    embedded = server.post("/v1/embeddings", {"model": "small", "input": heads}).json()["data"]
    asked = np.array(generate.embedding(model)(query))
    wanted = [float(np.dot(each["embedding"], asked)) for each in embedded]
    body = {"query": query, "documents": several, "max_tokens_per_doc": 4, "return_documents": True}
    answer = server.post(path, body).json()
    scores = {each["index"]: each["relevance_score"] for each in answer["results"]}
    assert [scores[index] for index in range(4)] == pytest.approx(wanted, abs=1e-5)
    assert all(each["document"]["text"] == several[each["index"]] for each in answer["results"])
    size = server.post("/tokenize", {"prompt": query}).json()["count"]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, heads)) + size


def test_a_model_without_hidden_states() -> None:
    for alone in running(models.ziplm("abc"), SETTINGS):
        error = alone.error("/v1/embeddings", {"model": "small", "input": "a"})
        assert "has no embeddings" in error["message"]
        assert alone.service.texts == 0


def test_the_document_has_both(server: Running) -> None:
    paths = server.http.get("/openapi.json").json()["paths"]
    assert {"/v1/embeddings", "/v1/rerank"} <= paths.keys()
