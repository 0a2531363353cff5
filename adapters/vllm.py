"""Guides in vLLM: a backend for structured outputs, and a logits processor for guides by request."""
# Type checks run without vLLM.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false, reportUnknownParameterType=false

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checks import brief, shown
from ..errors import OptionError, TrellmError
from ..guides.protocol import Guide
from ..kernels.logits.mask import apply_mask, words_for
from ..tokenizers_adapter import Vocabulary
from .bitmask import allocate_bitmask
from .hosts import interface
from .session import Session, fill_sessions
from .specs import KINDS, guide_for

if TYPE_CHECKING:
    from torch import Tensor

TRIED = "vLLM 0.33"

_HOST = interface(
    "vLLM",
    "vllm",
    TRIED,
    {
        "vllm.v1.structured_output.backend_types": [
            "StructuredOutputBackend",
            "StructuredOutputGrammar",
            "StructuredOutputGrammar.accept_tokens",
            "StructuredOutputGrammar.fill_bitmask",
            "StructuredOutputBackend.compile_grammar",
        ],
        "vllm.v1.sample.logits_processor.interface": ["LogitsProcessor", "MoveDirectionality"],
    },
)
_V2: Any = interface(
    "vLLM",
    "vllm",
    TRIED,
    {"vllm.v1.worker.gpu.sample.logits_processor.interface": ["LogitsProcessor", "LogitsContext"]},
)["LogitsProcessor"]
StructuredOutputBackend: Any = _HOST["StructuredOutputBackend"]
StructuredOutputGrammar: Any = _HOST["StructuredOutputGrammar"]
LogitsProcessor: Any = _HOST["LogitsProcessor"]


class VLLMGrammar(StructuredOutputGrammar):
    """A request's text, as vLLM's scheduler advances it, and rolls it back over refused drafts."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Accept tokens, or none and return False if one is not allowed. Tokens after the end are ignored."""
        session = self.session
        if session.ended:
            return True
        accepted = session.take(tokens)
        if accepted < len(tokens) and not session.ended:
            session.rollback(accepted)
            return False
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Return the tokens up to the first that is not allowed."""
        return tokens[: self.session.validate(tokens)]

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens."""
        self.session.rollback(num_tokens)

    def fill_bitmask(self, bitmask: Tensor, batch_index: int) -> None:
        """Write the mask into a row of int32 [rows, words]."""
        self.session.fill(bitmask, batch_index)

    def is_terminated(self) -> bool:
        """Test whether the text has ended."""
        return self.session.ended

    def reset(self) -> None:
        """Restart at the beginning."""
        self.session.reset()


