"""`trellm generate`: texts under a constraint, for one prompt or a file of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TextIO

import click

from .constraint import Constraint, constraint_options
from .models import load_model
from .prompts import Prompt, plain_lines, read_prompts, report_page, result_lines, writing
from .search import Searching, search_options

if TYPE_CHECKING:
    from ..engine.generator import Generator

INTERRUPTED = 130


@click.command()
@click.option("--model", "-m", "name", required=True, help="A name or folder for transformers, or ziplm:FILE.")
@constraint_options
@click.option("--prompt", "-p", help="The prompt; the output goes to standard output as it comes.")
@click.option(
    "--prompts",
    type=click.File(encoding="utf-8"),
    help='A file of prompts, - for standard input; each line a JSON string or {"prompt": ..., ...}.',
)
@click.option("--out", "-o", metavar="FILE", help="Write results as JSON Lines to this file, - for standard output.")
@click.option("--include", multiple=True, metavar="TEXT", help="The output contains this text; repeat the option.")
@click.option("--max-tokens", type=int, help="Most tokens of an output. Default: 256 beyond the shortest output.")
@click.option("--seed", type=int, help="Makes random choice repeatable.")
@search_options
@click.option("--stop", multiple=True, metavar="TEXT", help="End a free text before this; repeat the option.")
@click.option("--no-heal", is_flag=True, help="Leave prompts as they are, even if they end inside a token.")
@click.option("--batch-size", type=int, default=16, show_default=True, help="How many texts run at once.")
@click.option("--logprobs", is_flag=True, help="Add token ids and log-probabilities to the results in --out.")
@click.option("--diagnose", metavar="FILE", help="Write a web page that shows what the constraint did to each token.")
@click.option("--device", help="Where the model runs, such as cpu or cuda.")
@click.option("--dtype", help="In what type the model runs, such as float32 or bfloat16.")
def generate(
    constraint: Constraint,
    name: str,
    prompt: str | None,
    prompts: TextIO | None,
    out: str | None,
    include: tuple[str, ...],
    max_tokens: int | None,
    seed: int | None,
    searching: Searching,
    stop: tuple[str, ...],
    no_heal: bool,
    batch_size: int,
    logprobs: bool,
    diagnose: str | None,
    device: str | None,
    dtype: str | None,
) -> int:
    """Generate texts with a model; with --regex, --choice, --format, --grammar, --schema,
    --pydantic or --extract only such texts.

    \b
        trellm generate -m Qwen/Qwen3-0.6B -r '[0-9]{4}' -p 'The first Moon landing was in '
        trellm generate -m ziplm:notes.txt -c yes -c no --prompts questions.jsonl --out answers.jsonl
        trellm generate -m Qwen/Qwen3-0.6B --schema person.schema.json -p 'Describe a person. '
        trellm generate -m Qwen/Qwen3-0.6B --extract report.txt --prompts questions.jsonl --out answers.jsonl

    Results in --out repeat what a prompt's line has and add "output" and "finish_reason" ("complete",
    "stop" or "length"), "span" with --extract (the text's place), "spans" with the places of
    quotations under --schema, --pydantic or --grammar, "unmet" with what of --include is missing where
    --stop cut the text short, and "sample" if there are several for each prompt. Ctrl-C keeps what is finished.
    """
    if (prompt is None) == (prompts is None):
        raise click.UsageError("give a prompt as --prompt or a file of them as --prompts, one of the two")
    if logprobs and out is None:
        raise click.UsageError("--logprobs goes into the results of --out; add --out FILE, or --out -")
    if diagnose == "-":
        raise click.UsageError("--diagnose writes a page to a file; standard output is for the texts")
    asked = [Prompt(prompt, {"prompt": prompt})] if prompt is not None else read_prompts(_given(prompts))
    options: dict[str, Any] = {"max_tokens": max_tokens, "seed": seed, "stop": stop, **searching.options()}
    options |= {"heal": not no_heal, "include": include}
    if prompt is not None and out is None and searching.samples == 1 and diagnose is None:
        _print_stream(make_generator(name, device, dtype, constraint), prompt, options)
        return 0
    options |= {"batch_size": batch_size, "logprobs": logprobs, "diagnostics": diagnose is not None}
    with ExitStack() as files:
        file = None if prompt is not None and out is None else files.enter_context(writing("-" if out is None else out))
        report = None if diagnose is None else files.enter_context(writing(diagnose, "--diagnose"))
        generator = make_generator(name, device, dtype, constraint)
        results, code = _run(generator, asked, options)
        if report is not None:
            report.write(report_page(asked, results))
        for line in (plain_lines if file is None else result_lines)(asked, results):
            click.echo(line, file)
    return code


def make_generator(name: str, device: str | None, dtype: str | None, constraint: Constraint) -> Generator[Any]:
    """The named model under the constraint."""
    from ..engine.extraction import Extractor
    from ..engine.generator import Generator
    from ..guides import SubstringGuide

    model = load_model(name, device, dtype)
    guide = None if constraint.is_free else constraint.guide(model.vocabulary)
    return Extractor(model, guide) if isinstance(guide, SubstringGuide) else Generator(model, guide)


def _given(prompts: TextIO | None) -> TextIO:
    assert prompts is not None
    return prompts


def _print_stream(generator: Generator[Any], prompt: str, options: dict[str, Any]) -> None:
    pieces = generator.stream(prompt, **options)
    try:
        for piece in pieces:
            click.echo(piece, nl=False)
    finally:
        click.echo()


def _run(generator: Generator[Any], prompts: list[Prompt], options: dict[str, Any]) -> tuple[list[Any], int]:
    """The results, of those prompts that were finished if Ctrl-C was pressed, and the exit code."""
    from ..engine.results import Interrupted

    try:
        return generator.run([prompt.text for prompt in prompts], **options), 0
    except Interrupted as interrupt:
        click.echo(f"trellm: interrupted; {interrupt}".replace("; see .finished", ", and are kept"), err=True)
        return interrupt.finished, INTERRUPTED
