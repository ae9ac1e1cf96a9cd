"""Every header of NVIDIA's that sources include comes with the locked packages, so that a machine without a toolkit
compiles them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable

import pytest
from conftest import SETUP

import packages

ROOT = SETUP.parent
FOLDERS = ("core", "kernels", "workloads", "benches")
SUFFIXES = (".cpp", ".hpp", ".cu", ".cuh", ".in")
# Whose headers these are not: Debian's packages bring them, or torch's wheel.
OTHERS = re.compile(
    r"[a-z_]+$|(ATen|c10|torch|CLI|benchmark|boost|gmock|gtest|nlohmann|sys|netinet|linux)/"
    r"|(dlfcn|emmintrin|fcntl|link|omp|poll|sched|signal|spawn|unistd)\.h$"
)


def included(text: str) -> set[str]:
    """What a source includes of NVIDIA's."""
    return {name for name in re.findall(r"^#include <([^>]+)>", text, re.MULTILINE) if not OTHERS.match(name)}


def lacking(names: Iterable[str], files: Iterable[str]) -> list[str]:
    """Of these headers those that no file of the packages is."""
    there = {re.split(r"(?:^|/)include/(?:cccl/)?", file, maxsplit=1)[-1] for file in files}
    return sorted(set(names) - there)


def test_what_is_not_in_a_package_is_named() -> None:
    text = "#include <vector>\n#include <torch/torch.h>\n#include <cuda.h>\n#include <cuda/ptx>\n#include <nvml.h>\n"
    assert included(text) == {"cuda.h", "cuda/ptx", "nvml.h"}
    files = ["nvidia/cu13/include/cuda.h", "nvidia/cu13/include/cccl/cuda/ptx", "nvidia/x/nvml.h"]
    assert lacking(included(text), files) == ["nvml.h"]


def test_the_locked_packages_have_every_header_that_is_included() -> None:
    locked = {name for name in packages.locked_names(["cuda", "torch"]) if name.startswith("nvidia-")}
    there = {packages.normalise(found.metadata["Name"]): found for found in importlib.metadata.distributions()}
    if missing := packages.locked_names(["cuda"]) - there.keys():
        pytest.skip(f"{sorted(missing)[0]} is not here: CUDACXX=packages ./gpulift setup installs the locked toolkit")
    files = [str(file) for name in locked & there.keys() for file in there[name].files or ()]
    sources = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in SUFFIXES]
    names = {name for source in sources for name in included(source.read_text())}
    assert {"cuda_profiler_api.h", "cudnn.h", "cudnn_frontend.h", "nccl.h", "nvml.h", "cupti.h"} <= names
    assert not lacking(names, files), "no locked package has it: add one to setup/cuda.in"
