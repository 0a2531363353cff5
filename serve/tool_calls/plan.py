"""A model's tool-call format, and the plan of a request's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from ...checks import check_choice, check_int
from ...errors import OptionError
from ...guides.limits import Limits
from ...guides.protocol import ByteGuide
from ...guides.required_content.specs import Goal
from ...guides.tagged.after_guide import MAX_FREE
from ...tokenizers_adapter import Vocabulary
from .formats import FORMATS, NAMES, FormatSpec, Spelling, detect, template_of
from .grammar import AnswerGrammar, AnswerSpec, Thinks, is_unembeddable
from .harmony import ASSISTANT, FINAL, HarmonyGrammar
from .reader import AnswerReader
from .tools import Tool, ToolChoice, choice_of

Thinking = Literal["auto", "on", "off"]
TAIL = 64
"""Number of tokens at a prompt's end that show whether its template has begun thinking."""


class ThinkingError(OptionError):
    """Thinking that the format or the prompt does not allow."""


class AnswerPlan:
    """The plan of the answers to one request.

    guide: guide of the answer; None for free text
    opening: tokens to append to the prompt
    """

    def __init__(self, grammar: AnswerGrammar, opening: tuple[int, ...]) -> None:
        self.guide = grammar.guide()
        self.opening = opening
        self._grammar = grammar

    @property
    def needed(self) -> int:
        """The fewest tokens of a complete answer."""
        return 0 if self.guide is None else self.guide.distance(self.guide.start)

    def reader(self, new_id: Callable[[], str] | None = None) -> AnswerReader:
        """Return a reader of one answer. new_id: generates call ids if the format has none; random ones by default"""
        return AnswerReader(self._grammar, new_id)

    def read(self, token_ids: Iterable[int]) -> AnswerReader:
        """Return a reader that has read a whole answer."""
        reader = self.reader()
        reader.feed(token_ids)
        reader.finish()
        return reader


class ToolCallFormat:
    """The format in which a model calls tools and thinks.

    family: format of its family; thinks: True if the model thinks, according to its chat template
    """

    def __init__(self, family: FormatSpec, tokenizer: Any, vocabulary: Vocabulary, *, thinks: bool) -> None:
        self.family = family
        self.thinks = thinks and family.thinking is not None
        self.vocabulary = vocabulary
        self._tokenizer = tokenizer
        thinking = () if family.name == "harmony" else family.thinking or ()
        self._spelling = Spelling([*family.markers, *thinking], tokenizer, vocabulary)

    @classmethod
    def of(cls, model: Any, name: str | None = None) -> ToolCallFormat:
        """Return the format of a model: by name, one of NAMES, or detected by chat template and tokenizer.

        Raises OptionError for any other name.
        """
        if name is not None:
            check_choice(name, "the tool-call format", NAMES)
        template = template_of(model.tokenizer)
        family = detect(template, model.tokenizer) if name is None else FORMATS[name]
        thinks = family.name == "harmony" or any(marker in template for marker in family.thinking or ())
        return cls(family, model.tokenizer, model.vocabulary, thinks=thinks)

    @property
    def name(self) -> str:
        """The name of the family."""
        return self.family.name

    def __repr__(self) -> str:
        return f"ToolCallFormat({self.name!r}, thinks={self.thinks})"

    def plan(
        self,
        tools: tuple[Tool, ...] = (),
        choice: ToolChoice | None = None,
        *,
        parallel: bool = True,
        thinking: Thinking = "auto",
        budget: int | None = None,
        answer: ByteGuide | None = None,
        goals: tuple[Goal, ...] = (),
        prompt: Sequence[int] = (),
        stop: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> AnswerPlan:
        """Plan the answers to a request.

        tools, choice: from `tools_of` and `choice_of`; parallel: whether several calls are allowed
        thinking: "auto" as the model and its template do, "on" always, "off" never; budget: the most tokens of it
        answer: guide of an answer without calls
        goals: required content of an answer without calls, if there is no `answer`, which may have its own
        prompt: tokens of the prompt, whose end may have begun or ended thinking
        stop: stop strings of content; they apply neither to thinking nor to calls, and so have no effect if a call is
            required. Not supported in harmony, nor together with `answer` or goals
        limits: bounds of the guide's construction and queries, see `Limits`

        Raises ToolError, OptionError, LimitError, LanguageError.
        """
        check_choice(thinking, "thinking", ("auto", "on", "off"))
        is_harmony, has_constraint = self.name == "harmony", answer is not None or bool(goals)
        if stop and (has_constraint or is_harmony):
            other = "a constraint or include" if has_constraint else "the tool-call format 'harmony'"
            raise OptionError(f"stop together with {other} is not supported")
        if is_harmony and (goals or is_unembeddable(answer)):
            raise OptionError(
                "the tool-call format 'harmony' does not support this constraint beside calls or thinking"
            )
        thinks, opening = self._thinks(thinking, budget, prompt)
        chosen = choice_of(None, tools) if choice is None else choice
        spec = AnswerSpec(
            tools,
            chosen,
            parallel,
            thinks,
            None if budget is None else check_int(budget, "the budget of thinking", 0, MAX_FREE),
            answer,
            () if chosen.mode == "required" else tuple(dict.fromkeys(stop)),
        )
        make = HarmonyGrammar if is_harmony else AnswerGrammar
        grammar = make(self.family, self._spelling, spec, has_thinking=self.thinks, goals=goals, limits=limits)
        return AnswerPlan(grammar, self._ids(opening))

    def final(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens to append to a harmony prompt so that only the final answer follows."""
        _, opening = self._thinks("off", None, prompt)
        return self._ids(opening + FINAL)

    def _thinks(self, thinking: Thinking, budget: int | None, prompt: Sequence[int]) -> tuple[Thinks, str]:
        """Return the mode of thinking, and the text to append to the prompt for it. Raises OptionError."""
        if not self.thinks or self.family.thinking is None:
            if thinking == "on" or budget is not None:
                raise ThinkingError(
                    f"the model has no thinking in its tool-call format, {self.name!r}; leave out thinking and its "
                    "budget"
                )
            return "no", ""
        begin, end = self.family.thinking
        tail = self._spelling.vocabulary.decode(prompt[-TAIL:]).rstrip()
        is_open = tail.endswith(self._spelling.data(begin))
        if tail.endswith(self._spelling.data(end)) and self.name != "harmony":
            if thinking == "on" or (budget or 0) > 0:
                raise ThinkingError(
                    "the prompt ends after the end of thinking, so that thinking cannot be requested; change the "
                    "template's options"
                )
            return "no", ""
        if thinking == "off":
            return "no", (end + (ASSISTANT if self.name == "harmony" else "\n\n")) if is_open else ""
        if is_open:
            return "open", ""
        if budget is not None:
            return "open", begin
        return ("must" if thinking == "on" else "may"), ""

    def _ids(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text with markers."""
        found: list[int] = []
        for part in self._spelling.parts(text):
            if isinstance(part, int):
                found.append(part)
                continue
            encode: Any = self._tokenizer.encode
            try:
                ids = encode(part, add_special_tokens=False)
            except TypeError:  # a tokenizer that adds no special tokens
                ids = encode(part)
            found += getattr(ids, "ids", ids)
        return tuple(found)
