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
from ..bodies import derive
from ..errors import ApiError, request_error
from ..generation import Beginning, GenerationRequest, Prepared, begin
from ..requests.chat import CompletionRequest
from ..requests.embeddings import EmbeddingRequest, RerankRequest
from ..service import Service
from .answers import answer_of, run_whole, serialize


async def embeddings(request: Request, service: Service, body: EmbeddingRequest) -> Response:
    """Embed texts: their normalised final hidden states."""
    text = await derive(request, body.texts)

    def write(generation: GenerationRequest, index: int, result: Generation[Embedding]) -> bytes:
        vector: Any = result.value.tolist()
        if body.encoding_format == "base64":
            vector = base64.b64encode(result.value.astype("<f4").tobytes()).decode()
        return b"".join(serialize({"object": "embedding", "index": index, "embedding": vector}))

    generation, data = await run_whole(request, _begin(request, text, dimensions=body.dimensions), write)
    head = {"object": "list", "model": generation.model_name}
    return answer_of(head, data, _usage(generation), name="data")


async def rerank(request: Request, service: Service, body: RerankRequest) -> Response:
    """Rank documents by the cosine similarity of their embeddings with a query's."""
    text = await derive(request, partial(body.texts, service.name))

    def vector(generation: GenerationRequest, index: int, result: Generation[Embedding]) -> Embedding:
        return result.value

    try:
        generation, (*documents, query) = await run_whole(
            request, _begin(request, text, most=body.max_tokens_per_doc), vector
        )
    except ApiError as error:
        raise body.rename_query(error) from None
    scores = [float(document @ query) for document in documents]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    texts = {} if body.return_documents is False else dict(enumerate(body.document_texts))
    results = [
        {"index": index, "relevance_score": scores[index]}
        | ({"document": {"text": texts[index]}} if index in texts else {})
        for index in order
    ]
    head = {"id": generation.key.replace("cmpl", "rerank"), "model": generation.model_name}
    return answer_of(head, [b"".join(serialize(each)) for each in results], _usage(generation), name="results")


def _begin(
    request: Request, text: CompletionRequest, *, dimensions: int | None = None, most: int | None = None
) -> Beginning:
    """Return a function that begins the answer of a request for embeddings.

    most: number of tokens to which each prompt but the last is truncated; None for no truncation
    """
    service: Service = request.state.service

    async def prepare(generation: GenerationRequest) -> Prepared:
        try:
            embedder = Embedder(service.model, dimensions=dimensions)
        except TrellmError as error:
            raise request_error(error, () if dimensions is None else ("dimensions",)) from None
        if most is None:
            return embedder, text.prompts, None
        *documents, query = text.prompts
        pool = service.shared.pool_of(documents)
        cut = await asyncio.get_running_loop().run_in_executor(pool, _truncate, service, documents, most)
        return embedder, [*cut, query], None

    return partial(begin, request, text, len(text.prompts), ("prompt",), prepare)


def _truncate(service: Service, prompts: list[Prompt], most: int) -> list[Prompt]:
    """Truncate prompts to their first tokens and the tokenizer's trailing special tokens. Raises ApiError."""
    special, truncated = service.model.vocabulary.special_ids, list[Prompt]()
    for number, prompt in enumerate(prompts):
        try:
            ids = service.encode(prompt, number, {}, is_verbatim=True)
        except TrellmError as error:
            raise request_error(error, ("prompt",)) from None
        end = next((end for end in range(len(ids), 0, -1) if ids[end - 1] not in special), 0)
        truncated.append(prompt if end <= most else (*ids[:most], *ids[end:]))
    return truncated


def _usage(generation: GenerationRequest) -> dict[str, Any]:
    return {name: generation.usage[name] for name in ("prompt_tokens", "total_tokens", "prompt_tokens_details")}
