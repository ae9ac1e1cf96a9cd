"""That ci/fresh_machine ran whole not long ago."""

from __future__ import annotations

import subprocess

import pytest
from conftest import SETUP

ROOT = SETUP.parent
SUITE = "bookworm"
MOST_COMMITS = 60  # that changed what it tries
TRIED = ("core", "kernels", "workloads", "setup", "CMakeLists.txt", ":(glob)**/CMakeLists.txt", ":(glob)**/*.cmake")


def git(*arguments: str) -> str:
    """What git says of this checkout."""
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout.strip()


def test_a_bare_machine_was_tried_since_most_of_todays_sources() -> None:
    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this checkout has no history")
    lines = (ROOT / "ci" / "fresh_machine.last").read_text().splitlines()
    (commit,) = (line.split()[2] for line in lines if line.split()[0] == SUITE)
    since = int(git("rev-list", "--count", f"{commit}..HEAD", "--", *TRIED))
    assert since <= MOST_COMMITS, "run ci/fresh_machine, and commit what it writes"
