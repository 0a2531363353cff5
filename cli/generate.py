"""`trellm generate`: texts under a constraint, for one prompt or a file of prompts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from .. import guides
from ..checks import shown
from ..engine.loading_options import LoadingOptions
from ..errors import TrellmError
from .constraint import ConstraintOptions, constraint_options
from .ending import Interruption, interruptible
from .files import (
    Output,
    PromptLine,
    ResumedRun,
    StandardOutput,
    json_of,
    plain_lines,
    read_file,
    read_prompts,
    report_page,
    result_line,
    writing,
)
from .flags import SizeType, TextType, grouped
from .models import load_model, loading_options, threads_option
from .search import SearchOptions, search_options

if TYPE_CHECKING:
    from ..engine.decode.frames import FrameOption
    from ..engine.engine import OnResult
    from ..engine.generator import Generator
    from ..engine.models.protocol import Model
    from ..engine.options import Options
    from ..engine.prompts.arguments import Prompt


@dataclass(frozen=True)
class ChatOptions:
    """Options of chats. is_on: texts become user messages; after, thinking, frame: options of constraints

    tools, documents: contents of the files
    """

    is_on: bool
    after: str | None
    thinking: int | None
    tools: list[Any] | None
    documents: list[Any] | None
    frame: tuple[str, str] | FrameOption | None

    def options(self) -> dict[str, Any]:
        """Return options of a call."""
        return {"tools": self.tools, "documents": self.documents}

    def prompts(self, prompts: list[PromptLine]) -> list[PromptLine]:
        """Return the prompts, with texts converted to chats if requested."""
        return [
            replace(each, prompt=[{"role": "user", "content": _content(each.parts)}])
            if self.is_on and each.parts is not None
            else each
            for each in prompts
        ]


def _content(parts: list[Any]) -> str | list[dict[str, Any]]:
    """Return the content of a message: a text, or images and audio followed by a text."""
    if len(parts) == 1:
        return parts[0]
    from ..engine.prompts.arguments import part_of

    return [part_of(each) for each in parts]


def chat_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the chat options to a command, which gets them as `chatting`."""

    @click.option("--chat", is_flag=True, help="Each prompt is a user's message in the model's chat template.")
    @click.option(
        "--after",
        type=TextType(),
        metavar="TEXT",
        help="Free text up to this marker comes before the constrained text.",
    )
    @click.option("--thinking", type=click.IntRange(0), help="Most tokens of the free text of --after. [default: 1024]")
    @click.option(
        "--frame",
        type=(TextType(), TextType()),
        metavar="BEFORE BEHIND",
        help="Texts before and after the answer in the model's context; neither is part of the answer.",
    )
    @click.option(
        "--sentence",
        is_flag=True,
        help="The model writes a sentence, and the answer is the value that it names; the default for choices in "
        "chats.",
    )
    @click.option(
        "--reasoning",
        is_flag=True,
        help="The model writes free text of up to 256 tokens, and the answer is the last value that it names.",
    )
    @click.option("--no-frame", is_flag=True, help="No sentence or quotation marks around answers to chats.")
    @click.option("--tools", callback=_read_list, metavar="FILE", help="A JSON list of tools, for chats.")
    @click.option(
        "--documents", "of_chats", callback=_read_list, metavar="FILE", help="A JSON list of documents, for chats."
    )
    @functools.wraps(command)
    def with_chats(*args: Any, chat: bool, of_chats: list[Any] | None, **others: Any) -> Any:
        chosen = {name: others.pop(name) for name in ("after", "thinking", "tools")}
        pair, is_bare = others.pop("frame"), others.pop("no_frame")
        named = [name for name in ("sentence", "reasoning") if others.pop(name)]
        if (pair is not None) + len(named) + is_bare > 1:
            flags = "--frame, --sentence, --reasoning and --no-frame"
            raise click.UsageError(f"{flags} exclude each other; leave all but one out")
        frame: Any = None if is_bare else named[0] if named else pair or "auto"
        return command(*args, chatting=ChatOptions(chat, documents=of_chats, frame=frame, **chosen), **others)

    return with_chats


def _read_list(context: click.Context, parameter: click.Parameter, path: str | None) -> list[Any] | None:
    text = read_file(context, parameter, path)
    if path is None or text is None:
        return None
    value: Any = json_of(text, path)
    if not isinstance(value, list):
        raise click.BadParameter(f"{path!r} holds no JSON list")
    return cast("list[Any]", value)


