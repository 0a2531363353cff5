"""openai-python: embeddings of texts and of token ids, whole and in numbers, and errors.

python with_openai.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

import math

import openai
from report import DOCUMENTS, MODEL, Checks, same

check = Checks("openai")
client = openai.OpenAI(base_url=check.url, api_key="unused", max_retries=0)


@check
def several() -> None:
    """embeddings.create of a list, of length 1 each"""
    found = client.embeddings.create(model=MODEL, input=DOCUMENTS)
    same([each.index for each in found.data], [0, 1, 2])
    same([round(math.hypot(*each.embedding), 3) for each in found.data], [1, 1, 1])
    same(found.usage.total_tokens, found.usage.prompt_tokens)


@check
def numbers() -> None:
    """encoding_format float, and base64, which it asks for by itself, are the same numbers"""
    plain = client.embeddings.create(model=MODEL, input=DOCUMENTS[0], encoding_format="float").data[0].embedding
    usual = client.embeddings.create(model=MODEL, input=DOCUMENTS[0]).data[0].embedding
    same(all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(plain, usual, strict=True)), True)


@check
def dimensions() -> None:
    """dimensions"""
    found = client.embeddings.create(model=MODEL, input=DOCUMENTS[0], dimensions=16).data[0].embedding
    same((len(found), round(math.hypot(*found), 3)), (16, 1))


@check
async def asynchronous() -> None:
    """AsyncOpenAI"""
    async with openai.AsyncOpenAI(base_url=check.url, api_key="unused") as ours:
        found = await ours.embeddings.create(model=MODEL, input=DOCUMENTS[0])
    same(found.data[0].embedding, client.embeddings.create(model=MODEL, input=DOCUMENTS[0]).data[0].embedding)


@check
def errors() -> None:
    """errors: BadRequestError with the field, NotFoundError"""
    try:
        client.embeddings.create(model=MODEL, input=DOCUMENTS, dimensions=100_000)
    except openai.BadRequestError as error:
        same(error.param, "dimensions")
    else:
        raise AssertionError("100,000 dimensions were taken")
    try:
        client.embeddings.create(model="other", input=DOCUMENTS)
    except openai.NotFoundError:
        return
    raise AssertionError("a model that is not there was taken")


check.run()