@dataclass(eq=False)
class VLLMBackend(StructuredOutputBackend):
    """A backend for vLLM's structured outputs: JSON Schema, regular expressions, choices, grammars in GBNF or Lark.

    Structural tags are refused. `register()` makes vLLM use it.
    """

    def __post_init__(self) -> None:
        settings = getattr(self.vllm_config, "structured_outputs_config", None)
        self._compact = bool(getattr(settings, "disable_any_whitespace", False))
        self.vocabulary = Vocabulary.from_tokenizer(self.tokenizer, size=self.vocab_size)

    def compile_grammar(
        self, request_type: Any, grammar_spec: str, stop_token_ids: set[int] | None = None
    ) -> VLLMGrammar:
        """Return a new text of a request's guide. Raises TrellmError, a ValueError, for an invalid constraint."""
        guide = guide_for(kind_of(request_type), grammar_spec, self.vocabulary, compact=self._compact)
        stops = [token for token in stop_token_ids or () if 0 <= token < self.vocabulary.size]
        return VLLMGrammar(Session(guide, stops))

    def allocate_token_bitmask(self, max_num_seqs: int) -> Tensor:
        """Return a bitmask int32 [rows, words] that allows every token."""
        import torch

        return torch.full((max_num_seqs, words_for(self.vocab_size)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Do nothing: there are no resources to release."""

    @staticmethod
    def is_tokenizer_supported(tokenizer: Any) -> bool:
        """Test whether the exact bytes of a tokenizer's tokens are known."""
        try:
            Vocabulary.from_tokenizer(tokenizer)
        except TrellmError:
            return False
        return True


def kind_of(request_type: Any) -> str:
    """Return the kind of a constraint for `guide_for`. Raises OptionError for structural tags."""
    kind = request_type.name.lower()
    if kind not in KINDS:
        raise OptionError(
            f"structured outputs of the type {request_type.name} are not supported by this backend, but "
            f"{', '.join(KINDS)} are; use a grammar for text before and after JSON"
        )
    return kind


_BYTES = Vocabulary.from_bytes()


def validate_request(sampling_params: Any) -> None:
    """Raise vLLM's own error for a request with an invalid constraint, before it is scheduled."""
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.structured_output.request import get_structured_output_key

    params = sampling_params.structured_outputs
    if params is not None:
        kind, text = get_structured_output_key(params)
        try:
            guide_for(kind_of(kind), text, _BYTES)
        except TrellmError as error:
            raise VLLMValidationError(str(error)) from error


def register() -> None:
    """Make this process's vLLM use VLLMBackend where its configuration says backend="xgrammar".

    vLLM has four fixed backend names, and no registration of others, so one of them is taken over.
    Raises OptionError for a vLLM whose interface has changed.
    """
    needed = {
        "vllm.v1.structured_output": ["StructuredOutputManager.grammar_init", "XgrammarBackend"],
        "vllm.v1.structured_output.backend_xgrammar": ["validate_xgrammar_grammar"],
        "vllm.v1.structured_output.request": ["get_structured_output_key"],
    }
    interface("vLLM", "vllm", TRIED, needed)
    import vllm.v1.structured_output as manager
    import vllm.v1.structured_output.backend_xgrammar as backend

    manager.XgrammarBackend = VLLMBackend
    backend.validate_xgrammar_grammar = validate_request


class TrellmLogitsProcessor(LogitsProcessor, _V2):
    """Guides by request, beside vLLM's own structured outputs; texts can be completed within `max_tokens`.

        llm = LLM(model, logits_processors=["trellm.adapters.vllm:TrellmLogitsProcessor"])
        SamplingParams(max_tokens=100, extra_args={"trellm": {"regex": "[0-9]+", "complete": True}})

    extra_args["trellm"]: one of json, json_object, regex, choice and grammar, as text for `guide_for`, or as Python
    values; "complete": whether the text is to be complete within max_tokens
    Serves both of vLLM's model runners. V1 reports requests that join, leave and move through `update_state`. V2 has a
    slot for each request, set by `add_request`, and rows for its drafts.
    """

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raise TrellmError, a ValueError, for an invalid constraint."""
        _constraint_of(sampling_params, _BYTES)

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        from vllm.tokenizers import cached_tokenizer_from_config

        model = vllm_config.model_config
        tokenizer = cached_tokenizer_from_config(model_config=model)
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer, size=model.get_vocab_size())
        # The V2 runner passes the state of its requests; V1 passes a device, and whether to pin memory
        self._states: Any = runner[0] if len(runner) == 1 else None
        self._requests: dict[int, _Request] = {}

    def is_argmax_invariant(self) -> bool:
        """False: a mask can exclude the likeliest token."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Apply requests that joined, left and changed places."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._requests.pop(row, None)
        for row, params, _, output in batch_update.added:
            self._join(row, params, output)
        for one, other, direction in batch_update.moved:
            request, swapped = self._requests.pop(one, None), self._requests.pop(other, None)
            if request is not None:
                self._requests[other] = request
            if swapped is not None and direction == _HOST["MoveDirectionality"].SWAP:
                self._requests[one] = swapped

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Take a request into a slot, replacing an earlier one. Return whether it has a guide."""
        return self._join(req_idx, sampling_params, [])

    def apply(self, logits: Tensor, ctx: Any = None) -> Tensor:
        """Set logits float [rows, V] that the requests' guides do not allow to -inf, in place."""
        import torch

        if ctx is None:
            for request in self._requests.values():
                request.catch_up()
            sessions = {row: request.session for row, request in self._requests.items()}
        else:
            sessions = dict(self._slots_of(ctx))
        if sessions:
            bitmask = allocate_bitmask(self.vocabulary, len(sessions))
            fill_sessions([*sessions.values()], bitmask)
            numbers = torch.full((len(logits),), -1, dtype=torch.int32)
            numbers[list(sessions)] = torch.arange(len(sessions), dtype=torch.int32)
            apply_mask(logits, torch.from_numpy(bitmask).to(logits.device), numbers.to(logits.device))
        return logits

    def _join(self, number: int, params: Any, output: list[int]) -> bool:
        constraint = _constraint_of(params, self.vocabulary)
        if constraint is None:
            self._requests.pop(number, None)
            return False
        guide, complete = constraint
        stops = [t for t in getattr(params, "all_stop_token_ids", ()) if 0 <= t < self.vocabulary.size]
        self._requests[number] = _Request(Session(guide, stops, params.max_tokens if complete else None), output)
        return True

    def _slots_of(self, ctx: Any) -> Iterator[tuple[int, Session]]:
        """Yield the rows of requests with guides, and sessions advanced to them: settled tokens, then drafts.

        Rows after a draft that is not allowed have no mask: tokens chosen there are discarded with it.
        """
        if not any(slot in self._requests for slot in ctx.idx_mapping_np.tolist()):
            return
        import torch

        parts = (ctx.expanded_idx_mapping, ctx.expanded_local_pos, ctx.input_ids, ctx.pos)
        layout = torch.stack([part.to(torch.int64) for part in parts]).cpu().T.tolist()
        rows = [(row, *entry) for row, entry in enumerate(layout) if entry[0] in self._requests]
        self._read({slot: position + 1 for _, slot, offset, _, position in rows if not offset})
        forks: dict[int, Session | None] = {}
        for row, slot, offset, token, _ in rows:
            session = self._requests[slot].session if offset <= 1 else forks[slot]
            if offset and session is not None:
                fork = session.fork()
                session = fork if session.ended or fork.accept(token) else None
            forks[slot] = session
            if session is not None:
                yield row, session

    def _read(self, lengths: dict[int, int]) -> None:
        """Read the settled tokens of slots up to these lengths of prompt and text, in one copy from the device."""
        import torch

        slots, places, counts = list[int](), list[int](), list[int]()
        for slot, length in lengths.items():
            begin = int(self._states.prompt_len.np[slot]) + len(self._requests[slot].output)
            places += range(begin, length)
            counts.append(max(0, length - begin))
            slots += [slot] * counts[-1]
        if not slots:
            return
        tokens: Any = self._states.all_token_ids.gpu
        at = torch.tensor([slots, places], device=tokens.device)
        token_ids: list[int] = tokens[at[0], at[1]].cpu().tolist()
        for slot, count in zip(lengths, counts, strict=True):
            request = self._requests[slot]
            request.output += token_ids[:count]
            del token_ids[:count]
            request.catch_up()


class _Request:
    """A request: its session, and the list of its output tokens."""

    def __init__(self, session: Session, output: list[int]) -> None:
        self.session, self.output = session, output

    def catch_up(self) -> None:
        """Accept new output tokens, up to the end or to one that is not allowed."""
        session = self.session
        if session.length > len(self.output):
            session.rollback(session.length - len(self.output))
        session.take(self.output[session.length :])


def _constraint_of(params: Any, vocabulary: Vocabulary) -> tuple[Guide, bool] | None:
    """Return the guide of a request, and whether its text is to be complete within max_tokens; None without a guide."""
    spec = (getattr(params, "extra_args", None) or {}).get("trellm")
    if spec is None:
        return None
    kinds = [kind for kind in KINDS if isinstance(spec, dict) and kind in spec]
    unknown = sorted(set(spec) - {*KINDS, "complete"}) if isinstance(spec, dict) else []
    if len(kinds) != 1 or unknown:
        raise OptionError(
            f"extra_args['trellm']={brief(spec)}: expected a dict with exactly one of {', '.join(KINDS)}, and "
            "optionally complete"
        )
    value, complete = spec[kinds[0]], spec.get("complete", False)
    if not isinstance(complete, bool):
        raise OptionError(f"extra_args['trellm']['complete']={shown(complete)}: expected True or False")
    guide = guide_for(kinds[0], value if isinstance(value, str) else json.dumps(value), vocabulary)
    if complete and params.max_tokens is None:
        raise OptionError("complete=True in extra_args['trellm'] needs max_tokens")
    return guide, complete