_RECORDING = (
    click.option(
        "--out", "-o", metavar="FILE", help="Write results as JSON Lines to this file, - for standard output."
    ),
    click.option("--overwrite", is_flag=True, help="Overwrite the file of --out."),
    click.option(
        "--resume", is_flag=True, help="Continue an interrupted run: skip prompts whose results are in --out."
    ),
    click.option(
        "--batch-size", type=click.IntRange(1), default=16, show_default=True, help="Most sequences that run at once."
    ),
    click.option("--logprobs", is_flag=True, help="Add token ids and log-probabilities to the results in --out."),
    click.option(
        "--top-logprobs",
        type=click.IntRange(1, 1000),
        metavar="K",
        help="As --logprobs, and also the K likeliest tokens of each step.",
    ),
    click.option(
        "--fields", is_flag=True, help="Add the probability of each value of an answer to the results in --out."
    ),
    click.option(
        "--diagnose", metavar="FILE", help="Write a web page that shows what the constraint did to each token."
    ),
)


@dataclass(frozen=True)
class ResultOptions:
    """Options of result files: their paths and contents."""

    out: str | None
    overwrite: bool
    resume: bool
    batch_size: int
    logprobs: bool
    top_logprobs: int | None
    fields: bool
    diagnose: str | None

    def options(self) -> dict[str, Any]:
        """Return options of a call."""
        return {
            "batch_size": self.batch_size,
            "logprobs": self.top_logprobs or self.logprobs,
            "diagnostics": self.diagnose is not None,
            "fields": self.fields,
        }

    def check(self, prompts: TextIO | None) -> None:
        """Raise UsageError for options without a result file, and for a file that would lose results."""
        out = self.out
        if (self.logprobs or self.top_logprobs or self.fields) and out is None:
            flag = "--fields" if self.fields else "--top-logprobs" if self.top_logprobs else "--logprobs"
            raise click.UsageError(f"{flag} adds to the results of --out; give --out FILE, or --out -")
        if self.diagnose == "-":
            raise click.UsageError("--diagnose needs the name of a file; standard output has the texts")
        if self.resume and (out is None or out == "-" or self.diagnose is not None):
            raise click.UsageError("--resume continues the file of --out; give --out FILE, and leave --diagnose out")
        if self.overwrite and (out is None or self.resume):
            raise click.UsageError("--overwrite needs --out, and excludes --resume; leave it out")
        if out not in (None, "-") and not (self.resume or self.overwrite) and _has_lines(Path(str(out))):
            raise click.UsageError(
                f"--out {out} has results already; continue them by --resume, or replace them by --overwrite"
            )
        if out not in (None, "-") and prompts is not None and _is_same(str(out), prompts.name):
            raise click.UsageError(
                f"--out {out} is the file of --prompts, which would be overwritten; name another file"
            )


_ASKING = (
    click.option("--prompt", "-p", type=TextType(), help="The prompt; the output goes to standard output as it comes."),
    click.option(
        "--prompts",
        type=click.File(encoding="utf-8-sig"),
        help='A file of prompts, - for standard input; each line a JSON string or {"prompt": ..., ...}, '
        "or all plain text.",
    ),
    *(
        click.option(
            flag,
            type=click.Path(dir_okay=False),
            multiple=True,
            metavar="FILE",
            help=f"{about} of every prompt; repeatable. Lines of --prompts have their own as {member}.",
        )
        for flag, about, member in (
            ("--image", "An image before the text", '"images"'),
            ("--audio", "Audio after the images", '"audio"'),
        )
    ),
)


@dataclass(frozen=True)
class PromptOptions:
    """Options of prompts. prompt: a single one; prompts: a file of them; image, audio: files placed before the text of
    each"""

    prompt: str | None
    prompts: TextIO | None
    image: tuple[str, ...]
    audio: tuple[str, ...]

    def check(self) -> None:
        """Raise UsageError unless exactly one of the two is given."""
        if (self.prompt is None) == (self.prompts is None):
            raise click.UsageError("give exactly one of --prompt and --prompts")

    def read(self) -> list[PromptLine]:
        """Read all prompts with images and audio. Raises UsageError, ImageError, AudioError."""
        if self.prompt is not None:
            lines = [PromptLine(self.prompt, {"prompt": self.prompt}, "--prompt")]
        else:
            assert self.prompts is not None
            lines = read_prompts(self.prompts)
        if not self.image and not self.audio:
            return lines
        from ..engine.media import KINDS

        files = [("image", path) for path in self.image] + [("audio", path) for path in self.audio]
        media = [KINDS[kind].of(Path(path), f"--{kind} {path}") for kind, path in files]
        return [each.with_media(media) for each in lines]


