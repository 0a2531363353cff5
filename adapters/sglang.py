"""Guides in SGLang: a grammar backend."""
# Type checks run without SGLang.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import TrellmError
from ..guides.protocol import Guide, mask_of
from ..kernels.logits.mask import apply_mask, words_for
from ..tokenizers_adapter import Vocabulary
from .hosts import interface
from .session import Session, fill_sessions
from .specs import guide_for

if TYPE_CHECKING:
    from torch import Tensor

TRIED = "SGLang 0.5.23"
NAME = "trellm"

_HOST = interface(
    "SGLang",
    "sglang",
    TRIED,
    {
        "sglang.srt.constrained.base_grammar_backend": [
            "BaseGrammarBackend",
            "BaseGrammarObject",
            "InvalidGrammarObject",
            "register_grammar_backend",
            "register_vocab_mask_buffer",
            "BaseGrammarObject.fill_vocab_mask_batched",
            "BaseGrammarBackend.dispatch_json",
        ],
    },
)
BaseGrammarBackend: Any = _HOST["BaseGrammarBackend"]
BaseGrammarObject: Any = _HOST["BaseGrammarObject"]
InvalidGrammarObject: Any = _HOST["InvalidGrammarObject"]


class SGLangGrammar(BaseGrammarObject):
    """A request's text as SGLang advances it. Copies restart, and share the guide with its caches."""

    def __init__(self, guide: Guide) -> None:
        super().__init__()
        self.session = Session(guide)

    def __repr__(self) -> str:
        return f"TrellmGrammar({self.session!r})"

    def accept_token(self, token: int) -> None:
        """Accept a token; tokens after the end are ignored. Raises ValueError for one that is not allowed."""
        if self.finished or self.session.ended:
            return
        self.current_token = token
        if not self.session.accept(int(token)):
            raise ValueError(f"token {token} is not allowed by {self.session!r}")

    def rollback(self, k: int) -> None:
        """Take back the last tokens."""
        self.session.rollback(k)
        self.finished = False

    def is_terminated(self) -> bool:
        """Test whether the text has ended."""
        return self.session.ended

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> Tensor:
        """Return a bitmask int32 [batch_size, words] in CPU memory that allows every token."""
        return _allocate(vocab_size, batch_size)

    def fill_vocab_mask(self, vocab_mask: Tensor, idx: int) -> None:
        """Write the mask into a row."""
        self.session.fill(vocab_mask, idx)

    @staticmethod
    def fill_vocab_mask_batched(entries: list[Any], vocab_mask: Tensor) -> None:
        """Write many rows in one call; other grammars, such as those with reasoning, fill theirs themselves."""
        ours = [entry for entry in entries if isinstance(entry.grammar, SGLangGrammar)]
        if ours:
            fill_sessions([entry.grammar.session for entry in ours], vocab_mask, [entry.row for entry in ours])
        for entry in entries:
            if not isinstance(entry.grammar, SGLangGrammar):
                entry.grammar.fill_vocab_mask(vocab_mask, entry.row)

    @staticmethod
    def reset_vocab_mask(vocab_mask: Tensor) -> None:
        """Allow every token in all rows."""
        vocab_mask.fill_(-1)

    @staticmethod
    def move_vocab_mask(vocab_mask: Tensor, device: Any) -> Tensor:
        """Return the bitmask on a device."""
        return vocab_mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: Tensor, vocab_mask: Tensor) -> None:
        """Set logits float [rows, V] that the rows do not allow to -inf, in place."""
        apply_mask(logits, vocab_mask[:, : words_for(logits.shape[-1])].contiguous())

    def copy(self) -> SGLangGrammar:
        """Return a new text of the same guide."""
        return SGLangGrammar(self.session.guide)

    def try_jump_forward(self, tokenizer: Any) -> tuple[list[int], str] | None:
        """Return the text that must come next, in whole characters; None if there is none."""
        data = self.session.jump_forward()
        # An unfinished character comes with the next text
        text = data.decode(errors="ignore")
        return ([], text) if text and data.startswith(text.encode()) else None

    def jump_forward_str_state(self, helper: tuple[list[int], str]) -> tuple[str, int]:
        """Return the text of `try_jump_forward`, and no state: its tokens are not known yet."""
        return helper[1], -1

    def jump_and_retokenize(self, old_output_ids: list[int], new_output_ids: list[int], next_state: int) -> None:
        """Roll back to the first token of the output that differs, and accept the new ones. Raises ValueError."""
        same = 0
        for old, new in zip(old_output_ids, new_output_ids, strict=False):
            if old != new:
                break
            same += 1
        self.session.rollback(len(old_output_ids) - same)
        if not self.session.accept(new_output_ids[same:]):
            raise ValueError(f"the tokens {new_output_ids[same:]} are not allowed by {self.session!r}")


