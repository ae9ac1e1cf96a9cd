"""NVIDIA's libraries, which modules of a wheel are not linked with: they take those of torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gpulift.ground.entry import say
from gpulift.ground.programs import finished, text_of

VARIABLE = "GPULIFT_LIBRARIES"  # folders, which gpulift-bench reads
ANSWER_LIMIT_S = 20
REMEDY = "install torch for CUDA 13, which brings it"  # as gpulift-bench says it


def offer(python: Path | None = None) -> None:
    """Lets gpulift-bench look for them beside the torch of this interpreter, or of the running one,
    then in the CUDA toolkit."""
    toolkit = Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")
    folders = [folder for site in _sites(python) for folder in sorted(site.glob("nvidia/*/lib"))]
    os.environ[VARIABLE] = os.pathsep.join(map(str, [*folders, toolkit / "lib64"]))


def _sites(python: Path | None) -> Iterable[Path]:
    if python is None:
        return map(Path, sys.path)
    return python.parent.parent.glob("lib/python3*/site-packages")


def is_there(library: str) -> bool:
    """Whether the loader or gpulift-bench would find that very file name."""
    named = f"{os.environ.get('LD_LIBRARY_PATH', '')}:{os.environ.get(VARIABLE, '')}".split(":")
    if any(folder and (Path(folder) / library).exists() for folder in named):
        return True
    return f"\t{library} " in _loader_cache()


@cache
def _loader_cache() -> str:
    try:
        listed = finished(["/sbin/ldconfig", "-p"], ANSWER_LIMIT_S)
    except OSError:
        return ""
    except subprocess.TimeoutExpired:
        say(f"ldconfig has not ended in {ANSWER_LIMIT_S} s: libraries to preload are not found")
        return ""
    return text_of(listed.stdout)
