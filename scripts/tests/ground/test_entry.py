"""A command that cannot go on says so in one line: no output, no reader, an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.world

SCRIPTS = Path(__file__).parents[2]
COMMANDS = """
import sys, time
from gpulift.ground.entry import call, make_app, say
from gpulift.ground.errors import GpuliftError
app = make_app()
@app.command()
def work() -> None:
    say("working")
    print("done")
@app.command()
def refuse(name: str) -> None:
    say(f"looking at {name}")
    raise GpuliftError(f"{name}: is nothing")
@app.command()
def talk() -> None:
    print("word " * 100000)
@app.command()
def wait() -> None:
    print("waiting", flush=True)
    time.sleep(60)
sys.exit(call(app, sys.argv[1:]))
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A command line whose commands are `work`, `refuse`, `talk` and `wait`."""
    script = tmp_path / "commands.py"
    script.write_text(COMMANDS, encoding="utf-8")
    return [sys.executable, str(script)]


def environment(*folders: Path) -> dict[str, str]:
    """This one, with modules from these folders first."""
    return {**os.environ, "PYTHONPATH": ":".join(map(str, [*folders, SCRIPTS]))}


def interrupted(arguments: list[str], *folders: Path) -> tuple[int, str]:
    """Exit code and stderr of a process that gets SIGINT once it has written a line.

    The signal has its default: a shell makes what it starts in the background ignore it.
    """
    with subprocess.Popen(
        ["env", "--default-signal=INT", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(*folders),
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        return process.returncode, errors


def test_a_full_disk_behind_standard_output_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*command, "talk"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    said = "gpulift: error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_reader_that_is_gone_ends_it_as_sigpipe_would(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*command, "talk"], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment()
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_closed_standard_output_is_refused(command: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" talk >&-', *command],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    said = "gpulift: error: standard output is closed; to drop it, redirect it to /dev/null\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("gone", ["2>&-", "2> /dev/full"])
def test_nothing_ends_for_want_of_standard_error(command: list[str], gone: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" work {gone}', *command],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_no_name_is_obeyed_by_a_terminal(command: list[str]) -> None:
    done = subprocess.run(
        [*command, "refuse", "a\x1b]0;b\x07\u202ec"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    name = r"a\x1b]0;b\x07\u202ec"
    said = f"gpulift: looking at {name}\ngpulift: error: {name}: is nothing\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_an_interrupt_is_named_and_ends_with_130(command: list[str]) -> None:
    assert interrupted([*command, "wait"]) == (130, "gpulift: interrupted\n")


def test_an_interrupt_before_all_is_imported_is_no_traceback(tmp_path: Path) -> None:
    slow = tmp_path / "typer.py"
    slow.write_text("import time\nprint('', flush=True)\ntime.sleep(60)\n", encoding="utf-8")
    said = interrupted([sys.executable, "-m", "gpulift", "list"], tmp_path)
    assert said == (130, "gpulift: interrupted\n")


@pytest.mark.parametrize("command", ["report", "compare"])
def test_an_error_of_ours_is_not_the_code_of_a_verdict(tmp_path: Path, command: str) -> None:
    (tmp_path / "typer.py").write_text("raise ValueError('a mistake\\nof ours')", encoding="utf-8")
    folders = environment(tmp_path)
    command_line = [sys.executable, "-m", "gpulift", command]
    done = subprocess.run(command_line, capture_output=True, text=True, env=folders)
    said = "gpulift: internal error: ValueError: a mistake of ours; please report it"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (70, said)
    assert "Traceback" in done.stderr


def test_a_package_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import no_such_package", encoding="utf-8")
    command_line = [sys.executable, "-m", "gpulift", "compare"]
    done = subprocess.run(command_line, capture_output=True, text=True, env=environment(tmp_path))
    said = f"gpulift: error: {sys.executable} lacks the package no_such_package;"
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(said)


def test_modules_of_the_current_folder_are_not_ours(tmp_path: Path) -> None:
    """As the launcher calls it; PYTHONSAFEPATH, which it sets too, is of 3.11 and later."""
    (tmp_path / "gpulift").mkdir()
    for name in ("random.py", "types.py", "json.py", "typer.py", "gpulift/__init__.py"):
        (tmp_path / name).write_text("raise SystemExit('hostile')", encoding="utf-8")
    variables = {name: value for name, value in environment().items() if name != "PYTHONSAFEPATH"}
    for arguments in ("compare", "--help"), ("gate", "--help"), ("report", "--help"):
        done = subprocess.run(
            [sys.executable, str(SCRIPTS), *arguments],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: ./gpulift" in done.stdout


def test_the_help_names_the_launcher(command: list[str]) -> None:
    done = subprocess.run(
        [*command, "talk", "--help"], capture_output=True, text=True, env=environment()
    )
    assert done.stdout.lstrip().startswith("Usage: ./gpulift talk")
