"""Releases of torch: which is asked for, its own lock files, and those that pip resolves."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import environment
import packages
import releases
import toolkit
from packages import SetupError

NEWEST = ".".join(map(str, releases.NEWEST_TRIED))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is asked for, and what is resolved is kept in a folder of the test."""
    for name in ("GPULIFT_TORCH", "GPULIFT_PYTHON", "GPULIFT_WHEELHOUSE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(packages, "CHOSEN", {})
    monkeypatch.setattr(environment, "KEPT", tmp_path / "locks")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "release"),
    [
        *[(text, "") for text in ("", "on", "off", "OFF", "no")],
        *[(text, text) for text in ("2.11", "2.13", "2.12.1", "3.0")],
        ("2.10.1", "torch 2.10.1 is too old: name one from 2.11 on"),
        *[
            (text, f"torch {text}: name a release like 2.13, or off")
            for text in ("2", "2.13x", "../x", "2.1.1.1", "9" * 30)
        ],
    ],
)
def test_a_release_is_asked_for_by_its_number(monkeypatch: pytest.MonkeyPatch, text: str, release: str) -> None:
    monkeypatch.setenv("GPULIFT_TORCH", text)
    if release.startswith("torch"):
        with pytest.raises(SetupError, match=f"^{re.escape(release)}$"):
            releases.asked()
    else:
        assert releases.asked() == release


@pytest.mark.parametrize(
    ("version", "release", "known"),
    [
        ("2.13.0+cu130", "2.13", True),
        ("2.13.0", "2.13.0", True),
        ("2.13.1", "2.13.0", False),
        ("2.130.0", "2.13", False),
    ],
)
def test_a_version_is_of_its_release_alone(version: str, release: str, known: bool) -> None:
    assert releases.is_of(version, release) == known


def test_a_release_newer_than_the_newest_tried_is_said_to_be_untested(capfd: pytest.CaptureFixture[str]) -> None:
    releases.tell_untried(f"{NEWEST}.7+cu132")
    assert capfd.readouterr().err == ""
    releases.tell_untried("2.99.0")
    assert capfd.readouterr().err == (
        f"gpulift: torch 2.99.0 is untested: {NEWEST} is the newest that gpulift was tried with; going on\n"
    )


def test_what_is_resolved_is_of_the_toolkit_that_torch_is_made_with() -> None:
    found = releases.inputs("2.14.1", "13.1.0.2")
    assert "\ntorch==2.14.1\n" in found["torch"]
    assert "\ntorchvision\n" in found["torch"], "which one fits is torchvision's to say"
    assert "nvcc" in found["cuda"]
    assert "]==13.1.0.2\nnvidia-cuda-crt==13.1.*\nnvidia-nvvm==13.1.*\n" in found["cuda"]
    assert releases.default() not in "".join(found.values())


@pytest.mark.skipif(sys.version_info < releases.NEWEST_FROM, reason=f"torch {NEWEST} is for Python 3.11 on")
def test_the_newest_has_lock_files_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    files = releases.committed(NEWEST)
    assert set(files) == set(releases.GROUPS)
    version = releases.pinned(files["torch"])
    assert releases.committed(version) == files
    assert releases.committed(f"{version}9") == releases.committed("2.98") == {}
    monkeypatch.setenv("GPULIFT_TORCH", NEWEST)
    environment.choose_release("prepare", "")
    assert packages.lock_file("torch") == files["torch"]
    major, minor = toolkit.locked_version()
    assert f"nvidia-cuda-nvcc=={major}.{minor}." in files["cuda"].read_text()
    monkeypatch.setattr(releases, "NEWEST_FROM", (9, 0))
    assert releases.committed(NEWEST) == {}, "an older Python has none of it"


# --- resolving ---


def one(name: str, version: str, *wanted: str) -> dict[str, object]:
    """A package of pip's report."""
    metadata = {"name": name, "version": version, "requires_dist": list(wanted)}
    return {"metadata": metadata, "download_info": {"archive_info": {"hashes": {"sha256": "ab" * 32}}}}


@pytest.fixture(name="asked_of_pip")
def pip_that_reports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """asked_of_pip: the texts of what pip was asked, of which it takes the first package."""
    texts: list[str] = []

    def report(_: Path, arguments: list[str]) -> str:
        if "--no-deps" in arguments:
            texts.append(arguments[-1])
            return json.dumps({"install": [one("torch", "2.13.0", "jinja2", "cuda-toolkit[cublas]==13.0.3; extra")]})
        held, wanted = (Path(arguments[arguments.index(option) + 1]).read_text() for option in ("-c", "-r"))
        texts.append(wanted)
        found = one("Cuda_Toolkit", "13.0.3") if "nvcc" in wanted else one("torch", "2.13.0")
        assert "numpy==" in held, "of the groups that a release has no own of"
        assert ("\ncuda-toolkit==13.0.3\n" in held) == ("nvcc" not in wanted), "torch takes the same toolkit"
        return json.dumps({"install": [found]})

    monkeypatch.setattr(packages, "report", report)
    monkeypatch.setattr(environment, "make_venv", lambda _: None)
    return texts