class TrellmGrammarBackend(BaseGrammarBackend):
    """A grammar backend for SGLang: JSON Schema, regular expressions, and grammars in GBNF or Lark.

    vocab_size: width of the model's logits; eos_token_ids: tokens that end a text, in place of the tokenizer's
    compact: JSON without white space. Structural tags are refused.
    """

    def __init__(
        self, tokenizer: Any, vocab_size: int, eos_token_ids: Iterable[int] | None = None, *, compact: bool = False
    ) -> None:
        super().__init__()
        self.vocabulary = Vocabulary.from_tokenizer(tokenizer, size=vocab_size, eos_ids=eos_token_ids or None)
        self._compact = compact

    allocate_vocab_mask = staticmethod(lambda vocab_size, batch_size, device: _allocate(vocab_size, batch_size))  # type: ignore[misc]
    move_vocab_mask = staticmethod(SGLangGrammar.move_vocab_mask)
    apply_vocab_mask = staticmethod(SGLangGrammar.apply_vocab_mask)

    def initialize_vocab_mask_buffer(self, name: str, vocab_size: int, max_rows: int, device: Any) -> Tensor:
        """Return a reusable bitmask, registered with SGLang."""
        return _HOST["register_vocab_mask_buffer"](name, _allocate(vocab_size, max_rows), max_rows)

    @property
    def is_support_token_filter(self) -> bool:
        """True: strict reasoning can remove tokens from masks."""
        return True

    @staticmethod
    def set_token_filter(
        vocab_mask: Tensor, token_ids: list[int], batch_idx: int, is_allowed: bool = True, reset_vocab_mask: bool = True
    ) -> None:
        """Allow or forbid tokens in a row. With `reset_vocab_mask` all other tokens get the opposite."""
        import torch

        words = mask_of(token_ids, 32 * vocab_mask.shape[1])
        chosen = torch.from_numpy(words.view(np.int32)).to(vocab_mask.device)
        row = vocab_mask[batch_idx]
        if reset_vocab_mask:
            row.fill_(0 if is_allowed else -1)
        row.copy_(row | chosen if is_allowed else row & ~chosen)

    def dispatch_json(self, key_string: str) -> Any:
        """Return a text for a JSON Schema; "$$ANY$$" is any JSON."""
        return self._grammar_of("json", "true" if key_string == "$$ANY$$" else key_string)

    def dispatch_regex(self, key_string: str) -> Any:
        """Return a text for a regular expression."""
        return self._grammar_of("regex", key_string)

    def dispatch_ebnf(self, key_string: str) -> Any:
        """Return a text for a grammar."""
        return self._grammar_of("grammar", key_string)

    def dispatch_structural_tag(self, key_string: str) -> Any:
        """Refuse structural tags, with a reason."""
        return InvalidGrammarObject(
            "structural tags are not supported by this backend; use a grammar for text before and after JSON"
        )

    def _grammar_of(self, kind: str, text: str) -> Any:
        """Return a request's text, or an object with the reason why its constraint is invalid."""
        try:
            return SGLangGrammar(guide_for(kind, text, self.vocabulary, compact=self._compact))
        except TrellmError as error:
            return InvalidGrammarObject(str(error))


def register() -> None:
    """Register the backend with SGLang as `grammar_backend="trellm"`. Call this before SGLang parses its arguments.

    Raises OptionError for an SGLang whose interface has changed.
    """
    needed = {"sglang.srt.arg_groups.choices": ["add_grammar_backend_choices", "GRAMMAR_BACKEND_CHOICES"]}
    names = interface("SGLang", "sglang", TRIED, needed)
    if NAME not in names["GRAMMAR_BACKEND_CHOICES"]:
        names["add_grammar_backend_choices"]([NAME])
    _HOST["register_grammar_backend"](NAME, _make)


def _make(server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: set[int] | None) -> Any:
    """Make the backend for SGLang, wrapped for reasoning if the server has a reasoning parser."""
    from sglang.srt.runtime_context import get_serving

    serving = get_serving()
    compact = bool(getattr(serving, "constrained_json_disable_any_whitespace", False))
    backend = TrellmGrammarBackend(tokenizer, vocab_size, eos_token_ids, compact=compact)
    if not serving.reasoning_parser:
        return backend
    from sglang.srt.constrained.reasoner_grammar_backend import ReasonerGrammarBackend
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    parser = ReasoningParser(model_type=serving.reasoning_parser, stream_reasoning=False, tokenizer=tokenizer)
    return ReasonerGrammarBackend(
        backend, parser, tokenizer, enable_strict_thinking=bool(serving.enable_strict_thinking)
    )


def _allocate(vocab_size: int, rows: int) -> Tensor:
    import torch

    return torch.full((rows, words_for(vocab_size)), -1, dtype=torch.int32)
