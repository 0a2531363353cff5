"""Cohere's client: rerank in both versions of its API.

python with_cohere.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

from typing import Any

import cohere
from report import DOCUMENTS, MODEL, Checks, ranked, same

check = Checks("cohere")
HOST = check.url.removesuffix("/v1")
QUERY = DOCUMENTS[-1]


def scores(answer: Any) -> list[tuple[int, float]]:
    return [(each.index, each.relevance_score) for each in answer.results]


@check
def second() -> None:
    """ClientV2.rerank"""
    client = cohere.ClientV2("unused", base_url=HOST)
    ranked(scores(client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS)))


@check
def first() -> None:
    """Client.rerank, with documents sent back"""
    client: Any = cohere.Client("unused", base_url=HOST)
    found = client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS, return_documents=True)
    ranked(scores(found))
    same(found.results[0].document.text, QUERY)


@check
def few() -> None:
    """top_n"""
    client = cohere.ClientV2("unused", base_url=HOST)
    same(len(client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS, top_n=1).results), 1)


@check
async def asynchronous() -> None:
    """AsyncClientV2.rerank"""
    client = cohere.AsyncClientV2("unused", base_url=HOST)
    ranked(scores(await client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS)))


@check
def errors() -> None:
    """errors: BadRequestError, NotFoundError"""
    client = cohere.ClientV2("unused", base_url=HOST, timeout=30)
    for expected, more in ((cohere.BadRequestError, {"top_n": 0}), (cohere.NotFoundError, {"model": "other"})):
        given: dict[str, Any] = {"model": MODEL, "query": QUERY, "documents": DOCUMENTS} | more
        try:
            client.rerank(**given)
        except expected:
            continue
        raise AssertionError(f"no error with {more}")


check.run()
