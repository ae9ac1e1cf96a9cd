"""What a user sees of a build: how far it is, and what failed with its remedy."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import SETUP

import build


def of(output: str) -> list[str]:
    """The explanation of a build with this output."""
    seen = build.Output()
    for line in output.splitlines():
        seen.see(line)
    return build.explanation(seen, build.Progress(terminal=False), Path("build.log"))


@pytest.mark.parametrize(
    ("output", "first", "remedy"),
    [
        (
            "[1/2] Building CXX a.o\nIn file included from b.hpp:3,\n"
            "a.cpp:7:10: fatal error: nvml.h: No such file or directory\n",
            "a.cpp:7:10: fatal error: nvml.h: No such file or directory",
            "CUDACXX=packages ./gpulift setup",
        ),
        ("a.cpp:1:10: fatal error: gtest/gtest.h: No such file or directory", "gtest", "./gpulift setup installs"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "Killed", "memory was too little"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "cicc", "memory was too little"),
        (
            "a.cpp: error: x\nfatal error: error writing to /tmp/x.s: No space left on device",
            "a.cpp: error: x",
            "call again",
        ),
        ("/usr/bin/ld: final link failed: No space left on device", "No space left", "the disk is full"),
        ("/usr/bin/ld: a.o: Disk quota exceeded", "quota", "the disk is full"),
        ('a.cu(12): error: identifier "x" is undefined', "a.cu(12)", "report these lines"),
        ("b.cpp:(.text+0x1): undefined reference to `f()'", "undefined reference", "report these lines"),
        (
            "CMake Error at x.cmake:3 (message):\n\n  No CUDA compiler: set CUDACXX\n",
            "x.cmake:3 (message): No CUDA compiler",
            "",
        ),
        (
            'a.cpp:2:15: warning: unused variable\n    2 |   auto x = "error: y";\na.cpp:3:3: error: no g',
            "a.cpp:3:3: error: no g",
            "report these lines",
        ),
        ("only this line\n\n", "only this line", "report these lines"),
        ("", "no reason given", "report these lines"),
    ],
)
def test_the_first_error_is_told_with_what_helps(output: str, first: str, remedy: str) -> None:
    failed, error, helps, log = of(output)
    assert (failed, log) == ("the build failed:", "all that was said: build.log")
    assert first in error
    assert remedy in helps


def test_a_full_disk_is_told_whatever_a_program_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    output = 'CMake Error at x.cmake:1 (try_compile):\n  Unknown extension ".cpp" for file\n'
    assert of(output)[2].startswith("call again")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=4096))
    assert of(output)[2] == build.DISK_FULL


def test_progress_counts_and_reckons_the_rest() -> None:
    progress = build.Progress(terminal=False)
    assert progress.words(1.0) == "building: 0 of 0 done"
    progress.see("[5/120] Building CXX object a.o\n")
    assert progress.words(9.0) == "building: 5 of 120 done", "so few do not tell"
    progress.see("[30/120] Building CXX object a.o\n")
    progress.see("warning: [31/120] is none\n")
    assert progress.words(60.0) == "building: 30 of 120 done, about 180 s left"


@pytest.mark.parametrize(("columns", "shown"), [(40, 39), (200, 50), (0, 50)])
def test_progress_does_not_wrap_in_a_narrow_terminal(tmp_path: Path, columns: int, shown: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    code = (
        f"import sys; sys.path.insert(0, {str(SETUP)!r}); import build; progress = build.Progress(terminal=True);"
        "progress.begun_s -= 10; progress.see('[60/120] Building'); progress.end()"
    )
    subprocess.run([sys.executable, "-c", code], stderr=theirs, cwd=tmp_path, check=True, timeout=60)
    said = os.read(ours, 4096).decode().split("\r\033[K")
    os.close(ours)
    os.close(theirs)
    assert (said[0], len(said[1]), said[2:]) == ("", shown, [""])
    assert said[1].startswith("gpulift: building: 60 of 120 done")


def call(folder: Path, script: str) -> subprocess.Popen[str]:
    """setup/build.py with this command."""
    command = [sys.executable, str(SETUP / "build.py"), str(folder), "bash", "-c", script]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_output_goes_to_the_log_and_the_code_is_the_commands(tmp_path: Path) -> None:
    process = call(tmp_path, "echo said; echo 'x: error: y' >&2; exit 3")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "")
    assert (tmp_path / build.LOG).read_text() == "said\nx: error: y\n"
    assert (tmp_path / build.FAILED).read_text().splitlines() == [
        line.removeprefix("gpulift: ") for line in errors.splitlines()
    ]
    process = call(tmp_path, "exit 0")
    assert (process.communicate(timeout=60), process.returncode) == (("", ""), 0)
    assert not (tmp_path / build.FAILED).exists()


def test_a_program_of_the_build_that_is_killed_is_named(tmp_path: Path) -> None:
    process = call(tmp_path, "echo '[3/9] Building a.o'; kill -9 $$")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "gpulift:   bash: Killed\ngpulift: memory was too little" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_is_a_line_and_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    process = call(tmp_path, "echo $$; exec sleep 60")
    while not (tmp_path / build.LOG).exists() or not (tmp_path / build.LOG).read_text():
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    told = "gpulift: the build was interrupted; the next call goes on where it ended\n"
    assert (process.returncode, errors) == (130, told)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / build.LOG).read_text()), 0)


def test_a_build_that_is_killed_has_left_word(tmp_path: Path) -> None:
    process = call(tmp_path, "kill -9 $PPID")
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert (tmp_path / build.FAILED).read_text() == build.BEGUN + "\n"
    assert call(tmp_path, "exit 0").wait(timeout=60) == 0
    assert not (tmp_path / build.FAILED).exists()


def test_what_failed_on_a_full_disk_is_told_in_the_room_that_the_begin_took(tmp_path: Path) -> None:
    failed = tmp_path / build.FAILED
    build.leave(failed, [build.BEGUN])
    node = failed.stat().st_ino
    build.leave(failed, ["the disk is full"])
    assert (failed.stat().st_ino, failed.read_text()) == (node, "the disk is full\n")


def test_whatever_the_users_language_and_encoding_errors_are_known(tmp_path: Path) -> None:
    told = os.fsdecode(b"a.h: error: \xff\xe2\x80\x98x\xe2\x80\x99")
    script = f"echo \"[1/2] $LC_ALL/$LANGUAGE\"; echo '{told}'; exit 1"
    # The encoding of a user's Python where the locale is one of ASCII.
    environment = os.environ | {"LC_ALL": "POSIX", "LANGUAGE": "de"}
    command = [sys.executable, "-I", "-X", "utf8=0", str(SETUP / "build.py"), str(tmp_path), "bash", "-c", script]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, b"a.h: error: " in done.stderr) == (1, True), done.stderr
    assert (tmp_path / build.LOG).read_text("utf-8") == "[1/2] C.UTF-8/\na.h: error: \ufffd\u2018x\u2019\n"
    assert "\u2018x\u2019" in (tmp_path / build.FAILED).read_text("utf-8")


def test_what_is_said_is_not_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / build.LOG).symlink_to("/dev/null")
    output, mega = build.Output(), 1 << 20
    tracemalloc.start()
    script = f"echo 'a.cpp: error: x'; yes 'a.cpp:1:1: warning: said of all that there is' | head -c {8 * mega}"
    assert build.run(tmp_path, ["bash", "-c", script], output, build.Progress(terminal=False)) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (output.error, peak < mega) == ("a.cpp: error: x", True)


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / build.LOG).symlink_to("/dev/full")
    process = call(tmp_path, "yes | head -n 100000")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "gpulift: the disk is full: make room, and call again\n" in errors
