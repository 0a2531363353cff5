"""Generators: results of `generate.X(model, ...)`, called with prompts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, Self, TypeVar, Unpack, cast, overload

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int, implements
from ..errors import LimitError, OptionError, TrellmError
from ..guides.free_guide import FreeGuide
from ..guides.limits import Limits
from ..guides.locks import new_lock
from ..guides.pictures import svg_of
from ..guides.protocol import Capture, Findings, Guide, Rebuildable
from ..guides.quoting.source import Span
from ..guides.required_content import GoalGuide
from ..guides.required_content.specs import Goal
from ..guides.tagged.after_guide import AfterGuide
from ..tokenizers_adapter import Vocabulary
from ..tokenizers_adapter.marked import MarkedVocabulary, without_markers
from .decode.frames import After, Frame, FrameOption, Sentence, frame_for
from .decode.guide_cache import GuideCache, is_known
from .decode.requests import Job
from .decode.sequence import SequenceState
from .diagnostics import Diagnostics
from .engine import Engine, OnResult, run_together
from .fields import FieldScorer, check_fields
from .formats import NaturalSpelling
from .handle import Handle, Piece
from .models.protocol import Model, PoolingModel, SourceModel, check_guide, check_model, words_behind
from .options import DEFAULTS, CallOptions, Options, RunOptions, StreamOptions, TextOptions
from .prompts.arguments import AnyPrompts, Prompt, PromptParts, is_chat, prompts_of
from .prompts.description import with_description
from .prompts.encoding import Ids, continued
from .results import Generation, PromptToken, ReadPrompt, Scores, values_of
from .sending import Described, Description

KEPT = 8
T = TypeVar("T")
Convert = Callable[[str], T]


class _TextFindings(NamedTuple):
    """A guide's findings in a text, results of keywords that were not enforced, and an error that prevented them."""

    spans: Mapping[str, Span]
    captures: Mapping[str, tuple[Capture, ...]]
    unenforced: Mapping[str, bool | None]
    lookup_error: TrellmError | None


