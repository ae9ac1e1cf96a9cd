"""What the GitHub action makes of its inputs, which a pull request may have written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world


def gated(folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    """With a program in the place of ./gpulift that shows what it was called with."""
    script = folder / "ci" / "github" / "gate"
    script.parent.mkdir(parents=True)
    script.write_bytes((CHECKOUT / "ci" / "github" / "gate").read_bytes())
    gpulift = folder / "gpulift"
    gpulift.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n", encoding="utf-8")
    gpulift.chmod(0o755)
    given = {"BASE": "main", "COMMAND": "sleep 1", "OPTIONS": options}
    return subprocess.run(
        ["bash", script],
        env=os.environ | given,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", []),
        ("--within 5m", ["--within", "5m"]),
        ("--metric 'stdout:step: ([0-9.]+)'", ["--metric", "stdout:step: ([0-9.]+)"]),
        ("--x $(touch planted)", ["--x", "$(touch", "planted)"]),
        ("--x `touch planted`; touch planted", ["--x", "`touch", "planted`;", "touch", "planted"]),
    ],
)
def test_options_are_words_and_no_commands(tmp_path: Path, options: str, words: list[str]) -> None:
    done = gated(tmp_path, options)
    asked = ["gate", "--base", "main", *words, "--github", "--markdown", "--"]
    assert done.stdout == "".join(f"<{word}>" for word in [*asked, "bash", "-c", "sleep 1"])
    assert not (tmp_path / "planted").exists()


def test_options_bring_no_command_of_their_own(tmp_path: Path) -> None:
    done = gated(tmp_path, "--label 'x' -- sh -c 'touch planted'")
    assert done.returncode == 2
    assert "the command is an input of its own" in done.stderr
    assert not done.stdout


def test_a_quote_without_an_end_is_one_line(tmp_path: Path) -> None:
    done = gated(tmp_path, "--x 'open")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "options: --x 'open: a quote has no end"
