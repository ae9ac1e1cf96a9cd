"""What stands for a worker elsewhere passes lines on and ends as that did."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpulift.ranks import relay


def started(path: Path) -> tuple[subprocess.Popen[bytes], int]:
    """It, and where its answers come from."""
    answers, write_answers = os.pipe()
    program = f"exec {sys.executable} -I -S {relay.__file__} {path} 3 3>&{write_answers}"
    process = subprocess.Popen(
        ["/bin/bash", "-c", program], stdin=subprocess.PIPE, pass_fds=[write_answers]
    )
    os.close(write_answers)
    return process, answers


@pytest.mark.parametrize("code", [0, 3, -9])
def test_lines_pass_both_ways_and_the_end_is_that_of_the_worker(tmp_path: Path, code: int) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "hub"))
        listening.listen()
        process, answers = started(tmp_path / "hub")
        hub, _ = listening.accept()
    assert process.stdin is not None
    process.stdin.write(b'{"check": true}\n')
    process.stdin.close()
    with hub, hub.makefile("rb") as questions, os.fdopen(answers, "rb") as heard:
        assert list(questions) == [b"3\n", b'{"check": true}\n']
        hub.sendall(b'{"ready": true}\n' + relay.ENDED + f"{code}\n".encode())
        assert heard.read() == b'{"ready": true}\n'
    assert process.wait(20) == code


def test_it_ends_as_failed_where_the_hub_goes(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "hub"))
        listening.listen()
        process, answers = started(tmp_path / "hub")
        listening.accept()[0].close()
    os.close(answers)
    assert process.wait(20) == 1
    assert process.stdin is not None
    process.stdin.close()
