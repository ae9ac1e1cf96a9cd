"""Where a wheel's modules find NVIDIA's libraries."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpulift.engine import libraries

LIBRARY = "libof_torch.so.13"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment whose torch brings a library, and a toolkit."""
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    for name in ("cu13", "cudnn"):
        (site / "nvidia" / name / "lib").mkdir(parents=True)
    (site / "nvidia" / "cudnn" / "lib" / LIBRARY).touch()
    monkeypatch.setenv(libraries.VARIABLE, "")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    monkeypatch.setattr(libraries, "_loader_cache", lambda: "")
    return tmp_path / "venv"


def _offered() -> list[str]:
    return os.environ[libraries.VARIABLE].split(os.pathsep)


def test_those_of_another_interpreter(environment: Path) -> None:
    libraries.offer(environment / "bin" / "python")
    *packaged, toolkit = _offered()
    assert [Path(folder).parts[-2:] for folder in packaged] == [("cu13", "lib"), ("cudnn", "lib")]
    assert toolkit == "/opt/cuda/lib64"
    assert libraries.is_there(LIBRARY)


def test_those_of_the_running_one(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(environment / "lib/python3.11/site-packages")])
    libraries.offer()
    assert len(_offered()) == 3


def test_a_library_is_not_there_without_them(environment: Path) -> None:
    assert not libraries.is_there(LIBRARY)


def test_the_loader_has_its_own(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_loader_cache", lambda: f"\t{LIBRARY} (libc6) => /lib")
    assert libraries.is_there(LIBRARY)
    monkeypatch.setattr(libraries, "_loader_cache", lambda: "")
    folder = environment / "lib/python3.11/site-packages/nvidia/cudnn/lib"
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{folder}")
    assert libraries.is_there(LIBRARY)
