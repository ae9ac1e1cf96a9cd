"""What a wheel holds of a checkout and of its build; that it works is tried by `./gpulift test
wheel`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift.ground.errors import GpuliftError
from tests.conftest import CHECKOUT
from tools import wheel

NEEDED = {
    "host": ["libgomp.so.1", "libc.so.6"],
    "card": ["libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9"],
    "steps": ["libtorch.so", "libcublas.so.13"],
}


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a module of each kind, one in Python, and one that was not built."""
    made = tmp_path / "build"
    for folder in wheel.MODULES:
        (made / folder).mkdir(parents=True)
    for name in wheel.PROGRAMS:
        (made / name).touch()
    for name in (*NEEDED, "script"):
        manifest = {"id": f"a/{name}", "arms": ["one"]}
        (made / "modules" / f"a.{name}.json").write_text(json.dumps(manifest), encoding="utf-8")
        (made / "modules" / f"a.{name}.{'py' if name == 'script' else 'so'}").touch()
    (made / "modules" / "a.steps.py").touch()
    (made / "modules" / "a.steps.json.stamp").touch()
    unbuilt = {"id": "a/nccl", "unavailable": "built without NCCL", "remedy": "./gpulift setup"}
    (made / "modules" / "a.nccl.json").write_text(json.dumps(unbuilt), encoding="utf-8")

    def needed(*command: str | Path) -> str:
        return "\n".join(NEEDED[Path(command[-1]).name.split(".")[1]])

    monkeypatch.setattr(wheel, "output", needed)
    return made


def _manifest(folder: Path, name: str) -> dict[str, object]:
    manifest: dict[str, object] = json.loads((folder / f"a.{name}.json").read_bytes())
    return manifest


def test_a_module_says_which_libraries_it_takes_from_torch(build: Path, tmp_path: Path) -> None:
    wheel.lay_build(build, tmp_path / "there")
    modules = tmp_path / "there" / "modules"
    assert _manifest(modules, "card")["libraries"] == ["libcublasLt.so.13", "libcudnn.so.9"]
    assert "libraries" not in _manifest(modules, "host")
    assert _manifest(modules, "script") == {"id": "a/script", "arms": ["one"]}


def test_what_needs_libtorch_says_so_and_is_left_out(build: Path, tmp_path: Path) -> None:
    wheel.lay_build(build, tmp_path / "there")
    modules = tmp_path / "there" / "modules"
    assert _manifest(modules, "steps") == {
        "id": "a/steps",
        "unavailable": "it needs LibTorch, which no wheel can bring",
        "remedy": "measure it from a checkout of gpulift",
    }
    assert sorted(file.name for file in modules.glob("a.steps*")) == ["a.steps.json"]
    unbuilt = _manifest(modules, "nccl")
    assert unbuilt["unavailable"] == "built without NCCL"
    assert unbuilt["remedy"] == "measure it from a checkout of gpulift"


def test_it_brings_what_machines_are_judged_by(tmp_path: Path) -> None:
    wheel.lay_results(CHECKOUT / "results", tmp_path / "results")
    there = {one.name for one in (tmp_path / "results").iterdir()}
    models = {"nvidia-h100-80gb-hbm3", "nvidia-h200"}
    known = {"certificates", "errata.toml", "misses.toml", "predictions.tsv"}
    assert there == {*known, "texts.json", "today.json", "reference", *models}
    assert all(len(list((tmp_path / "results" / model).iterdir())) == 1 for model in models)
    assert not list((tmp_path / "results").rglob("*.trials"))


def test_its_version_names_the_commit(tmp_path: Path) -> None:
    release, _, local = wheel.version(CHECKOUT, "1.0.0").partition("+g")
    assert release.startswith("1.0.0.dev")
    assert local[:10].isalnum()
    with pytest.raises(GpuliftError, match="git does not tell its commit"):
        wheel.version(tmp_path, "1.0.0")


def test_a_program_that_fails_is_named_with_its_last_line() -> None:
    with pytest.raises(GpuliftError, match=r"^sh -c .*: no such thing$"):
        wheel.output("sh", "-c", "echo begun >&2; echo no such thing >&2; exit 3")
