"""How a command is called: its errors become one line on stderr and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

import typer

from gpulift.ground.errors import FAILED, INTERRUPTED, NO_READER, OK, GpuliftError
from gpulift.ground.text import visible

COMPLETION = "_GPULIFT_COMPLETE"  # where it is set a shell asks how a line may go on


def make_app(completion: bool = False) -> typer.Typer:
    """A command line without commands yet; with `completion` shells can be made to complete it."""
    return typer.Typer(
        name="gpulift",
        help="What each training technique is worth on your GPU.",
        add_completion=completion,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def call(app: typer.Typer, arguments: Sequence[str], name: str = "./gpulift") -> int:
    """Runs it; the exit code, also where nobody hears what it says meanwhile. `name` is what the
    help calls it."""
    if sys.stderr is None:  # it was closed
        sys.stderr = _nowhere()
    try:
        return _call(app, arguments, name)
    finally:
        try:
            sys.stderr.flush()
        except OSError:  # else Python would try again when it ends, and make it the exit code
            sys.stderr = _nowhere()


def _call(app: typer.Typer, arguments: Sequence[str], name: str) -> int:
    if sys.stdout is None:
        return _fail("standard output is closed; to drop it, redirect it to /dev/null", FAILED)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a sign gets its number
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(
            args=list(arguments), prog_name=name, standalone_mode=False, complete_var=COMPLETION
        )
        sys.stdout.flush()
    except GpuliftError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    except (BrokenPipeError, SystemExit) as error:  # typer makes the one into the other
        return _ended(error)
    except OSError as error:
        _write_no_more()
        what = error.filename or "standard output cannot be written"
        return _fail(f"{what}: {error.strerror or error}", FAILED)
    if code == INTERRUPTED:  # typer's word for it
        say("interrupted")
    return code if isinstance(code, int) else OK


def _ended(error: BrokenPipeError | SystemExit) -> int:
    if isinstance(error, SystemExit) and not error.code:  # typer has completed a line
        return OK
    _write_no_more()
    return NO_READER


def _write_no_more() -> None:
    """What is still in the buffer would fail again when Python ends."""
    sys.stdout = _nowhere()
    os.dup2(sys.stdout.fileno(), 1)


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def say(message: str) -> None:
    """One line on stderr, from gpulift."""
    tell(f"gpulift: {message}")


def tell(line: str) -> None:
    """On stderr, what of it a terminal would obey as its escape: names and records of others are
    told so. Where stderr is full or gone, what is being done goes on without it."""
    with suppress(OSError):
        typer.echo(visible(line), err=True)


def _fail(message: str, code: int) -> int:
    say(f"error: {' '.join(message.split())}")
    return code
