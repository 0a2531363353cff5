"""The smaller models that callers give: whether they can guess for another one."""

from __future__ import annotations

from ...errors import OptionError
from ..models.protocol import DraftedModel, Model, SourceModel


def check_draft(model: Model, draft: bool | Model) -> None:
    """Raise OptionError for a smaller model that cannot guess for a model."""
    if isinstance(draft, bool):
        return
    if not (isinstance(model, DraftedModel) and model.reads_drafts):
        raise OptionError(
            f"draft={draft!r}: {model!r} reads one token after the other, since it keeps states, has no cache, or runs "
            "rows padded; leave it out"
        )
    if isinstance(draft, SourceModel) or draft.state_bytes:
        raise OptionError(
            f"draft={draft!r} cannot take back what it has read; use a decoder that keeps keys and values only"
        )
    mine, other = model.vocabulary, draft.vocabulary
    if mine is other or mine.fingerprint == other.fingerprint:
        return
    sizes = f"{other.size:,} tokens, the model {mine.size:,}" if mine.size != other.size else "other tokens"
    raise OptionError(
        f"draft={draft!r} has another vocabulary than the model ({sizes}); use one that shares the model's tokenizer"
    )
