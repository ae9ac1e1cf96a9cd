"""Runs of Python scripts in this process, in the place of processes of a gate's command."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpulift.gate import jobs
from gpulift.gate.processes import Ended, run_to_end


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is no Python script a process is started as ever."""
    monkeypatch.setattr(jobs, "run_to_end", _run)


def _run(
    command: Sequence[str],
    limit_s: float,
    folder: Path,
    environment: Mapping[str, str],
    *,
    alone: bool = False,
) -> Ended:
    words = list(command)
    by_python = words[0] in ("python", "python3")
    if by_python:
        del words[0]
    if words[0] == "-m":
        words[:2] = [f"{words[1]}.py"]
    script = folder / words[0]
    if not os.access(script, os.R_OK if by_python else os.X_OK) or not script.is_file():
        return run_to_end(command, limit_s, folder, environment, alone=alone)
    before, argv, began_s = os.getcwd(), sys.argv, time.monotonic()
    said, code = io.StringIO(), 0
    sys.argv = words
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(str(script), run_name="__main__")
    except Exception as error:
        said.write(f"{type(error).__name__}: {error}")
        code = 1
    finally:
        os.chdir(before)
        sys.argv = argv
    seconds = time.monotonic() - began_s
    return Ended(code, said.getvalue().encode(), b"", seconds)