_AIMING = (
    click.option(
        "--include",
        type=TextType(),
        multiple=True,
        metavar="TEXT",
        help="The output contains this text; repeatable.",
    ),
    click.option(
        "--include-word",
        type=TextType(),
        multiple=True,
        metavar="TEXT",
        help="As --include, with no letter, digit or underscore beside it; repeatable.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(1),
        help="Most tokens of an output. Default: 256 beyond the shortest output.",
    ),
    click.option("--seed", type=int, help="Seed that makes random sampling repeatable."),
)


@dataclass(frozen=True)
class ContentOptions:
    """Options of the output. include, include_word: required content; max_tokens, seed: options of a call"""

    include: tuple[str, ...]
    include_word: tuple[str, ...]
    max_tokens: int | None
    seed: int | None

    def options(self) -> dict[str, Any]:
        """Return options of a call."""
        from ..guides.required_content.specs import Phrase

        goals = [*self.include, *(Phrase(text, word=True) for text in self.include_word)]
        return {"include": goals, "max_tokens": self.max_tokens, "seed": self.seed}


_DECODING = (
    click.option(
        "--stop",
        type=TextType(),
        multiple=True,
        metavar="TEXT",
        help="Stop string: free text ends before it; repeatable.",
    ),
    click.option("--no-heal", is_flag=True, help="Do not heal prompts that end inside a token."),
    click.option("--no-draft", is_flag=True, help="Read no drafts of the next tokens."),
    click.option(
        "--draft", metavar="MODEL", help="A smaller model with the same vocabulary, which drafts the next tokens."
    ),
)


@dataclass(frozen=True)
class DecodingOptions:
    """Options of decoding. stop: stop strings; no_heal, no_draft: negated options of a call; draft: a draft model"""

    stop: tuple[str, ...]
    no_heal: bool
    no_draft: bool
    draft: str | None

    def check(self, searching: SearchOptions) -> None:
        """Raise UsageError for a draft model without drafting."""
        if self.draft is not None and self.no_draft:
            raise click.UsageError(f"--draft {self.draft} and --no-draft exclude each other; leave one of them out")
        if self.draft is not None and not searching.uses_drafts:
            raise click.UsageError(f"--draft {self.draft} has no effect with --beams or --search; leave it out")

    def options(self) -> dict[str, Any]:
        """Return options of a call, except for the draft model, which is loaded later."""
        return {"stop": self.stop, "heal": not self.no_heal, "draft": not self.no_draft}


@click.command()
@click.option(
    "--model",
    "-m",
    "name",
    help="A name of `trellm models` or the Hub, a folder, a GGUF file, or ziplm:FILE. [default: the small one]",
)
@constraint_options
@click.option(
    "--extract-field",
    "document_field",
    metavar="NAME",
    help="As --extract, with a document, or a list, in this field of each line of --prompts.",
)
@grouped(PromptOptions, "asking", _ASKING)
@grouped(ContentOptions, "aiming", _AIMING)
@search_options
@chat_options
@click.option("--describe", is_flag=True, help="Append the schema of --schema or --pydantic to prompts.")
@grouped(DecodingOptions, "decoding", _DECODING)
@grouped(ResultOptions, "recording", _RECORDING)
@click.option(
    "--memory", type=SizeType(), help="Size of the KV cache, such as 2GiB; by default half of the free memory."
)
@loading_options
@threads_option
def generate(
    constraint: ConstraintOptions,
    name: str | None,
    asking: PromptOptions,
    aiming: ContentOptions,
    searching: SearchOptions,
    chatting: ChatOptions,
    describe: bool,
    decoding: DecodingOptions,
    recording: ResultOptions,
    memory: int | None,
    loading: LoadingOptions,
) -> int:
    """Generate texts with a model, under the constraint of --regex, --choice, --format, --grammar, --schema, --pydantic
    or --extract, if there is one.

    \b
        trellm generate -m Qwen/Qwen3-0.6B -r '[0-9]{4}' -p 'The first Moon landing was in '
        trellm generate -m ziplm:notes.txt -c yes -c no --prompts questions.jsonl --out answers.jsonl
        trellm generate -m Qwen/Qwen3-0.6B --schema person.schema.json --chat -p 'Describe a person.'
        trellm generate -m Qwen/Qwen3-0.6B --extract report.txt --prompts questions.jsonl --out answers.jsonl
        trellm generate -m llava-hf/llava-1.5-7b-hf --image cat.png -c cat -c dog -p 'Which animal is it?'
        trellm generate -m Qwen/Qwen3-0.6B --extract-field mail --prompts mails.jsonl --out senders.jsonl

    A prompt in a file is a JSON string, a list of token ids, or a list of messages such as
    {"role": "user", "content": "Hello"}, which the tokenizer's chat template renders. The fields "images" and "audio"
    of a line name files placed before its text, and a message may have parts such as {"type": "image", "image":
    "cat.png"}. All paths are relative to the file of prompts.

    Results in --out repeat the members of a prompt's line and add "output" and "finish_reason" ("complete", "stop" or
    "length"); "span" with --extract (the text's position); "spans" with the positions of quotations under --schema,
    --pydantic or --grammar; "captures" with the matches of [capture] rules of --grammar and of named groups of --regex,
    with positions; "unmet" with the parts of --include that are missing because --stop cut the text short; "unenforced"
    with --unenforced allow: whether such keywords hold; "fields" with --fields: the probability of each value by JSON
    pointer; "thought" and "thought_cut" with --after: the text before the constraint, and whether --thinking cut it;
    and "sample" if there are several for each prompt. Each result is written as soon as it is finished, and all are put
    in order at the end. Ctrl-C and SIGTERM keep finished results, and the same command with --resume continues from
    there, also after a crash.
    """
    asking.check()
    recording.check(asking.prompts)
    decoding.check(searching)
    if describe and constraint.structure is None:
        raise click.UsageError("--describe belongs to --schema or --pydantic, which are missing")
    lines = asking.read()
    _check_documents(lines, constraint.document_field, asking.prompts, searching.samples)
    lines = chatting.prompts(lines)
    options = {**aiming.options(), **searching.options(), **decoding.options(), **chatting.options()}
    _check({**options, **recording.options()})
    if decoding.draft is not None:
        options["draft"] = load_model(decoding.draft, loading)
    is_plain = asking.prompt is not None and recording.out is None
    load = partial(_load, name, loading, memory)
    if is_plain and searching.samples == 1 and recording.diagnose is None:
        return _print_stream(lambda: _generator(load(), constraint, chatting, describe), lines[0].prompt, options)
    resumed = ResumedRun.of(lines, recording.out if recording.resume else None, searching.samples)
    begin = partial(_prepare_run, load, resumed.running, constraint, chatting, describe)
    return _record(recording, resumed, begin, options, is_plain)


