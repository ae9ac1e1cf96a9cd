#!/usr/bin/env python3
"""Write the lock files (requirements-*.txt, with hashes) and sizes.txt from the *.in files.

For developers only: needs uv on PATH and downloads every wheel once (about 3 GB) to learn the sizes. With a release of
torch, like 2.15, only the two lock files that are its own are written, which agree with the others as they are, and
sizes-2.15.txt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import packages
import releases

SETUP = Path(__file__).resolve().parent
GROUPS = ("base", "tools", "arms", "cuda", "nvml", "torch")
OLDEST_PYTHON = "3.10"
# One resolution for all groups, so that they can share an environment; only for what CUDA's packages are made for, so
# that no other hashes are kept.
MACHINES = "platform_machine == 'x86_64' or platform_machine == 'aarch64'"
PROJECT = f"[tool.uv]\nenvironments = [\"sys_platform == 'linux' and ({MACHINES})\"]\n"
PROJECT_OF_RELEASE = PROJECT.replace(f"({MACHINES})", f"({MACHINES}) and python_full_version < '3.16'")  # nor has torch


def compile_lock(
    folder: Path, inputs: list[str], output: str, constraints: str | None = None, oldest: str = OLDEST_PYTHON
) -> None:
    """Resolve `inputs` for every Python from the oldest on and write `output`, all inside `folder`."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", oldest]
    command += ["--generate-hashes", "--no-annotate", *inputs, "--output-file", output]
    if constraints:
        command += ["--constraints", constraints]
    environment = {**os.environ, "UV_CUSTOM_COMPILE_COMMAND": "setup/lock.py"}
    subprocess.run(command, cwd=folder, env=environment, check=True)


def write_locks() -> None:
    """Write requirements-<group>.txt for every group."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(PROJECT)
        for group in GROUPS:
            shutil.copy(SETUP / f"{group}.in", folder)
        compile_lock(folder, [f"{group}.in" for group in GROUPS], "all.txt")
        for group in GROUPS:
            compile_lock(folder, [f"{group}.in"], f"requirements-{group}.txt", "all.txt")
            shutil.copy(folder / f"requirements-{group}.txt", SETUP)


def write_release(release: str) -> None:
    """Write requirements-<group>-<release>.txt for the groups that another torch has its own of."""
    oldest = ".".join(map(str, releases.NEWEST_FROM))
    torch, cuda = releases.made_with(Path(sys.executable), release)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(PROJECT_OF_RELEASE)
        for group, text in releases.inputs(torch, cuda).items():
            (folder / f"{group}.in").write_text(text)
        held = folder / "held.txt"
        held.write_text("".join((SETUP / f"requirements-{group}.txt").read_text() for group in releases.OTHERS))
        compile_lock(folder, [f"{group}.in" for group in releases.GROUPS], "all.txt", "held.txt", oldest)
        for group in releases.GROUPS:
            output = f"requirements-{group}-{release}.txt"
            compile_lock(folder, [f"{group}.in"], output, "all.txt", oldest)
            shutil.copy(folder / output, SETUP)


def write_sizes(groups: Sequence[str] = GROUPS, of: str = "") -> None:
    """Download every wheel of these lock files for the running Python and write its size, packed and unpacked."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for group in groups:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
            command += ["--only-binary", ":all:", "--dest", folder, "-r", str(SETUP / f"requirements-{group}{of}.txt")]
            subprocess.run(command, check=True)
        for wheel in sorted(Path(folder).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            lines.append(f"{packages.normalise(wheel.name.split('-')[0])} {wheel.stat().st_size} {unpacked}\n")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    heading = f"# Written by setup/lock.py: package, bytes to download, bytes unpacked (x86_64, CPython {version})\n"
    (SETUP / f"sizes{of}.txt").write_text(heading + "".join(lines))


if __name__ == "__main__":
    if sys.argv[1:]:
        write_release(sys.argv[1])
        write_sizes(releases.GROUPS, f"-{sys.argv[1]}")
    else:
        write_locks()
        write_sizes()