class Generator(Described, Generic[T]):
    """Generates texts under one constraint; reusable and thread-safe.

    Options are keyword arguments: `Options` lists them with their defaults. Streams do not take options about several
    texts, and only `run` takes options that add to results. For type checkers, `Generator[T]` returns values of type T;
    they cannot express that `search.n > 1` returns a list for each prompt.
    Generators can be pickled, as a description of the model's origin and of the constraint. Another process rebuilds
    them on first use, and loads the model once. Pickling raises OptionError for a model made from a loaded one, and for
    functions that cannot be pickled.
    """

    @overload
    def __init__(
        self: Generator[str],
        model: Model,
        guide: Guide | None = None,
        convert: None = None,
        limits: Limits | None = None,
        after: After | None = None,
        frame: Frame | FrameOption | None = None,
        natural: NaturalSpelling | None = None,
        description: str = "",
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model,
        guide: Guide | None,
        convert: Convert[T],
        limits: Limits | None = None,
        after: After | None = None,
        frame: Frame | FrameOption | None = None,
        natural: NaturalSpelling | None = None,
        description: str = "",
    ) -> None: ...
    def __init__(
        self,
        model: Model,
        guide: Guide | None = None,
        convert: Convert[T] | None = None,
        limits: Limits | None = None,
        after: After | None = None,
        frame: Frame | FrameOption | None = None,
        natural: NaturalSpelling | None = None,
        description: str = "",
    ) -> None:
        """guide: None for free text; convert: from a complete text to its value; limits: for goals of `include`

        after: free text that comes first, up to a marker; guide and value apply to the text after it
        frame: text before and after the guide's text; "sentence" for a sentence that names the answer; "reasoning" for
            free text whose last mention counts; "auto" for the default frame of answers to chats, see `frame_for`
        natural: natural spelling of the guide's texts in sentences
        description: text that is appended to prompts, see `describe` of `prompts`

        Raises OptionError.
        """
        check_model(model, "Generator")
        check_guide(guide)
        if convert is not None and not callable(convert):  # pyright: ignore[reportUnnecessaryComparison]
            raise OptionError(f"convert={convert!r}: expected a function from a text to its value, or None")
        if guide is not None and not _same(without_markers(guide.vocabulary), model.vocabulary):
            raise OptionError("the guide was made for another vocabulary; make it with model.vocabulary")
        self.model = model
        self.limits = None if limits is None else Limits.of(limits)
        self._behind = after
        self.frame: Frame | FrameOption | None = frame
        self._natural = natural
        self.description = description
        self._frame = self._around(guide)
        if after is not None:
            around = guide if guide is None or self._frame is None else self._frame.around(guide, self.limits)
            guide = after.before(around, model, self.limits)
        elif guide is not None and self._frame is not None:
            guide = self._frame.closed(guide, self.limits)
        self._take(guide)
        self._convert = convert
        # Under a constraint, the model's text prefix counts as a healed prompt tail.
        self.text_prefix = model.text_prefix if implements(model, SourceModel) and guide is None else b""
        self._with_goals: dict[tuple[Goal, ...], GuideCache] = {}
        self._lock = new_lock()

    def _take(self, guide: Guide | None) -> None:
        self.guide = guide
        self._guide_cache = (
            None if guide is None else GuideCache(guide, self.model.sparse_head_limit, limits=self.limits)
        )
        self._after = guide if isinstance(guide, AfterGuide) else None
        self._inner = self._bare(guide)
        self._unenforced_in: Callable[[str], Mapping[str, bool | None]] | None = getattr(
            self._inner, "unenforced_in", None
        )

    def _around(self, guide: Guide | None) -> Frame | Sentence | None:
        """Return the frame of all answers. Raises OptionError, LimitError."""
        if self.frame == "sentence" or self.frame == "reasoning":
            return Sentence(guide, self._natural, self.limits, is_last=self.frame == "reasoning")
        return None if self.frame == "auto" else self.frame

    @cached_property
    def _around_chats(self) -> Frame | FrameOption | None:
        """The default frame of answers to chats."""
        is_asked = self.frame == "auto" and self._behind is None
        return frame_for(self.model, self.guide, self._natural) if is_asked else None

    @property
    def _before_chats(self) -> Frame | None:
        """The default frame if it has only text before the answer, so that the constraint is unchanged; None
        otherwise."""
        frame = self._around_chats
        return frame if isinstance(frame, Frame) and not frame.behind else None

    @cached_property
    def _framed(self) -> Generator[Any] | None:
        """The generator of answers to chats if the default frame changes the constraint."""
        frame, limits = self._around_chats, self.limits
        if frame is None or self._before_chats is not None:
            return None
        try:
            return Generator(self.model, self.guide, None, limits, None, frame, self._natural)
        except LimitError:  # the constraint is too large for a sentence
            return None

    def _bare(self, guide: Any) -> Any:
        """Return the guide of the answer without its frame."""
        bare: Any = guide.child if isinstance(guide, AfterGuide) else guide
        if self._frame is None or bare is None:
            return bare
        if isinstance(self._frame, Sentence):
            return self._frame.answer
        if self._behind is not None and self._frame.before:
            bare = bare.child
        return bare.child if self._frame.behind else bare

    @overload
    def __call__(self, prompts: Prompt, **options: Unpack[CallOptions]) -> T: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, prompts: Sequence[Prompt], **options: Unpack[CallOptions]) -> list[T]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, prompts: PromptParts, **options: Unpack[CallOptions]) -> T: ...
    @overload
    def __call__(self, prompts: Sequence[Prompt | PromptParts], **options: Unpack[CallOptions]) -> list[T]: ...
    def __call__(self, prompts: AnyPrompts, **options: Unpack[CallOptions]) -> T | list[T]:
        """Return the output's value; a list for a list of prompts, and for each prompt if `search.n > 1`.

        A prompt is a text, a list of token ids, or a chat: a list of messages such as {"role": "user", "content":
        "Hello"}, rendered by the tokenizer's template. A list of these is several prompts. Token ids and chats are read
        unchanged, without BOS or token healing. A list of texts, images and audio is one prompt, a user's message, for
        multimodal models: `Image`, PIL images, `Audio`, pathlib.Path, the bytes of a file. In chats they are
        {"type": "image", "image": ...} and {"type": "audio", "audio": ...}, beside {"type": "text", "text": ...}.
        Raises ConversionError, with all results, if a validator of the requested type rejects an output.
        """
        chosen = Options.of(CallOptions, options)
        several, is_single = prompts_of(prompts)
        values = values_of(self.run_texts(several, chosen), several)
        return values[0] if is_single else values

    @overload
    def run(self, prompts: Prompt, **options: Unpack[RunOptions]) -> Generation[T]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def run(self, prompts: Sequence[Prompt], **options: Unpack[RunOptions]) -> list[Generation[T]]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def run(self, prompts: PromptParts, **options: Unpack[RunOptions]) -> Generation[T]: ...
    @overload
    def run(self, prompts: Sequence[Prompt | PromptParts], **options: Unpack[RunOptions]) -> list[Generation[T]]: ...
    def run(self, prompts: AnyPrompts, **options: Unpack[RunOptions]) -> Any:
        """Return a `Generation` in place of each value. If an output is rejected, its `error` is set.

        Ctrl-C raises Interrupted, a KeyboardInterrupt whose `finished` holds the results so far. Exceptions of the
        model also have `finished`.
        """
        chosen = Options.of(RunOptions, options)
        several, is_single = prompts_of(prompts)
        found = self.run_texts(several, chosen)
        return found[0] if is_single else found

    @overload
    def stream(self, prompts: Prompt, **options: Unpack[TextOptions]) -> Iterator[str]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def stream(self, prompts: Sequence[Prompt], **options: Unpack[StreamOptions]) -> Iterator[Piece]: ...
    @overload
    def stream(self, prompts: PromptParts, **options: Unpack[TextOptions]) -> Iterator[str]: ...
    @overload
    def stream(self, prompts: Sequence[Prompt | PromptParts], **options: Unpack[StreamOptions]) -> Iterator[Piece]: ...
    def stream(self, prompts: AnyPrompts, **options: Unpack[StreamOptions]) -> Any:
        """Yield the output in pieces of whole characters, as soon as they are committed.

        For a list of prompts each is a `Piece` with the prompt's number; the last one of a text has its `Generation`.
        With `logprobs=`, pieces also have the log-probabilities of their tokens.
        """
        chosen = Options.of(StreamOptions, options)
        several, is_single = prompts_of(prompts)
        if chosen.search.n != 1:
            raise OptionError(f"search={chosen.search!r}: a stream has one text for each prompt; use n=1")
        if is_single and chosen.logprobs:
            raise OptionError(
                f"logprobs={chosen.logprobs}: a stream of a single prompt yields only text; give a list, "
                "stream([prompt], ...), whose pieces have log-probabilities"
            )
        pieces = self._handle(several, chosen).pieces()
        return (piece.text for piece in pieces if piece.text) if is_single else pieces

    def iter(
        self, prompts: Sequence[Prompt | PromptParts], **options: Unpack[CallOptions]
    ) -> Iterator[tuple[int, Generation[T]]]:
        """Yield the results of a list of prompts as they finish, each with the number of its prompt."""
        handle = self._handle(prompts_of(prompts).items, Options.of(CallOptions, options))

        def results() -> Iterator[tuple[int, Generation[T]]]:
            for each in handle.finished():
                assert each.result is not None, "it is the last piece of a text"
                yield each.prompt, each.result

        return results()

    def _handle(self, prompts: Sequence[Prompt], options: Options) -> Handle:
        return Handle(Engine.of(self.model), [(self, prompt) for prompt in prompts], options)

    def run_texts(self, prompts: Sequence[Prompt], options: Options, on_result: OnResult | None = None) -> list[Any]:
        """Return results of `run` for a list of prompts. on_result: called with each finished text"""
        if options.fields:
            return self.field_scorer(options).run(prompts, options, on_result)
        return run_together([(self, prompt) for prompt in prompts], options, on_result)

    def field_scorer(self, options: Options) -> FieldScorer:
        """Return the scorer for `fields=True`. Answers then have no default frame. Raises OptionError."""
        frame = self._frame if self._behind is None else "sentence"
        check_fields(self.model, self._inner, frame, options)
        return FieldScorer(self.alone, self.guide, cast("Frame | None", frame), self._convert)

    @cached_property
    def alone(self) -> Generator[T]:
        """This generator without a default frame that changes the constraint."""
        if self._before_chats is not None:
            return self
        copied = copy.copy(self)
        copied._around_chats = copied._framed = None
        copied.frame = None if self.frame == "auto" else self.frame
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy with the model. The guide and its caches are shared, since they are thread-safe."""
        copied = copy.copy(self)
        memo[id(self)] = copied
        if self._unbuilt is None:
            copied.model = copy.deepcopy(self.model, memo)
        return copied

    def _described(self) -> Description:
        options: dict[str, Any] = {"convert": self._convert, "limits": self.limits}
        options |= {"after": self._behind, "frame": self.frame, "natural": self._natural}
        options["description"] = self.description
        return Description.of(type(self), self.model, self._inner, options)

    def __repr__(self) -> str:
        return f"<Generator of {'free text' if self.guide is None else repr(self.guide)} with {self.model!r}>"

    def _repr_svg_(self) -> str | None:
        """Return the picture of the constraint for notebooks; None if it has none or is too large."""
        return svg_of(self.guide)

    def job(self, prompt: Prompt, options: Options = DEFAULTS) -> Job:
        """Return the prompt with this generator's constraint and required content. Raises the errors of
        `guides.GoalGuide`.

        A text that continues the last message of a chat has no default frame.
        """
        if self.description:
            prompt = with_description(prompt, self.description)
        is_answer = is_chat(prompt) and not options.continues
        framed = self._framed if is_answer else None
        if framed is not None and not (framed.frame == "sentence" and options.include):
            return framed.job(prompt, options)
        guide_cache = self.guide_cache(options.include)
        frame = self._frame or (self._before_chats if is_answer else None)
        if frame is None or self._after is not None:
            return Job(prompt, guide_cache)
        return Job(prompt + frame.before if isinstance(prompt, str) else prompt, guide_cache, frame=frame)

    def knows(self, prompt: Prompt, ids: Ids, options: Options) -> bool:
        """Test whether entering a prompt needs no query of the constraint, and so cannot block. ids: the prompt's
        tokens"""
        is_answer = is_chat(prompt) and not options.continues
        if options.include or self._frame is not None or (is_answer and self._framed is not None):
            return False
        if self._guide_cache is None:
            return True
        heal, before = isinstance(prompt, str), self._before_chats if is_answer else None
        if before is not None:
            heal, ids = True, (*ids, *continued(self.model, before.before, 0))
        return is_known(self.model, tuple(words_behind(ids)), self._guide_cache, heal=options.heal and heal)

    def guide_cache(self, goals: tuple[Goal, ...] = ()) -> GuideCache | None:
        """Return the constraint with further goals, as `goals_of` returns them; None for free text.

        Raises the errors of `guides.GoalGuide`.

        Rebuilds the guide if it should be. The constraints of the last few goals are cached: their states are costly.
        """
        if implements(self.guide, Rebuildable) and self.guide.should_rebuild:
            with self._lock:
                if self.guide.should_rebuild:
                    self._take(self.guide.rebuild())
        if not goals:
            return self._guide_cache
        with self._lock:
            known = self._with_goals.pop(goals, None)
            if known is None:
                child: Any = FreeGuide(self.model.vocabulary) if self.guide is None else self.guide
                guide = GoalGuide(child, goals, limits=self.limits)
                known = GuideCache(
                    guide, self.model.sparse_head_limit, may_be_cut=self.guide is None, limits=self.limits
                )
            self._with_goals[goals] = known
            if len(self._with_goals) > KEPT:
                del self._with_goals[next(iter(self._with_goals))]
            return known

    def result(self, sequence: SequenceState, options: Options) -> Generation[T]:
        """Return the result of a finished sequence."""
        assert sequence.finish is not None
        logprobs = bool(options.logprobs) or options.fields
        scores = Scores.of(sequence, 0, len(sequence.tokens), self.model.vocabulary) if logprobs else None
        text_prefix = b"" if sequence.request.start.guide_cache else self.text_prefix
        text = bytes(sequence.text).removeprefix(text_prefix).decode(errors="replace")
        thought = None if self._after is None else self._after.split(sequence.tokens[sequence.inside :])
        frame, free = sequence.request.frame, None
        if frame is not None:
            free, text = frame.split(text)
        answer = text if thought is None else thought.answer
        if thought is not None:
            free, answer = thought.free, answer if self._frame is None else self._frame.within(answer)
        value, error = self._convert_text(answer, sequence)
        return Generation(
            text=text,
            value=value,
            token_ids=tuple(sequence.tokens[sequence.inside :]),
            finish_reason=sequence.finish,
            overlap=sequence.overlap(self.model.vocabulary),
            logprobs=None if scores is None else scores.logprobs,
            raw_logprobs=None if scores is None else scores.raw_logprobs,
            top_logprobs=None if scores is None else scores.top_logprobs,
            raw_top_logprobs=None if scores is None else scores.raw_top_logprobs,
            prompt_logprobs=PromptToken.several_of(sequence, self.model.vocabulary),
            score=sum(sequence.scores) + sequence.end_score if sequence.score is None and logprobs else sequence.score,
            overruled=tuple(sorted(sequence.overruled)),
            diagnostics=self._diagnostics(sequence) if options.diagnostics else None,
            unmet=_unmet(sequence),
            trace=sequence.trace,
            steps=sequence.steps,
            error=error,
            thought=free,
            thought_cut=thought is not None and thought.is_cut,
            read=ReadPrompt(sequence, self.model.vocabulary),
            **self._look_up(answer, sequence)._asdict(),
            **({} if sequence.drawn is None else sequence.drawn._asdict()),
        )

    def said(self, result: Generation[Any], text: str, sequence: SequenceState) -> Generation[T]:
        """Return another generator's result, with value and findings by this generator's constraint of part of its
        text."""
        value, error = self._convert_text(text, sequence)
        return replace(result, value=value, error=error, **self._look_up(text, sequence)._asdict())

    def _convert_text(self, text: str, sequence: SequenceState) -> tuple[T, Exception | None]:
        """Return the value, or the exception of the conversion."""
        try:
            return self.value_of(text, sequence), None
        except Exception as error:
            return cast(T, None), error

    def _look_up(self, text: str, sequence: SequenceState) -> _TextFindings:
        """Return the guide's findings in a finished text."""
        found = _TextFindings({}, {}, {}, None)
        try:
            found = found._replace(**Findings.of(self._inner, text, self._marked(sequence))._asdict())
            if self._unenforced_in is not None and sequence.finish == "complete":
                found = found._replace(unenforced=self._unenforced_in(text))
        except TrellmError as error:
            return found._replace(lookup_error=error)
        return found

    def _marked(self, sequence: SequenceState) -> bytes | None:
        """Return the bytes of the answer if the constraint contains special tokens, which the text lacks; None
        otherwise."""
        vocabulary = None if self._inner is None else self._inner.vocabulary
        if not isinstance(vocabulary, MarkedVocabulary):
            return None
        tokens = sequence.tokens[sequence.inside :]
        if self._after is not None:
            data = self._after.behind(tokens)
        else:
            data = vocabulary.decode(tokens)[sequence.overlap(self.model.vocabulary) :]
        if not isinstance(self._frame, Frame):
            return data
        before = "" if self._after is None else self._frame.before
        return data.removeprefix(before.encode()).removesuffix(self._frame.behind.encode())

    def value_of(self, text: str, sequence: SequenceState) -> T:
        """Return the value of a finished sequence's text."""
        return cast(T, text) if self._convert is None else self._convert(text)

    def _diagnostics(self, sequence: SequenceState) -> Diagnostics:
        assert sequence.finish is not None
        guide_cache = sequence.request.start.guide_cache
        guide = None if guide_cache is None else guide_cache.guide
        return Diagnostics.of(sequence.traces, self.model.vocabulary, guide, sequence.finish)