def _record(
    recording: ResultOptions, resumed: ResumedRun, begin: Callable[[], Run], options: dict[str, Any], is_plain: bool
) -> int:
    """Generate the remaining texts into the result files, which are opened before a model is loaded. Return the exit
    code."""
    if recording.resume:
        click.echo(f"trellm: {len(resumed.done):,} of {len(resumed.prompts):,} prompts are done", err=True)
    if not resumed.left:
        return 0
    with ExitStack() as files:
        output = files.enter_context(writing("-" if recording.out is None else recording.out))
        report = None if recording.diagnose is None else files.enter_context(writing(recording.diagnose, "--diagnose"))
        output.begin(resumed.done_lines)
        end = files.enter_context(interruptible())
        write = partial(_write_results, resumed, output, report, is_plain)
        return _run(begin(), resumed.running, options | recording.options(), end, output, write)


def _write_results(
    resumed: ResumedRun,
    output: Output | StandardOutput,
    report: Output | StandardOutput | None,
    is_plain: bool,
    results: list[Any],
) -> None:
    """Write finished results in order: texts alone if `is_plain`, and the page of diagnostics."""
    output.finish(plain_lines(resumed.running, results) if is_plain else resumed.lines(results))
    if report is not None:
        _warn(results)
        if any(results):
            report.finish([report_page(resumed.running, results).removesuffix("\n")])


def _check(options: dict[str, Any]) -> None:
    """Validate options before a model is loaded."""
    from ..engine.options import Options, RunOptions

    Options.of(RunOptions, options)


def _load(name: str | None, loading: LoadingOptions, memory: int | None) -> Model:
    """Load the named model, or the small one. memory: bytes of its engine"""
    from ..engine.engine import Engine

    model = load_model(name, loading)
    if memory is not None:
        Engine(model, memory=memory)
    return model


def _generator(
    model: Model, constraint: ConstraintOptions, chatting: ChatOptions, is_described: bool
) -> Generator[Any]:
    """Return the generator of the constraint. is_described: append the schema to prompts"""
    from ..engine import prompts
    from ..engine.decode.frames import After, frame_of, special_token
    from ..engine.extraction import Extractor
    from ..engine.generator import Generator

    special = partial(special_token, model)
    guide = None if constraint.is_free else constraint.guide(model.vocabulary, special=special)
    limits = constraint.limits
    after = After.of(chatting.after, chatting.thinking)
    frame = frame_of(chatting.frame)
    if isinstance(guide, guides.SubstringGuide):
        return Extractor(model, guide, limits=limits, after=after, frame=frame)
    description = prompts.describe(constraint.structure) if is_described else ""
    options: Any = {"frame": frame, "natural": constraint.natural, "description": description}
    return Generator(model, guide, limits=limits, after=after, **options)


