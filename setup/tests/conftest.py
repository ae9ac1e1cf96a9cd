"""Fixtures: a copy of the launcher, and a PATH that holds only what a test puts there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SETUP))

# What the scripts need of any system; everything else on PATH is a fake.
ORDINARY = """
awk bash cat chmod cut date dirname env find flock grep head ln ls mkdir mktemp paste printf readlink rm sed sh
sha256sum sleep sort timeout touch tr
"""


@dataclass(frozen=True)
class Sandbox:
    """A checkout with the launcher and the set-up alone, and the only folder on PATH."""

    root: Path
    bin: Path
    log: Path

    def fake(self, name: str, body: str) -> Path:
        """Put a shell script on PATH; `$LOG` is the log."""
        return self.script(self.bin / name, body)

    def script(self, path: Path, body: str) -> Path:
        """Write a shell script anywhere."""
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\nLOG={self.log}\n{body}\n")
        path.chmod(0o755)
        return path

    def lines(self) -> list[str]:
        """What fakes logged."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def environment(self, **more: str) -> Mapping[str, str]:
        """The environment of a call: nothing of the caller's but what the test adds."""
        return {"PATH": str(self.bin), "HOME": str(self.root), **more}

    def call(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the checkout."""
        path = [str(self.root / command[0]), *command[1:]]
        environment = self.environment(**more)
        return subprocess.run(path, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell that runs the tests in the background has them ignore interruptions, and all that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    """A fresh sandbox."""
    root, folder = tmp_path / "checkout", tmp_path / "bin"
    root.mkdir()
    folder.mkdir()
    shutil.copy(SETUP.parent / "gpulift", root)
    table = Path("scripts", "gpulift", "commands.tsv")
    (root / table).parent.mkdir(parents=True)
    shutil.copy(SETUP.parent / table, root / table)
    near = Path("scripts", "gpulift", "ground", "near.py")
    (root / near).parent.mkdir()
    shutil.copy(SETUP.parent / near, root / near)
    shutil.copytree(SETUP, root / "setup", ignore=shutil.ignore_patterns("tests", "__pycache__", ".*"))
    for name in ORDINARY.split():
        if found := shutil.which(name, path="/usr/bin:/bin:" + os.environ["PATH"]):
            (folder / name).symlink_to(found)
    return Sandbox(root, folder, tmp_path / "log")