def _unmet(sequence: SequenceState) -> tuple[str, ...]:
    """Return the goals that a text does not meet because it was cut."""
    guide_cache = sequence.request.start.guide_cache
    return () if guide_cache is None or guide_cache.goals is None else guide_cache.goals.missing(bytes(sequence.text))


def _same(left: Vocabulary, right: Vocabulary) -> bool:
    return left is right or left.fingerprint == right.fingerprint


Embedding = NDArray[np.float32]


class Embedder(Generator[Any]):
    """Embeds prompts; the value is float32 [dimensions], normalised to length 1.

    It is the final hidden state of the prompt's last token after the final norm, cut to its first `dimensions`
    components
    and normalised: last-token pooling, as servers use it for decoders.
    """

    def __init__(self, model: Model, guide: None = None, dimensions: int | None = None) -> None:
        """guide: must be None; dimensions: number of components, by default all. Raises OptionError."""
        check_model(model, "Embedder")
        if not implements(model, PoolingModel) or not model.embedding_size:
            raise OptionError(
                f"{model!r} has no embeddings; they need the final hidden states of a decoder of transformers or a "
                "GGUF file whose head is separate from its body"
            )
        super().__init__(model)
        self._requested_dimensions = dimensions
        self.dimensions = (
            model.embedding_size if dimensions is None else check_int(dimensions, "dimensions", 1, model.embedding_size)
        )

    def job(self, prompt: Prompt, options: Options = DEFAULTS) -> Job:
        """Return the prompt as a job for an embedding."""
        return Job(prompt, None, pools=self.dimensions)

    def result(self, sequence: SequenceState, options: Options) -> Generation[Embedding]:
        """Return the result of a prompt: an empty text whose value is the embedding."""
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
        return Description.of(type(self), self.model, None, {"dimensions": self._requested_dimensions})

    def __repr__(self) -> str:
        return f"<Embedder of {self.dimensions} dimensions with {self.model!r}>"
