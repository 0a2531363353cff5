"""Guides in the `generate` of transformers, and in its continuous batching."""
# transformers has incomplete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, check_texts, items_of, shown
from ..errors import OptionError
from ..guides.healing import AlignedGuide, Crossings
from ..guides.protocol import ByteGuide, Guide
from ..kernels.logits.mask import apply_mask
from ..tokenizers_adapter import Vocabulary
from .bitmask import guide_of
from .device_masks import DeviceMasks
from .hosts import interface
from .rows import TokenRows, check_width
from .session import Session

TRIED = "transformers 5.23"

MAX_REQUESTS = 4096
"""Most requests of continuous batching with a cached session."""

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LogitsProcessor
    from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor
else:
    _HOST = {
        "transformers": ["LogitsProcessor"],
        "transformers.generation.continuous_batching.cb_logits_processors": [
            "ContinuousBatchingLogitsProcessor",
            "ContinuousBatchingLogitsProcessorList._retrieve_processors_kwargs",
        ],
    }
    globals().update(interface("transformers", "transformers", TRIED, _HOST))


class GuideLogitsProcessor(LogitsProcessor):
    """A logits processor that constrains `generate` to a guide, and allows EOS where a text is complete.

        model.generate(**inputs, logits_processor=LogitsProcessorList([GuideLogitsProcessor(guide)]))

    guide: one for all prompts, or one for each; rows of beams and of several sequences for a prompt share its guide
    max_new_tokens: that of `generate`; every text is then complete within it, and not cut short
    Works with greedy search, sampling, beams and assisted decoding, in any batch. A text follows the prompt, and the
    ids of the first step are the prompt; so a processor serves one call of `generate`. Call `reset()` before another
    one.
    Raises OptionError for other objects than guides, BudgetError if no text is as short as `max_new_tokens`; and from
    `generate` OptionError if other processors exclude all tokens that the guide allows, ModelError for NaN scores.
    """

    supports_continuous_batching = False

    def __init__(self, guide: Guide | Sequence[Guide], *, max_new_tokens: int | None = None) -> None:
        self._rows = TokenRows(guide, max_new_tokens, "max_new_tokens")

    def reset(self) -> None:
        """Prepare for another call of `generate`."""
        self._rows.reset()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores float [rows, V] with -inf for tokens that may not follow in each row."""
        masked_scores, maxima = mask_logits(scores, self._rows.masks(input_ids.detach().cpu().numpy(), scores.shape))
        self._rows.check(maxima)
        return masked_scores


class ContinuousGuideProcessor(ContinuousBatchingLogitsProcessor):
    """Guides in the continuous batching of transformers, one for each request.

        manager = model.init_continuous_batching(generation_config, continuous_batching_config)
        processor = ContinuousGuideProcessor.install(manager, vocabulary)
        manager.start()
        manager.add_request(ids, max_new_tokens=100, guide=guide)

    A request without a guide is unconstrained. A step transfers one row number for each request to the device; each
    mask is transferred once.
    """

    def __init__(self, vocabulary: Vocabulary, device: Any = "cpu") -> None:
        self.supported_kwargs: dict[str, type] = {"guide": object}
        self.ignored_kwargs: tuple[str, ...] = ()
        self.masks = DeviceMasks(vocabulary, device)
        self._sessions: OrderedDict[str, tuple[int, Session]] = OrderedDict()

    @classmethod
    def install(cls, manager: Any, vocabulary: Vocabulary) -> Self:
        """Add a processor to a manager before its start. Raises OptionError after it, and for asynchronous batching."""
        if getattr(manager, "batch_processor", None) is not None:
            raise OptionError(
                "this ContinuousBatchingManager has started; install the processor before manager.start()"
            )
        if manager.continuous_batching_config.use_async_batching is not False:
            raise OptionError(
                "asynchronous batching prepares a step before the previous token is known; set "
                "use_async_batching=False in the ContinuousBatchingConfig"
            )
        check_width(vocabulary, manager.model.config.get_text_config().vocab_size)
        self = cls(vocabulary, manager.model.device)
        processors = manager.logit_processor
        processors.logits_processor.insert(0, self)
        processors.tensors_required += 1
        processors.do_processing = True
        processors._retrieve_processors_kwargs()
        return self

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        """Fill with -1, no mask, for rows without a request."""
        int32_tensor.fill_(-1)

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """Return the row of each request's mask, int32 [requests] on the CPU; -1 for a request without a guide."""
        import torch

        rows = torch.full((len(requests_with_new_token),), -1, dtype=torch.int32)
        guided: dict[int, Session] = {}
        for place, request in enumerate(requests_with_new_token):
            guide = request.state.logit_processor_kwargs.get("guide")
            if guide is not None:
                guided[place] = self._session(request.state, guide_of(guide))
        if guided:
            sessions = list(guided.values())
            found = self.masks.rows([each.guide for each in sessions], [each.state for each in sessions])
            rows[list(guided)] = found.cpu()
        return rows

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """Return the scores float [tokens, V], with -inf where a request's guide does not allow a token."""
        masked_scores = scores.contiguous().clone()
        apply_mask(masked_scores, self.masks.table, tensor_arg[: len(masked_scores)].contiguous())
        return masked_scores

    def _session(self, request: Any, guide: Guide) -> Session:
        """Return the session of a request, by its id, advanced to its last known token."""
        begin = request._true_initial_tokens or len(request.initial_tokens)
        text = [*request.initial_tokens[begin:], *request.generated_tokens]
        known_begin, session = self._sessions.pop(request.request_id, (begin, None))
        if session is None or session.guide is not guide or known_begin != begin or session.length > len(text):
            session = Session(guide)
        # Tokens that a host adds after the end are not read
        session.take(text[session.length :])
        self._sessions[request.request_id] = begin, session
        if len(self._sessions) > MAX_REQUESTS:
            self._sessions.popitem(last=False)
        return session


