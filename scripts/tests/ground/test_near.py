"""What a mistyped name may mean."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpulift.ground import near

NAMES = ["transfer/pinned_copy", "transfer/managed", "precision/matmul", "precision/mixed"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("precision/matmol", ["precision/matmul", "precision/mixed"]),
        ("pined_copy", ["transfer/pinned_copy"]),
        ("zzz", []),
        ("", []),
    ],
)
def test_a_name_is_near_as_a_whole_or_by_a_part(wanted: str, found: list[str]) -> None:
    assert near.near(wanted, NAMES) == found


def test_scripts_of_the_shell_run_the_file() -> None:
    command = [sys.executable, near.__file__]
    for arguments, said in (["lst", "list", "run"], "list\n"), (["lst"], "\n"):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
        assert done.stdout == said
