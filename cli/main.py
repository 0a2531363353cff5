"""The command group, and the conversion of errors to a line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from ..errors import ModelError, TextSyntaxError, TrellmError
from .check import check
from .demo import demo
from .ending import INTERRUPTED, TERMINATED, Terminated
from .explain import explain
from .flags import in_flags
from .generate import generate
from .models import list_models, pull
from .serve import serve
from .warmup import warmup

FAILED = 1
USAGE = 2


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 a text does not match, or the model, its download or an output failed; 2 a mistake "
    "in what was asked for; 130 interrupted, 143 terminated.",
)
@click.version_option(package_name="trellm", prog_name="trellm", message="%(prog)s %(version)s")
@click.pass_context
def command(context: click.Context) -> None:
    """Text generation that keeps a language model inside regular expressions and other constraints."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _subcommand in (demo, generate, serve, pull, list_models, check, explain, warmup):
    command.add_command(_subcommand)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process. Return its exit code."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed, as daemons have it: nothing to read
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    try:
        return int(command.main(arguments, prog_name="trellm", standalone_mode=False) or 0)
    except click.UsageError as error:
        return _refuse(f"{error.format_message().rstrip('.')}; see {_path(error)} --help", USAGE)
    except click.ClickException as error:
        return _refuse(error.format_message(), USAGE)
    except ModelError as error:
        return _refuse(one_line(error), FAILED)
    except TrellmError as error:
        return _refuse(one_line(error), USAGE)
    except BrokenPipeError:
        # The reader has closed the pipe. Redirect stdout, since Python would fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        return _refuse(str(error), FAILED)
    except Terminated:
        return _refuse("terminated", TERMINATED)
    except (KeyboardInterrupt, click.Abort):
        return _refuse("interrupted", INTERRUPTED)


def one_line(error: TrellmError) -> str:
    """Return an error's message on one line, with flags for options, and a quotation in place of a caret."""
    if not isinstance(error, TextSyntaxError):
        return in_flags(" ".join(str(error).split()))
    rest = error.text[error.offset :]
    place = f"before {rest[:20]!r}" if rest else "at its end"
    where = f"line {error.line}, column {error.column}" if "\n" in error.text else f"offset {error.offset}"
    return f"{error.reason}, at {where} ({place})"


def _path(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx else "trellm"


def _refuse(message: str, code: int) -> int:
    click.echo(f"trellm: {message}", err=True)
    return code