def mask_logits(scores: Tensor, bitmask: NDArray[np.int32]) -> tuple[Tensor, NDArray[np.float32]]:
    """Return scores with -inf where masks allow no token, and the largest one of each row, for `TokenRows.check`.

    scores: float [rows, V]; bitmask: int32 [rows, words]
    """
    import torch

    if scores.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        scores = scores.float()
    masked_scores = scores.contiguous() if not scores.is_contiguous() else scores.clone()
    words = torch.from_numpy(bitmask)
    apply_mask(masked_scores, words if masked_scores.device.type == "cpu" else words.to(masked_scores.device))
    return masked_scores, masked_scores.amax(-1).float().cpu().numpy()


def vocabulary_for(model: Any, tokenizer: Any) -> Vocabulary:
    """Return the vocabulary of a model and its tokenizer, as wide as the logits, with all tokens that end its texts.

    model: a pretrained model of transformers; tokenizer: its tokenizer, or a processor that has one.
    Raises VocabularyError for a tokenizer that cannot be read or does not fit, OptionError for other objects than
    models.
    """
    head = getattr(model, "get_output_embeddings", lambda: None)()
    weight = getattr(head, "weight", None)
    width: int | None = getattr(getattr(model, "config", None), "vocab_size", None) if weight is None else len(weight)
    if width is None:
        raise OptionError(f"{shown(type(model))} has no logits; give a generative model of transformers")
    eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if eos is None:
        return Vocabulary.from_tokenizer(tokenizer, size=width)
    ids = [eos] if isinstance(eos, int) else list(cast("Iterable[int]", eos))
    tokenizer_eos = getattr(tokenizer, "eos_token_id", None)
    return Vocabulary.from_tokenizer(
        tokenizer, size=width, eos_ids=ids if tokenizer_eos is None or tokenizer_eos in ids else [*ids, tokenizer_eos]
    )


class Healed(NamedTuple):
    """A prompt that was cut back.

    ids: input of the model; guide: of its output: the end of the prompt, and a text of the original guide
    tail: bytes of that end, with which the output begins; empty if nothing was cut
    """

    ids: list[int]
    guide: Guide
    tail: bytes

    def text(self, output: Sequence[int]) -> str:
        """Return the guide's text in the output tokens, which follow `ids`: their text without the prompt's end."""
        data = self.guide.vocabulary.decode(output)
        if not data.startswith(self.tail):
            raise OptionError(
                f"the output {brief(data)} does not begin with the prompt's end {brief(self.tail)}; pass the tokens "
                "that were generated after `ids` with `guide`"
            )
        return data[len(self.tail) :].decode(errors="replace")


