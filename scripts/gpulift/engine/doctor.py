"""What can run on this machine, and why the rest cannot, with the remedy."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from gpulift.engine import libraries, packages
from gpulift.engine.machine import TechniqueInfo, own_results
from gpulift.ground import folders, place
from gpulift.ground.programs import finished
from gpulift.records.model import Context

PRELOADS = (
    ("libjemalloc.so.2", "libjemalloc2"),
    ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ("libmimalloc.so.2", "libmimalloc2.0"),
)
ANSWER_LIMIT_S = 20
DRIVER_REMEDY = "install the NVIDIA driver for this card (580 or later for CUDA 13), then reboot"


@dataclass(frozen=True)
class Finding:
    """One thing that techniques may need."""

    what: str
    usable: bool
    found: str
    remedy: str = ""


def examine(context: Context, techniques: Sequence[TechniqueInfo]) -> list[Finding]:
    """Everything that decides what can run here."""
    return [
        _gpu(context),
        _driver(context),
        *([] if place.INSTALLED else [_toolkit()]),
        _torch(),
        _jax(),
        *_folders(),
        *(_preload(library, package) for library, package in PRELOADS),
        *_unavailable(techniques),
        _runnable(context, techniques),
    ]


def _gpu(context: Context) -> Finding:
    if context.gpu is None:
        return Finding("GPU", False, context.gpu_missing, context.gpu_remedy or DRIVER_REMEDY)
    memory = f", {context.gpu.memory_bytes / 1e9:.0f} GB" if context.gpu.memory_bytes else ""
    return Finding("GPU", True, f"{context.gpu.name}{memory}")


def _driver(context: Context) -> Finding:
    if not context.driver:
        return Finding("NVIDIA driver", False, "none", f"with a GPU, {DRIVER_REMEDY}")
    versions = f"{context.driver}, CUDA {context.cuda_driver} (built for {context.cuda_runtime})"
    too_old = _version(context.cuda_driver) < _version(context.cuda_runtime)[:1]
    remedy = f"{DRIVER_REMEDY}: this one is older than the CUDA runtime" if too_old else ""
    return Finding("NVIDIA driver", not too_old, versions, remedy)


def _toolkit() -> Finding:
    """nvcc where the build looks for it: CUDACXX, PATH, the usual folder, this environment."""
    places = [os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    places += [f"{folder}/nvidia/cu13/bin/nvcc" for folder in sys.path]
    for nvcc in places:
        if nvcc and os.access(nvcc, os.X_OK):
            return Finding("CUDA compiler", True, _nvcc_version(nvcc))
    return Finding("CUDA compiler", False, "no nvcc", "./gpulift setup installs one")


def _nvcc_version(nvcc: str) -> str:
    try:
        said = finished([nvcc, "--version"], ANSWER_LIMIT_S)
    except OSError:
        return "nvcc"
    except subprocess.TimeoutExpired:
        return f"nvcc, which has not said its version in {ANSWER_LIMIT_S} s"
    match = re.search(rb"V(\d+\.\d+\.\d+)", said.stdout)
    return f"nvcc {match.group(1).decode()}" if match else "nvcc"


def _torch() -> Finding:
    """LibTorch comes with the Python package; asking for its version does not load it."""
    what = "torch" if place.INSTALLED else "LibTorch"
    try:
        return Finding(what, True, f"torch {importlib.metadata.version('torch')}")
    except importlib.metadata.PackageNotFoundError:
        remedy = "./gpulift setup without GPULIFT_TORCH=off, or GPULIFT_PYTHON with a torch"
        told = packages.remedy("torch") if place.INSTALLED else remedy
        return Finding(what, False, "no torch in this Python", told)


def _jax() -> Finding:
    """No set-up installs it: it is for those who name it, or an environment that has it."""
    try:
        return Finding("JAX", True, f"jax {importlib.metadata.version('jax')}")
    except importlib.metadata.PackageNotFoundError:
        return Finding("JAX", False, "no jax in this Python", packages.remedy("jax"))


def _folders() -> list[Finding]:
    """Those that runs write to."""
    temporary, scratch = folders.temporary(), folders.scratch()
    results = own_results()
    nearest = results if results.is_dir() else results.absolute().parent
    return [
        _folder("temporary files", temporary, temporary.variable or "TMPDIR", runs_code=True),
        _folder("files of cases", scratch, scratch.variable or "--scratch"),
        _folder("results", folders.Chosen(nearest, ""), "--out"),
    ]


def _folder(what: str, chosen: folders.Chosen, by: str, *, runs_code: bool = False) -> Finding:
    why = folders.why_unusable(chosen.path, runs_code=runs_code)
    place = f"{chosen.variable}={chosen.path}" if chosen.variable else str(chosen.path)
    if not why:
        return Finding(what, True, place)
    return Finding(what, False, f"{place} is {why}", f"name another folder with {by}")


def _preload(library: str, package: str) -> Finding:
    what = f"preload {library}"
    if libraries.is_there(library):
        return Finding(what, True, "installed")
    return Finding(what, False, "not installed", f"apt-get install {package}")


def _unavailable(techniques: Sequence[TechniqueInfo]) -> list[Finding]:
    """A line for each reason, which in a wheel many share."""
    names: dict[tuple[str, str], list[str]] = {}
    for info in techniques:
        if info.unavailable:
            names.setdefault((info.unavailable, info.remedy), []).append(info.id)
    return [
        Finding(ids[0] if len(ids) == 1 else f"{len(ids)} techniques", False, why, remedy)
        for (why, remedy), ids in names.items()
    ]


def _runnable(context: Context, techniques: Sequence[TechniqueInfo]) -> Finding:
    here = sum(not info.not_here(context) for info in techniques)
    return Finding("techniques", here > 0, f"{here} of {len(techniques)} can run here")


def _version(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]
