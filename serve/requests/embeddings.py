"""Bodies of /v1/embeddings and /v1/rerank: texts that are read, and not continued."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ..errors import Names
from .chat import CompletionRequest, translated
from .fields import MOST_TOKENS, Ids, RequestBase

Most = Annotated[int, Field(ge=-1, le=MOST_TOKENS)]


class EmbeddingRequest(RequestBase, title="Embeddings"):
    """The body of /v1/embeddings."""

    model: str
    input: (
        str
        | Annotated[list[str], Field(min_length=1, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, fail_fast=True)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    truncate_prompt_tokens: Most | None = None
    user: str | None = None

    def texts(self) -> CompletionRequest:
        """The prompts as a request for texts has them. Raises ApiError."""
        return _read_only(self.model, self.input, self.truncate_prompt_tokens)

    @property
    def names(self) -> Names:
        """Prompts are the input."""
        return (("/prompt", "/input"),)


class DocumentField(RequestBase, title="Document"):
    """A document, as Cohere's and Jina's clients send some."""

    text: str


class RerankRequest(RequestBase, title="Rerank"):
    """The body of /v1/rerank: of Jina's, Cohere's and vLLM's API."""

    query: str
    documents: Annotated[list[str | DocumentField], Field(min_length=1, fail_fast=True)]
    top_n: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    return_documents: bool | None = None
    truncate_prompt_tokens: Most | None = None
    model: str | None = None
    user: str | None = None

    @property
    def document_texts(self) -> list[str]:
        """The texts of the documents."""
        return [each if isinstance(each, str) else each.text for each in self.documents]

    def texts(self, name: str) -> CompletionRequest:
        """The documents, and behind them the query, as a request for texts has prompts. Raises ApiError.

        name: of the model where none is given
        """
        return _read_only(self.model or name, [*self.document_texts, self.query], self.truncate_prompt_tokens)

    @property
    def names(self) -> Names:
        """Prompts are documents, but for the last."""
        return (("/prompt", "/documents"),)


def _read_only(model: str, prompts: Any, most: int | None) -> CompletionRequest:
    said = {"model": model, "prompt": prompts, "temperature": 0, "truncate_prompt_tokens": most}
    return translated(said, CompletionRequest)
