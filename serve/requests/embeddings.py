"""Bodies of /v1/embeddings and /v1/rerank."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ..errors import ApiError, Names
from .chat import CompletionRequest, translate
from .fields import MAX_TOKENS, Ids, Priority, RequestBase, Salt


class ReadingBase(RequestBase):
    """Fields of requests whose prompts are read without generation."""

    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=MAX_TOKENS)] | None = None
    cache_salt: Salt | None = None
    priority: Priority | None = None
    user: str | None = None

    def read_only(self, model: str, prompts: Any) -> CompletionRequest:
        """Return the prompts as a request for texts. Raises ApiError."""
        fields = {name: getattr(self, name) for name in ReadingBase.model_fields}
        return translate(fields | {"model": model, "prompt": prompts, "temperature": 0}, CompletionRequest)


class EmbeddingRequest(ReadingBase, title="Embeddings"):
    """The body of /v1/embeddings."""

    SAME: ClassVar = {"prompt": "input"}

    model: str
    input: (
        str
        | Annotated[list[str], Field(min_length=1, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, fail_fast=True)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=1 << 20)] | None = None

    def texts(self) -> CompletionRequest:
        """Return the prompts as a request for texts. Raises ApiError."""
        return self.read_only(self.model, self.input)


class DocumentField(RequestBase, title="Document"):
    """A document in the format of Cohere's and Jina's clients."""

    text: str


class RerankRequest(ReadingBase, title="Rerank"):
    """The body of /v1/rerank: of Jina's, Cohere's and vLLM's API."""

    query: str
    documents: Annotated[list[str | DocumentField], Field(min_length=1, fail_fast=True)]
    top_n: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    max_tokens_per_doc: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    return_documents: bool | None = None
    model: str | None = None

    @property
    def document_texts(self) -> list[str]:
        """The texts of the documents."""
        return [each if isinstance(each, str) else each.text for each in self.documents]

    def texts(self, name: str) -> CompletionRequest:
        """Return documents, followed by the query, as prompts of a request for texts. Raises ApiError.

        name: model name if the request has none
        """
        return self.read_only(self.model or name, [*self.document_texts, self.query])

    @property
    def names(self) -> Names:
        """Field names for errors: prompts are documents, except for the last."""
        return (("/prompt", "/documents"),)

    def rename_query(self, error: ApiError) -> ApiError:
        """Rename the last prompt in an error to the query."""
        number, message = f"prompt {len(self.documents)} ", str(error.error["message"])
        if message.startswith(number):
            new_message = "the query " + message.removeprefix(number).replace("the prompt", "it")
            error.error |= {"message": new_message, "param": "query", "pointer": "/query"}
        return error
