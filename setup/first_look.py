#!/usr/bin/env python3
"""Measures the memory of a machine without a GPU by what takes a minute to fetch and build, ahead of all else.

first_look.py ROOT BUILD: what is built in BUILD without CUDA the whole build keeps, since it is compiled alike there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build
import environment
import packages
from packages import SetupError, say

TECHNIQUE = "ceiling/host_memory"
ARM = 3  # of the parts of a row's name: theme, technique, case and arm come first
TOOLS = ("cmake", "ninja")
MEASURING_LIMIT_S = 120


def tools(venv: Path) -> Path:
    """The folder of a CMake that is new enough, and of ninja: of the packages that are locked, unless they are here."""
    if not environment.build_tools_suffice([]):
        environment.make_venv(venv)
        blocks = packages.locked_blocks(packages.lock_file("tools").read_text())
        locked = "".join(f"{block}\n" for name, block in blocks if name in TOOLS)
        packages.install(venv / "bin" / "python", locked, venv / "tmp")
    return venv / "bin"


def built(root: Path, folder: Path) -> int:
    """The exit code of building the engine and this technique; 130 where it was interrupted."""
    configure = ["cmake", "-S", str(root), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    configure += ["-DGPULIFT_CUDA=OFF", "-DGPULIFT_TORCH=OFF", f"-DGPULIFT_PYTHON_EXECUTABLE={sys.executable}"]
    target = f"manifest.{TECHNIQUE.replace('/', '.')}"
    return build.main(folder, configure) or build.main(folder, ["ninja", "-C", str(folder), target])


def rates(folder: Path) -> str:
    """`read 41 GB/s, write 38 GB/s`, as the engine measured them. SetupError where it could not."""
    command = [str(folder / "gpulift-bench"), "--quick", "--launches", "1", "--benchmark_format=json"]
    command.append(f"--benchmark_filter=^{TECHNIQUE}/")
    measured = packages.finished(command, MEASURING_LIMIT_S)
    try:
        rows = json.loads(measured.stdout)["benchmarks"]
        arms = [row["name"].split("/")[ARM] for row in rows]
        return ", ".join(f"{arm} {row['bytes_per_second'] / 1e9:.1f} GB/s" for arm, row in zip(arms, rows, strict=True))
    except (IndexError, KeyError, ValueError):
        raise SetupError(f"gpulift-bench ended with code {measured.returncode}: {measured.stderr.strip()}") from None


def main(root: Path, folder: Path) -> int:
    """Entry point; 0 where it said a figure, 130 where the user interrupted it."""
    began_s = time.monotonic()
    say("no GPU here: memory is measured first, while nothing else is there")
    try:
        os.environ["PATH"] = f"{tools(root / '.setup' / 'first')}{os.pathsep}{os.environ['PATH']}"
        if code := built(root, folder):
            return code
        told = rates(folder)
        shutil.rmtree(folder / "modules")  # its manifests say of all else that CUDA is missing
    except (SetupError, OSError, subprocess.SubprocessError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("the first look was interrupted")
        return build.INTERRUPTED
    say(f"first look, {time.monotonic() - began_s:.0f} s, one launch: memory of all cores: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
