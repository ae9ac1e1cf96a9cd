"""Techniques whose Python arms need a package that this interpreter lacks."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from gpulift.engine import doctor, packages
from gpulift.engine.machine import TechniqueInfo
from gpulift.records.parse import read_context
from tests import sample

LACKED = "gpulift_no_such_package"
INFO = TechniqueInfo("compile/xla", "", 0, False, ("no_jit", "jit"), (), ("no_jit", "jit"))


def no_metadata(name: str) -> str:
    """Of an interpreter with no package at all."""
    raise PackageNotFoundError(name)


def found(modules: Path, info: TechniqueInfo = INFO, **scripts: str) -> TechniqueInfo:
    """What is said of a technique with these scripts; `script` is its own."""
    modules.mkdir(exist_ok=True)
    for name, text in scripts.items():
        file = "compile.xla.py" if name == "script" else f"{name}.py"
        (modules / file).write_text(text, encoding="utf-8")
    (one,) = packages.with_missing([info], [modules])
    return one


@pytest.mark.parametrize(
    "imported",
    [f"import {LACKED}.numpy as np", f"import os, {LACKED}", f"from {LACKED}.a import b"],
)
def test_a_package_that_a_script_imports_is_missed(tmp_path: Path, imported: str) -> None:
    one = found(tmp_path, script=f"import json\n{imported}\n")
    assert one.unavailable == f"the Python package {LACKED} is not installed"
    assert one.remedy == f"install {LACKED}, or name another interpreter with --python"


def test_a_package_is_installed_by_the_name_of_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    one = found(tmp_path, script="from PIL import Image\n")
    assert one.unavailable == "the Python package PIL is not installed"
    assert one.remedy == "install pillow, or name another interpreter with --python"


def test_modules_beside_a_script_are_read_too(tmp_path: Path) -> None:
    one = found(
        tmp_path,
        script="from training import make_arm\n",
        training=f"import models\nimport {LACKED}\n",
        models="import training\n",
    )
    assert LACKED in one.unavailable


@pytest.mark.parametrize(
    "script",
    [
        "import json\n",
        f"def make():\n    import {LACKED}\n",
        f"try:\n    import {LACKED}\nexcept ImportError:\n    pass\n",
        "this is no Python",
        "from . import here\n",
    ],
)
def test_what_loading_a_script_does_not_need_is_not_missed(tmp_path: Path, script: str) -> None:
    assert found(tmp_path, script=script) == INFO


def test_a_technique_runs_with_the_arms_that_need_no_python(tmp_path: Path) -> None:
    mixed = TechniqueInfo("compile/xla", "", False, False, ("eager", "jit"), (), ("jit",))
    assert found(tmp_path, mixed, script=f"import {LACKED}\n") == mixed


def test_a_technique_without_its_script_is_left_as_it_is(tmp_path: Path) -> None:
    assert found(tmp_path) == INFO


def test_doctor_says_where_jax_is_missing_what_cannot_run_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == "jax" else name)
    monkeypatch.setattr("importlib.metadata.version", no_metadata)
    info = found(tmp_path, script="import jax\n")
    context = read_context(sample.CPU_CONTEXT, "context")
    said = {one.what: one for one in doctor.examine(context, [info])}
    wanted = "install jax, or name another interpreter with --python"
    assert (said["JAX"].usable, said["JAX"].remedy) == (False, wanted)
    assert said["compile/xla"].found == "the Python package jax is not installed"
    assert said["techniques"].found == "0 of 1 can run here"


def test_doctor_names_the_version_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.2.3")
    context = read_context(sample.CPU_CONTEXT, "context")
    said = {one.what: one for one in doctor.examine(context, [])}
    assert (said["JAX"].usable, said["JAX"].found) == (True, "jax 1.2.3")


def test_a_library_that_is_not_there_is_missed(tmp_path: Path) -> None:
    info = TechniqueInfo("gemm/set", "", 1, False, ("one",), (), libraries=("libno_such.so.13",))
    one = found(tmp_path, info)
    assert one.unavailable == "libno_such.so.13 is not there"
    assert one.remedy == "install torch for CUDA 13, which brings it"
