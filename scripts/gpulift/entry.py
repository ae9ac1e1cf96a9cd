"""How a command is called: its errors become one line on stderr and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import typer

from gpulift.errors import FAILED, INTERRUPTED, NO_READER, OK, GpuliftError


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


def call(app: typer.Typer, arguments: Sequence[str], name: str = "./gpulift") -> int:
    """Runs it; the exit code. `name` is what the help calls it."""
    if sys.stdout is None:
        return _fail("standard output is closed; to drop it, redirect it to /dev/null", FAILED)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a sign gets its number
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(args=list(arguments), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except GpuliftError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except (BrokenPipeError, SystemExit):  # typer makes the one into the other
        _write_no_more()
        return NO_READER
    except OSError as error:
        _write_no_more()
        what = error.filename or "standard output cannot be written"
        return _fail(f"{what}: {error.strerror or error}", FAILED)
    if code == INTERRUPTED:  # typer's word for it
        say("interrupted")
    return code if isinstance(code, int) else OK


def _write_no_more() -> None:
    """What is still in the buffer would fail again when Python ends."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)


def say(message: str) -> None:
    """One line on stderr."""
    typer.echo(f"gpulift: {message}", err=True)


def _fail(message: str, code: int) -> int:
    say(f"error: {' '.join(message.split())}")
    return code