def test_another_release_is_resolved_once(
    asked_of_pip: list[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULIFT_TORCH", "2.13")
    for _ in range(2):
        packages.CHOSEN.clear()
        environment.choose_release("prepare", "")
        assert packages.locked_names(["cuda", "torch"]) == {"cuda-toolkit", "torch"}
        assert packages.lock_file("torch").read_text() == f"torch==2.13.0 \\\n    --hash=sha256:{'ab' * 32}\n"
    assert asked_of_pip == ["torch==2.13.*", *releases.inputs("2.13.0", "13.0.3").values()]
    assert len(list((place / "locks").iterdir())) == 1, "nothing unfinished is left"
    assert packages.lock_file("base") == packages.SETUP / "requirements-base.txt"


def test_what_broke_off_is_resolved_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise SetupError("no network")

    monkeypatch.setattr(packages, "report", fail)
    monkeypatch.setattr(environment, "make_venv", lambda _: None)
    monkeypatch.setenv("GPULIFT_TORCH", "2.13.1")
    with pytest.raises(SetupError, match="no network"):
        environment.choose_release("prepare", "")
    assert list((place / "locks").iterdir()) == []


def test_an_index_that_tells_no_hash_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nameless = one("Torch_AO", "1") | {"download_info": {"url": "https://x/y", "archive_info": {}}}
    monkeypatch.setattr(packages, "report", lambda *_: json.dumps({"install": [nameless]}))
    with pytest.raises(SetupError, match=r"^your package index tells no hash of torch-ao, "):
        packages.resolved(Path("python"), "torchao", [], place)


@pytest.mark.parametrize("wanted", [[], ["cuda-toolkit[cublas]==12.9.1"], ["triton-rocm"]])
def test_a_torch_that_is_not_made_for_our_cuda_is_refused(monkeypatch: pytest.MonkeyPatch, wanted: list[str]) -> None:
    found = json.dumps({"install": [one("torch", "2.13.0+cpu", *wanted)]})
    monkeypatch.setattr(packages, "report", lambda *_: found)
    with pytest.raises(
        SetupError, match=r"^torch 2\.13\.0\+cpu, as your package index has it, is not made for CUDA 13"
    ):
        releases.made_with(Path("python"), "2.13.0")


@pytest.mark.parametrize("release", ["", "off", releases.default(), releases.default().rpartition(".")[0]])
def test_the_default_is_as_it_is_locked(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setenv("GPULIFT_TORCH", release)
    environment.choose_release("prepare", "")
    assert packages.CHOSEN == {}


def test_what_cannot_be_resolved_here_is_told_with_the_call_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULIFT_TORCH", "2.13")
    with pytest.raises(SetupError, match=r"call `\./gpulift setup --torch 2\.13 --download DIR` there"):
        environment.choose_release("needs", "")
    with pytest.raises(SetupError, match=r"for the running Python: name a 3\.99 in GPULIFT_PYTHON"):
        environment.choose_release("download", "3.99")


def test_a_pip_without_reports_is_named(place: Path) -> None:
    python = place / "python"
    python.write_text("#!/bin/sh\necho 'no such option: --report' >&2\nexit 2\n")
    python.chmod(0o755)
    with pytest.raises(SetupError, match=r"pip is older than 22\.2"):
        packages.report(python, ["torch"])


# --- the user's own Python ---


@pytest.mark.parametrize(
    ("said", "asked", "reason"),
    [
        ("a warning\n2.11.0+cu130 13.0 None\nanother", "", ""),
        ("2.13.1 13.0 None", "2.13", ""),
        ("2.13.1 13.0 None", "2.15", "its torch is 2.13.1, and 2.15 is asked for"),
        ("2.10.1+cu130 13.0 None", "", "its torch is 2.10.1+cu130, and 2.11 or later is needed"),
        ("2.11.0+cu128 12.8 None", "", "its torch 2.11.0+cu128 is built for CUDA 12.8, and 13 is needed"),
        ("2.13.0+cpu None None", "", "its torch 2.13.0+cpu is built without CUDA, and 13 is needed"),
        ("2.13.0+rocm7.0 None 7.0.2", "", "its torch 2.13.0+rocm7.0 is ROCm's, and one for CUDA 13 is needed"),
        ("Traceback\nImportError: no libx.so", "", "its torch cannot be imported: ImportError: no libx.so"),
        ("", "", "its torch cannot be imported: no reason given"),
    ],
)
def test_an_own_torch_is_used_or_said_why_not(
    monkeypatch: pytest.MonkeyPatch, said: str, asked: str, reason: str
) -> None:
    monkeypatch.setenv("GPULIFT_TORCH", asked)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: "one")
    monkeypatch.setattr(toolkit, "output_of", lambda *_: f"{said}\n")
    assert releases.why_unsuitable() == reason


@pytest.mark.parametrize(
    ("reason", "asked", "groups"),
    [
        (releases.NO_TORCH, "", ("torch",)),
        ("its torch is 2.10", "2.11", ("torch",)),
        ("its torch is 2.10", "off", ()),
        ("", "", ()),
    ],
)
def test_another_torch_is_put_beside_an_own_one_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, reason: str, asked: str, groups: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GPULIFT_TORCH", asked)
    monkeypatch.setattr(releases, "why_unsuitable", lambda: reason)
    monkeypatch.setattr(environment, "build_tools_suffice", lambda _: True)
    monkeypatch.setattr(environment, "BASE_MODULES", ())
    monkeypatch.setattr(environment, "OLDEST_PACKAGES", {})
    assert environment.missing_from_own_python() == environment.Plan(groups)


def test_an_unsuitable_own_torch_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "why_unsuitable", lambda: "its torch is 2.10.0, and 2.11 is needed")
    with pytest.raises(SetupError, match=r"its torch is 2\.10\.0, .*: install one there; GPULIFT_TORCH=2\.11\.\d puts"):
        environment.missing_from_own_python()
