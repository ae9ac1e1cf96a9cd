"""A technique's script as its test meets it: loaded from its file, its arms made and checked."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import gpulift_case
import pytest
from gpulift_manifest import manifest_of
from gpulift_worker import Arm, Skip

SEED = 7


def script_of(test: str) -> Path:
    """The script beside a test file."""
    return Path(test.removesuffix("_test.py") + ".py")


def load(test: str) -> ModuleType:
    """The script that a test file is about, as a module."""
    script = script_of(test)
    spec = importlib.util.spec_from_file_location(f"{script.stem}_under_test", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look types up
    spec.loader.exec_module(module)
    return module


def manifest(test: str) -> dict[str, Any]:
    """What the script declares."""
    script = script_of(test)
    return manifest_of(f"{script.parent.name}/{script.stem}", script)


def points(test: str) -> list[dict[str, Any]]:
    """Those of all its cases."""
    return [case["point"] for case in manifest(test)["cases"]]


def made(technique: ModuleType, name: str, point: Mapping[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked; the test is skipped where the arm is."""
    gpulift_case.begin({"seed": SEED})
    try:
        arm: Arm = technique.make(name, point, SEED, None)
    except (ModuleNotFoundError, Skip) as missing:
        pytest.skip(str(missing))
    arm.before()
    arm.step()
    return arm


def error_of(arm: Arm) -> float:
    """Of its last step; it has a check."""
    assert arm.error is not None
    return arm.error()


def assert_passes_twice(arm: Arm) -> None:
    """After the step that is checked, and after another one."""
    assert error_of(arm) <= (arm.tolerance or 0)
    arm.before()
    arm.step()
    assert error_of(arm) <= (arm.tolerance or 0)
