"""What a wheel holds of a checkout and of its build; that it works is tried by `./gpulift test
wheel`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from gpulift.ground import toml
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


def requirements(words: list[str]) -> dict[str, Requirement]:
    return {one.name: one for one in map(Requirement, words)}


PROJECT = toml.parsed(CHECKOUT / "scripts" / "pyproject.toml")["project"]
SETUP = CHECKOUT / "setup"


def listed(group: str) -> set[str]:
    lines = (SETUP / f"{group}.in").read_text("utf-8").splitlines()
    return {Requirement(line.partition("#")[0]).name for line in lines if line[:1] not in "#"}


@pytest.mark.parametrize("extra", [None, "arms", "cuda"])
def test_every_dependency_has_bounds_which_hold_what_is_locked(extra: str | None) -> None:
    given = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    locks = "".join(file.read_text("utf-8") for file in SETUP.glob("requirements-*.txt"))
    for name, one in requirements(given).items():
        assert {spec.operator for spec in one.specifier} == {">=", "<"}, name
        locked = re.findall(rf"^{re.escape(name)}==(\S+)", locks, re.MULTILINE)
        assert locked, name
        assert all(version in one.specifier for version in locked), name


@pytest.mark.parametrize(("given", "group"), [("dependencies", "base"), ("arms", "arms")])
def test_it_needs_what_a_checkout_installs(given: str, group: str) -> None:
    words = PROJECT[given] if given in PROJECT else PROJECT["optional-dependencies"][given]
    assert requirements(words).keys() == listed(group)


def test_it_brings_its_lock_and_the_terms_of_all(tmp_path: Path, build: Path) -> None:
    wheel.stage(CHECKOUT, build, tmp_path / "stage")
    lock = (tmp_path / "stage" / "gpulift" / "gpulift.lock").read_text("utf-8")
    assert lock == (SETUP / "requirements-base.txt").read_text("utf-8")
    assert {"LICENSE", "NOTICE"} <= {one.name for one in (tmp_path / "stage").iterdir()}
    peaks = (tmp_path / "stage" / "gpulift" / "card_peaks.json").read_bytes()
    assert json.loads(peaks)["license"] == "CC0-1.0"


@pytest.mark.parametrize(
    ("library", "unknown"),
    [
        ("libgomp-e28fb289.so.1", ""),
        ("libbenchmark-0123abcd.so.1.7.1", ""),
        ("libfoo-0123abcd.so.1", "libfoo"),
    ],
)
def test_a_library_of_others_without_a_notice_is_refused(
    tmp_path: Path, library: str, unknown: str
) -> None:
    made = tmp_path / "gpulift-1.whl"
    with ZipFile(made, "w") as archive:
        archive.write(CHECKOUT / "NOTICE", "gpulift-1.dist-info/licenses/NOTICE")
        archive.writestr(f"gpulift.libs/{library}", "")
    if not unknown:
        wheel.require_named(made)
        return
    with pytest.raises(GpuliftError, match=f"brings {unknown}, which NOTICE does not name"):
        wheel.require_named(made)


def test_the_notice_names_what_is_compiled_in() -> None:
    """The system's libraries for C++ that set-up asks for, tests' aside, and cuDNN's headers."""
    told = re.sub(r"[ -]", "", (CHECKOUT / "NOTICE").read_text("utf-8").lower())
    asked = re.findall(r'"(\S+)-dev\|header\|', (SETUP / "system_packages").read_text("utf-8"))
    names = {re.sub(r"^lib|\d+$|-", "", name) for name in asked} - {"gtest", "gmock"}
    assert names == {"benchmark", "nlohmannjson", "cli", "boost"}
    assert all(name in told for name in (*names, "cudnnfrontend", "libcudart", "cutcrossentropy"))


def test_its_version_names_the_commit(tmp_path: Path) -> None:
    release, _, local = wheel.version(CHECKOUT, "1.0.0").partition("+g")
    assert release.startswith("1.0.0.dev")
    assert local[:10].isalnum()
    with pytest.raises(GpuliftError, match="git does not tell its commit"):
        wheel.version(tmp_path, "1.0.0")


@pytest.mark.parametrize(
    ("tag", "changed", "released"),
    [("v1.0.0", False, True), ("v1.0.0", True, False), ("v0.9", False, False)],
)
def test_the_version_of_a_release_is_its_tag(
    tag: str, changed: bool, released: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"rev-list": "7", "rev-parse": "0123456789", "tag": f"other\n{tag}"}

    def git(_: Path, command: str, *__: str) -> SimpleNamespace:
        return SimpleNamespace(stdout=told.get(command, " M file" if changed else ""))

    monkeypatch.setattr(wheel, "git", git)
    assert (wheel.version(CHECKOUT, "1.0.0") == "1.0.0") == released


def test_a_program_that_fails_is_named_with_its_last_line() -> None:
    with pytest.raises(GpuliftError, match=r"^sh -c .*: no such thing$"):
        wheel.output("sh", "-c", "echo begun >&2; echo no such thing >&2; exit 3")