Run = Callable[["Options", "OnResult"], list[Any]]
"""A function that generates for all prompts, and reports each finished text."""


def _prepare_run(
    load: Callable[[], Model],
    lines: Sequence[PromptLine],
    constraint: ConstraintOptions,
    chatting: ChatOptions,
    is_described: bool,
) -> Run:
    """Return a run with one generator for all prompts, or with one for each document, shared by its prompts."""
    from ..engine.engine import run_together
    from ..engine.prompts.arguments import prompts_of

    model, prompts = load(), prompts_of([line.prompt for line in lines]).items
    if constraint.document_field is None:
        generator = _generator(model, constraint, chatting, is_described)
        return partial(generator.run_texts, prompts)
    generators: dict[tuple[str, ...], Generator[Any]] = {}
    pairs: list[tuple[Generator[Any], Any]] = []
    for line, prompt in zip(lines, prompts, strict=True):
        documents = line.texts(constraint.document_field)
        if documents not in generators:
            with_documents = replace(constraint, document_field=None, documents=documents)
            try:
                generators[documents] = _generator(model, with_documents, chatting, is_described)
            except TrellmError as error:
                raise click.UsageError(f"{line.place}, field {constraint.document_field!r}: {error}") from None
        pairs.append((generators[documents], prompt))
    return partial(run_together, pairs)


def _check_documents(lines: Sequence[PromptLine], name: str | None, prompts: TextIO | None, samples: int) -> None:
    """Raise UsageError for lines without the field of documents."""
    if name is None:
        return
    if prompts is None:
        raise click.UsageError(f"--extract-field {name} names a field of the lines of --prompts, which is missing")
    if samples > 1:
        raise click.UsageError("--extract-field gives one quotation for each prompt; leave the number of samples out")
    for prompt in lines:
        if not prompt.texts(name):
            value = shown(prompt.record[name]) if name in prompt.record else "nothing"
            raise click.UsageError(
                f"{prompt.place} has {value} in the field {name!r} of --extract-field; expected a text, or a list of "
                "texts, to quote from"
            )


def _has_lines(path: Path) -> bool:
    """Test whether a path is a regular file with contents."""
    try:
        return path.is_file() and path.stat().st_size > 0
    except (OSError, ValueError):  # an invalid path, reported when it is opened
        return False


def _is_same(path: str, other: str) -> bool:
    """Test whether two paths are the same file."""
    try:
        return Path(path).is_file() and Path(path).samefile(other)
    except (OSError, ValueError):
        return False


def _warn(results: list[Any]) -> None:
    """Warn about texts that constraints may have decided against the model."""
    for number, result in enumerate(results):
        several = cast("list[Any]", result) if isinstance(result, list) else [result]
        for one in several:
            if one is not None and one.warning is not None:
                click.echo(f"trellm: prompt {number}, {one.warning}", err=True)


def _print_stream(make: Callable[[], Generator[Any]], prompt: Prompt, options: dict[str, Any]) -> int:
    """Write a text as it comes. Return the exit code."""
    with interruptible():
        pieces = make().stream(prompt, **options)
        try:
            for piece in pieces:
                click.echo(piece, nl=False)
        finally:
            click.echo()
    return 0


def _run(
    run: Run,
    prompts: list[PromptLine],
    options: dict[str, Any],
    end: Interruption,
    output: Output | StandardOutput,
    write: Callable[[list[Any]], None],
) -> int:
    """Generate, and keep finished results, whatever ends the run. Return the exit code."""
    from ..engine.options import Options, RunOptions
    from ..engine.results import Generation, Interrupted, finished_of

    chosen = Options.of(RunOptions, options)

    def on_result(number: int, sample: int, result: Generation[Any]) -> None:
        output.add(result_line(prompts[number], sample if chosen.search.n > 1 else None, result))

    try:
        write(run(chosen, on_result))
        return 0
    except Interrupted as interrupt:
        click.echo(f"trellm: {end.word}; {finished_of(interrupt.finished)}, and are kept", err=True)
        write(interrupt.finished)
        return end.code
    except Exception as error:
        finished: list[Any] | None = getattr(error, "finished", None)
        if finished is not None and any(finished):
            click.echo(f"trellm: {finished_of(finished)} before this, and are kept:", err=True)
            write(finished)
        raise
