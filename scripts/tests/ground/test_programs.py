"""Other programs end within their limit, whatever they do."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from gpulift.engine import doctor
from gpulift.gate import builds
from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import finished, require_program, text_of

pytestmark = pytest.mark.world

STUBBORN = "#!/bin/sh\ntrap '' TERM INT HUP\nsleep 60 &\necho $! > \"$0.child\"\nwait\nsleep 60\n"


def stubborn(folder: Path, name: str) -> Path:
    """A program that ignores signals and starts another that holds its output."""
    program = folder / name
    program.write_text(STUBBORN, encoding="utf-8")
    program.chmod(0o755)
    return program


def is_running(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("most_bytes", [None, 1 << 20])
def test_both_outputs_and_the_exit_code(most_bytes: int | None) -> None:
    script = "head -c 100000 /dev/zero; echo wrong >&2; exit 3"
    done = finished(["sh", "-c", script], 60, most_bytes=most_bytes)
    assert (done.returncode, done.stdout, done.stderr) == (3, bytes(100_000), b"wrong\n")


def test_a_program_that_writes_too_much_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(GpuliftError, match="more than 1 MiB came"):
        finished(["sh", "-c", f"echo $$ > {pid}; exec cat /dev/zero"], 60, most_bytes=1 << 20)
    assert not is_running(int(pid.read_text()))


def test_a_program_that_is_silent_is_killed_at_its_limit() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        finished(["sleep", "60"], 0.1, most_bytes=1 << 20)


def test_a_program_that_ignores_signals_is_killed_with_what_it_started(tmp_path: Path) -> None:
    program = stubborn(tmp_path, "hangs")
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        finished([program], 3.0)  # in which it has started the other
    child = int(Path(f"{program}.child").read_text())
    while is_running(child):
        assert time.monotonic() - begun < 30
        time.sleep(0.01)


def test_what_a_program_says_and_its_exit_code_are_kept(tmp_path: Path) -> None:
    done = finished(["sh", "-c", "pwd; echo wrong >&2; exit 3"], 60, tmp_path)
    assert (done.returncode, text_of(done.stderr)) == (3, "wrong\n")
    assert Path(text_of(done.stdout).strip()) == tmp_path.resolve()
    assert text_of(b"\xff\n") == "\ufffd\n"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("no-such", "is not on PATH"),
        ("./no-such", "there is no such program"),
        ("./folder", "is a folder"),
        ("./plain", "may not be executed: chmod +x ./plain"),
        ("runs", "is not on PATH, and ./runs is here: name that"),
    ],
)
def test_what_cannot_be_started_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    (tmp_path / "folder").mkdir()
    for name, mode in (("plain", 0o644), ("runs", 0o755)):
        (tmp_path / name).touch(mode)
    monkeypatch.chdir(tmp_path)
    require_program("./runs", "/usr/bin")
    require_program("runs", str(tmp_path))
    with pytest.raises(GpuliftError, match=re.escape(f"{program}: cannot be started: {why}")):
        require_program(program, "/usr/bin")


def test_a_git_that_hangs_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn(tmp_path, "git")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("gpulift.gate.git.LIMIT_S", 0.2)
    with pytest.raises(GpuliftError, match=r"^git rev-parse: has not ended in 0.2 s in "):
        builds.resolve("HEAD", tmp_path)


def test_a_compiler_that_hangs_is_said_by_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDACXX", str(stubborn(tmp_path, "nvcc")))
    monkeypatch.setattr(doctor, "ANSWER_LIMIT_S", 0.2)
    assert doctor._toolkit().found == "nvcc, which has not said its version in 0.2 s"
