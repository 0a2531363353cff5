"""Embeddings: prompts as directions, by the final hidden states of a model that was made to write texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import conforms, whole
from ..errors import OptionError
from .arguments import check_model
from .decode.requests import Job
from .decode.sequence import SequenceState
from .generator import Generator
from .models.protocol import Model, PoolingModel
from .options import Options
from .prompts.given import Prompt
from .results import Generation, ReadPrompt
from .sending.description import Description

Embedding = NDArray[np.float32]


class Embedder(Generator[Any]):
    """Embeds prompts; the value is float32 [dimensions], of length 1.

    It is the final hidden state of the prompt's last token, behind the model's last norm, cut to its first
    `dimensions` numbers and divided by its length: pooling of the last token, as servers do it for decoders.
    """

    def __init__(self, model: Model, guide: None = None, dimensions: int | None = None) -> None:
        """guide: there is none; dimensions: by default all. Raises OptionError."""
        check_model(model, "Embedder")
        if not conforms(model, PoolingModel) or not model.embedding_size:
            raise OptionError(
                f"{model!r} has no embeddings: they are final hidden states, which decoders of transformers and GGUF "
                "files have where their head is apart from the body"
            )
        super().__init__(model)
        self._asked = dimensions
        self.dimensions = (
            model.embedding_size if dimensions is None else whole(dimensions, "dimensions", 1, model.embedding_size)
        )

    def job(self, prompt: Prompt, include: Any = (), *, continues: bool = False) -> Job:
        """The prompt, of which the embedding is asked for."""
        return Job(prompt, None, pools=self.dimensions)

    def result(self, sequence: SequenceState, options: Options) -> Generation[Embedding]:
        """The result of a prompt that was read: a text without a token, whose value is the embedding."""
        assert sequence.finish is not None and sequence.embedding is not None
        return Generation(
            text="",
            value=sequence.embedding,
            token_ids=(),
            finish_reason=sequence.finish,
            steps=sequence.steps,
            read=ReadPrompt(sequence, self.model.vocabulary),
        )

    def _described(self) -> Description:
        return Description.of(type(self), self.model, None, {"dimensions": self._asked})

    def __repr__(self) -> str:
        return f"<Embedder of {self.dimensions} dimensions with {self.model!r}>"