def heal(guide: Guide, prompt: Sequence[int], begin: int | None = None, crossings: Crossings | None = None) -> Healed:
    """Cut tokens off a prompt that an output token may cross into, and prepend their bytes to the guide.

    prompt: token ids; begin: the id that begins every text (BOS), for a prompt that is empty or cut away completely;
    without it the first token stays. crossings: of the guide, to share between prompts.
    Raises OptionError for a guide that does not read bytes, and for invalid token ids.
    """
    if not isinstance(guide, ByteGuide):
        raise OptionError(f"healing needs a guide that reads bytes, see guides.ByteGuide, not {brief(guide)}")
    ids = _token_ids(prompt, guide.vocabulary)
    shared = Crossings(guide) if crossings is None else crossings
    length = shared.cut(ids)
    first = ids[:length] or (ids[:1] if begin is None else [begin])
    tail = guide.vocabulary.decode(ids[length if length or begin is not None else 1 :])
    if not tail:
        return Healed(ids or first, guide, b"")
    return Healed(first, AlignedGuide(guide, tail, crossings=shared), tail)


def _token_ids(prompt: Any, vocabulary: Vocabulary) -> list[int]:
    ids: Any = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    items = items_of(ids)
    if items is None or not all(type(token) is int and 0 <= token < vocabulary.size for token in items):
        raise OptionError(
            f"a prompt to heal is a list of token ids from 0 to {vocabulary.size - 1:,}, not {brief(prompt)}"
        )
    return items


class HealedPrompts:
    """Prompts cut back where an output token may cross into them, as inputs of `generate`.

        prompts = HealedPrompts(guide, tokenizer, ["The date is ", "In the year"])
        output = model.generate(**prompts.inputs, logits_processor=[GuideLogitsProcessor(prompts.guides)])
        prompts.texts(output)

    inputs: input_ids and attention_mask, int64 [prompts, longest], padded on the left; guides: one for each prompt
    The tokens of a prompt's end that are generated again count towards `max_new_tokens`.
    """

    def __init__(self, guide: Guide | Sequence[Guide], tokenizer: Any, prompts: str | Sequence[str]) -> None:
        import torch

        if not hasattr(tokenizer, "__call__") or not hasattr(tokenizer, "pad_token_id"):  # noqa: B004
            raise OptionError(f"{shown(tokenizer)} is not a tokenizer of transformers; give the one of the model")
        texts = check_texts([prompts] if isinstance(prompts, str) else prompts, "prompts", "prompt")
        several = items_of(guide)
        guides = [guide_of(guide)] * len(texts) if several is None else [guide_of(each) for each in several]
        if len(guides) != len(texts) or not texts:
            raise OptionError(f"{len(guides)} guides for {len(texts)} prompts; give one guide for each, or one for all")
        begin: int | None = getattr(tokenizer, "bos_token_id", None)
        crossings: dict[int, Crossings] = {}
        self.healed: list[Healed] = []
        for each, text in zip(guides, texts, strict=True):
            shared = crossings.setdefault(id(each), Crossings(each)) if isinstance(each, ByteGuide) else None
            self.healed.append(heal(each, tokenizer(text).input_ids, begin, shared))
            if not self.healed[-1].ids:
                raise OptionError(
                    f"prompt {len(self.healed) - 1} has no tokens, {text!r}, and this tokenizer has no bos_token; give "
                    "a prompt with text"
                )
        self.guides = [each.guide for each in self.healed]
        pad = tokenizer.pad_token_id
        longest = max(len(each.ids) for each in self.healed)
        ids = torch.full((len(texts), longest), self.guides[0].vocabulary.eos_ids[0] if pad is None else pad)
        attention = torch.zeros_like(ids)
        for row, each in enumerate(self.healed):
            ids[row, longest - len(each.ids) :] = torch.tensor(each.ids)
            attention[row, longest - len(each.ids) :] = 1
        self.inputs = {"input_ids": ids, "attention_mask": attention}

    def texts(self, sequences: Tensor) -> list[str]:
        """Return the guides' texts in the output of `generate`, int64 [rows, length], without prompts or their ends."""
        count, width = self.inputs["input_ids"].shape
        if getattr(sequences, "ndim", 0) != 2:
            raise OptionError(
                f"sequences must be int64 [rows, length], as generate returns them, not {shown(sequences)}"
            )
        rows: list[list[int]] = sequences[:, width:].tolist()
        if len(rows) % count:
            raise OptionError(
                f"{len(rows)} rows of output for {count} prompts; pass the output of generate for `inputs`"
            )
        return [self.healed[row * count // len(rows)].text(ids) for row, ids in enumerate(rows)]
