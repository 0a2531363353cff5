"""A model's tool-call format, and what a request makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from ...checks import one_of, whole
from ...errors import OptionError
from ...guides.goals.specs import Goal
from ...guides.limits import Limits
from ...guides.protocol import ByteGuide
from ...guides.tagged.after_guide import MOST_FREE
from ...tokenizers_adapter import Vocabulary
from .formats import FORMATS, NAMES, FormatSpec, Spelling, detected, template_of
from .grammar import AnswerGrammar, AnswerSpec, Thinks, is_apart
from .harmony import ASSISTANT, FINAL, HarmonyGrammar
from .reader import AnswerReader
from .tools import Choice, Tool, choice_of

Thinking = Literal["auto", "on", "off"]
TAIL = 64
"""So many tokens at a prompt's end say whether its template has begun thinking."""


class ThinkingError(OptionError):
    """Thinking that the form or the prompt does not allow."""


class AnswerPlan:
    """The plan of the answers to one request.

    guide: what the answer must be; None where anything may be
    opening: tokens that are to be put behind the prompt
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
        """A reader of one answer. new_id: gives calls their ids, where the form has none; random ones if not given"""
        return AnswerReader(self._grammar, new_id)

    def read(self, token_ids: Iterable[int]) -> AnswerReader:
        """A reader that has read a whole answer."""
        reader = self.reader()
        reader.feed(token_ids)
        reader.finish()
        return reader


class ToolCallFormat:
    """The form in which a model calls tools and thinks.

    family: how its family does; thinks: whether the model thinks, as far as its chat template says
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
        """The form of a model: by its name, one of NAMES, or found by the chat template and the tokenizer.

        Raises OptionError for any other name.
        """
        if name is not None:
            one_of(name, "the form of tool calls", NAMES)
        template = template_of(model.tokenizer)
        family = detected(template, model.tokenizer) if name is None else FORMATS[name]
        thinks = family.name == "harmony" or any(marker in template for marker in family.thinking or ())
        return cls(family, model.tokenizer, model.vocabulary, thinks=thinks)

    @property
    def name(self) -> str:
        """The name of the family."""
        return self.family.name

    def __repr__(self) -> str:
        return f"Form({self.name!r}, thinks={self.thinks})"

    def plan(
        self,
        tools: tuple[Tool, ...] = (),
        choice: Choice | None = None,
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

        tools, choice: as `tools_of` and `choice_of` have them; parallel: whether there may be several calls
        thinking: "auto" as the model and its template do, "on" always, "off" never; budget: the most tokens of it
        answer: the guide of an answer that is no call
        goals: what an answer that is no call must contain, where there is no `answer`, which may be one with goals
        prompt: the tokens of the prompt, which say whether its end has begun or ended thinking
        stop: texts that end content, which they are no part of; neither thinking nor calls, so that they say nothing
            where a call is required. Not in harmony, and not together with an `answer` or goals
        limits: what the making of the guide may take, and each of its calls, see `Limits`
        Raises ToolError, OptionError, LimitError, LanguageError.
        """
        one_of(thinking, "thinking", ("auto", "on", "off"))
        is_harmony, is_own = self.name == "harmony", answer is not None or bool(goals)
        if stop and (is_own or is_harmony):
            other = "an answer of its own" if is_own else "the form 'harmony'"
            raise OptionError(f"stop together with {other} is not supported")
        if is_harmony and (goals or is_apart(answer)):
            raise OptionError("the form 'harmony' cannot have such an answer beside calls or thinking")
        thinks, opening = self._thinks(thinking, budget, prompt)
        chosen = choice_of(None, tools) if choice is None else choice
        spec = AnswerSpec(
            tools,
            chosen,
            parallel,
            thinks,
            None if budget is None else whole(budget, "the budget of thinking", 0, MOST_FREE),
            answer,
            () if chosen.mode == "required" else tuple(dict.fromkeys(stop)),
        )
        make = HarmonyGrammar if is_harmony else AnswerGrammar
        grammar = make(self.family, self._spelling, spec, has_thinking=self.thinks, goals=goals, limits=limits)
        return AnswerPlan(grammar, self._ids(opening))

    def final(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """Of harmony: what is to be put behind a prompt so that nothing follows but the answer."""
        _, opening = self._thinks("off", None, prompt)
        return self._ids(opening + FINAL)

    def _thinks(self, thinking: Thinking, budget: int | None, prompt: Sequence[int]) -> tuple[Thinks, str]:
        """Find out about thinking, and the text that is to be put behind the prompt for it. Raises OptionError."""
        if not self.thinks or self.family.thinking is None:
            if thinking == "on" or budget is not None:
                raise ThinkingError(
                    f"the model does not think in its form, {self.name!r}; leave out thinking and its budget"
                )
            return "no", ""
        begin, end = self.family.thinking
        tail = self._spelling.vocabulary.decode(prompt[-TAIL:]).rstrip()
        is_open = tail.endswith(self._spelling.data(begin))
        if tail.endswith(self._spelling.data(end)) and self.name != "harmony":
            if thinking == "on" or (budget or 0) > 0:
                raise ThinkingError(
                    "the prompt ends behind thinking, which cannot be had any more; render it otherwise"
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
        """The tokens of a text with markers."""
        found: list[int] = []
        for part in self._spelling.parts(text):
            if isinstance(part, int):
                found.append(part)
                continue
            encode: Any = self._tokenizer.encode
            try:
                ids = encode(part, add_special_tokens=False)
            except TypeError:  # a tokenizer that adds none
                ids = encode(part)
            found += getattr(ids, "ids", ids)
        return tuple(found)
