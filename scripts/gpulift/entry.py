"""How a command is called: its errors become one line on stderr and an exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import typer

from gpulift.errors import FAILED, INTERRUPTED, OK, GpuliftError


def make_app() -> typer.Typer:
    """A command line without commands yet."""
    return typer.Typer(
        name="gpulift",
        help="What each training technique is worth on your GPU.",
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def call(app: typer.Typer, arguments: Sequence[str], name: str | None = None) -> int:
    """Runs it; the exit code. `name` is what the help calls it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a sign gets its number
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(args=list(arguments), prog_name=name, standalone_mode=False)
    except GpuliftError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    return code if isinstance(code, int) else OK


def say(message: str) -> None:
    """One line on stderr."""
    typer.echo(f"gpulift: {message}", err=True)


def _fail(message: str, code: int) -> int:
    say(f"error: {' '.join(message.split())}")
    return code
