"""What a user sees of a build: how far it is, and what failed with its remedy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SETUP

import build


def of(output: str) -> list[str]:
    """The explanation of a build with this output."""
    return build.explanation(output, build.Progress(terminal=False), Path("build.log"))


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
        ('a.cu(12): error: identifier "x" is undefined', "a.cu(12)", "report these lines"),
        ("b.cpp:(.text+0x1): undefined reference to `f()'", "undefined reference", "report these lines"),
        (
            "CMake Error at x.cmake:3 (message):\n\n  No CUDA compiler: set CUDACXX\n",
            "x.cmake:3 (message): No CUDA compiler",
            "",
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


def test_progress_counts_and_reckons_the_rest() -> None:
    progress = build.Progress(terminal=False)
    assert progress.words(1.0) == "building: 0 of 0 done"
    progress.see("[5/120] Building CXX object a.o\n")
    assert progress.words(9.0) == "building: 5 of 120 done", "so few do not tell"
    progress.see("[30/120] Building CXX object a.o\n")
    progress.see("warning: [31/120] is none\n")
    assert progress.words(60.0) == "building: 30 of 120 done, about 180 s left"


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


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / build.LOG).symlink_to("/dev/full")
    process = call(tmp_path, "yes | head -n 100000")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "gpulift: the disk is full: make room, and call again\n" in errors
