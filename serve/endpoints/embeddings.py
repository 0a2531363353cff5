"""/v1/embeddings and /v1/rerank: embeddings of prompts, and documents ranked by similarity."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.generator import Embedder, Embedding
from ...engine.prompts.arguments import Prompt
from ...engine.results import Generation
from ...errors import TrellmError
from ..bodies import derived
from ..errors import ApiError, of_request
from ..generation import Beginning, GenerationRequest, Prepared, begin
from ..requests.chat import CompletionRequest
from ..requests.embeddings import EmbeddingRequest, RerankRequest
from ..service import Service
from .answers import answer_of, whole, written


async def embeddings(request: Request, service: Service, asked: EmbeddingRequest) -> Response:
    """Embed texts: their normalised final hidden states."""
    text = await derived(request, asked.texts)

    def write(begun: GenerationRequest, index: int, result: Generation[Embedding]) -> bytes:
        vector: Any = result.value.tolist()
        if asked.encoding_format == "base64":
            vector = base64.b64encode(result.value.astype("<f4").tobytes()).decode()
        return b"".join(written({"object": "embedding", "index": index, "embedding": vector}))

    begun, data = await whole(request, _begin(request, text, dimensions=asked.dimensions), write)
    head = {"object": "list", "model": begun.model_name}
    return answer_of(head, data, _usage(begun), name="data")


async def rerank(request: Request, service: Service, asked: RerankRequest) -> Response:
    """Rank documents by the cosine similarity of their embeddings with a query's."""
    text = await derived(request, partial(asked.texts, service.name))

    def vector(begun: GenerationRequest, index: int, result: Generation[Embedding]) -> Embedding:
        return result.value

    try:
        begun, (*documents, query) = await whole(request, _begin(request, text, most=asked.max_tokens_per_doc), vector)
    except ApiError as error:
        raise asked.told(error) from None
    scores = [float(document @ query) for document in documents]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.top_n]
    texts = {} if asked.return_documents is False else dict(enumerate(asked.document_texts))
    results = [
        {"index": index, "relevance_score": scores[index]}
        | ({"document": {"text": texts[index]}} if index in texts else {})
        for index in order
    ]
    head = {"id": begun.key.replace("cmpl", "rerank"), "model": begun.model_name}
    return answer_of(head, [b"".join(written(each)) for each in results], _usage(begun), name="results")


def _begin(
    request: Request, text: CompletionRequest, *, dimensions: int | None = None, most: int | None = None
) -> Beginning:
    """Return a function that begins the answer of a request for embeddings.

    most: number of tokens to which each prompt but the last is truncated; None for no truncation
    """
    service: Service = request.state.service

    async def prepare(begun: GenerationRequest) -> Prepared:
        try:
            embedder = Embedder(service.model, dimensions=dimensions)
        except TrellmError as error:
            raise of_request(error, () if dimensions is None else ("dimensions",)) from None
        if most is None:
            return embedder, text.prompts, None
        *documents, query = text.prompts
        pool = service.shared.pool_of(documents)
        cut = await asyncio.get_running_loop().run_in_executor(pool, _beginnings, service, documents, most)
        return embedder, [*cut, query], None

    return partial(begin, request, text, len(text.prompts), ("prompt",), prepare)


def _beginnings(service: Service, prompts: list[Prompt], most: int) -> list[Prompt]:
    """Truncate prompts to their first tokens and the tokenizer's trailing special tokens. Raises ApiError."""
    special, found = service.model.vocabulary.special_ids, list[Prompt]()
    for number, prompt in enumerate(prompts):
        try:
            ids = service.encoded(prompt, number, {}, is_verbatim=True)
        except TrellmError as error:
            raise of_request(error, ("prompt",)) from None
        end = next((end for end in range(len(ids), 0, -1) if ids[end - 1] not in special), 0)
        found.append(prompt if end <= most else (*ids[:most], *ids[end:]))
    return found


def _usage(begun: GenerationRequest) -> dict[str, Any]:
    return {name: begun.usage[name] for name in ("prompt_tokens", "total_tokens", "prompt_tokens_details")}
