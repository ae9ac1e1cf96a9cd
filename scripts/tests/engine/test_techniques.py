"""Folders of techniques outside of the checkout, with the real worker and a faked compiler."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.engine import measuring, techniques
from gpulift.ground.errors import GpuliftError
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

SCRIPT = """
ARMS = ["plain", "other"]


def make(arm, point, seed, gpu):
    raise RuntimeError("a manifest runs nothing")
"""


@pytest.fixture
def checkout(root: Path) -> Path:
    """The checkout of other tests with the worker, a cmake and a ninja that log their calls."""
    for part in ("core", "workloads"):
        (root / part).mkdir()
        (root / part / "python").symlink_to(CHECKOUT / part / "python")
    for name in ("cmake", "ninja"):
        fake_tool(root, name, "")
    settings = ("CMAKE_COMMAND", "cmake"), ("CMAKE_MAKE_PROGRAM", "ninja")
    lines = [f"{key}:INTERNAL={root / name}" for key, name in settings]
    (root / "build" / "CMakeCache.txt").write_text("\n".join(lines), encoding="utf-8")
    return root


def fake_tool(root: Path, name: str, body: str) -> None:
    file = root / name
    file.write_text(f'#!/bin/sh\necho {name} "$@" >> {root}/calls\n{body}\n', encoding="utf-8")
    file.chmod(0o755)


def calls(root: Path) -> list[str]:
    file = root / "calls"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def make_folder(folder: Path, **files: str) -> Path:
    """A folder with these files; `a_py` is a.py."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text, encoding="utf-8")
    return folder


def silent(_: str) -> None:
    """Says nothing."""


def prepare(*folders: Path) -> list[Path]:
    return techniques.prepare(techniques.asked(folders), silent)


def manifests(modules: Path) -> dict[str, object]:
    found = [json.loads(file.read_text()) for file in sorted(modules.glob("*.json"))]
    return {one["id"]: one["arms"] for one in found}


def test_a_technique_has_a_theme_wherever_its_file_lies() -> None:
    ids = [techniques.source_of(Path(file)).id for file in ("/a/b-c/D.py", "/d.py")]
    assert ids == ["b_c/d", "_/d"]
    assert techniques.source_of(Path("/a/b/d.py"), "bench").id == "bench/d"


def test_a_script_becomes_a_module_that_finds_what_lies_beside_it(checkout: Path) -> None:
    folder = make_folder(checkout / "My-Own", step_py=SCRIPT, model_py="SIZE = 3\n")
    (modules,) = prepare(folder)
    assert modules.parent == checkout / "build" / "techniques"
    assert manifests(modules) == {"my_own/step": ["plain", "other"]}
    assert (modules / "my_own.step.py").resolve() == folder / "step.py"
    assert (modules / "gpulift_worker.py").read_bytes()
    assert (modules / "gpulift_work" / "training.py").read_bytes()
    assert calls(checkout) == [], "Python needs no build"


def test_a_link_to_a_script_is_there_at_every_moment(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(checkout / "own", step_py=SCRIPT)
    (modules,) = prepare(folder)
    link = modules / "own.step.py"
    replaced = []
    replace = os.replace

    def note(new: Path, old: Path) -> None:
        assert link.resolve() == folder / "step.py"
        replaced.append(old)
        replace(new, old)

    monkeypatch.setattr(os, "replace", note)
    prepare(folder)
    assert link in replaced
    assert link.resolve() == folder / "step.py"
    assert not list(modules.glob(".*"))


def test_the_same_folder_twice_is_one(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(checkout / "own", step_py=SCRIPT)
    assert len(prepare(folder, checkout / "build" / ".." / "own")) == 1
    monkeypatch.setenv("GPULIFT_TECHNIQUES", f"{folder}:{folder}:")
    assert techniques.asked(None) == [folder]
    assert techniques.asked([checkout]) == [checkout], "an option counts more than a variable"


def test_a_changed_or_removed_script_is_noticed(checkout: Path) -> None:
    folder = make_folder(checkout / "own", a_py=SCRIPT, b_py=SCRIPT)
    prepare(folder)
    (folder / "a.py").unlink()
    (folder / "b.py").write_text(SCRIPT.replace("other", "third"), encoding="utf-8")
    (modules,) = prepare(folder)
    assert manifests(modules) == {"own/b": ["plain", "third"]}


def test_only_the_targets_of_the_folders_are_built(checkout: Path) -> None:
    one = make_folder(checkout / "one", a_cpp="", a_py="", a_test_cpp="", b_cu="")
    two = make_folder(checkout / "two", c_py=SCRIPT)
    first, second = prepare(one, two)
    assert calls(checkout) == [
        f"cmake -DGPULIFT_TECHNIQUES={one};{two} {checkout / 'build'}",
        f"ninja -C {checkout / 'build'} techniques.{first.name} techniques.{second.name}",
    ]
    assert manifests(first) == {}, "ninja makes those of compiled ones"


def test_a_build_that_knows_the_folders_is_not_configured_anew(checkout: Path) -> None:
    folder = make_folder(checkout / "one", a_cpp="")
    with (checkout / "build" / "CMakeCache.txt").open("a") as file:
        file.write(f"\nGPULIFT_TECHNIQUES:STRING={folder}\n")
    prepare(folder)
    assert [call.split()[0] for call in calls(checkout)] == ["ninja"]


def test_cmake_names_a_folder_of_modules_alike(checkout: Path) -> None:
    """core/cmake/gpulift_techniques.cmake takes the same characters of the same digest."""
    folder = Path("/tmp/A2out/My-Techs")
    assert techniques.modules_of(Path(), folder).name == "my_techs-714ee280"
    text = (CHECKOUT / "core" / "cmake" / "gpulift_techniques.cmake").read_text(encoding="utf-8")
    assert "string(SHA256 digits ${folder})" in text
    assert "string(SUBSTRING ${digits} 0 8 digits)" in text


def test_a_compiler_error_is_shown_and_names_the_file(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_folder(checkout / "own", good_cpp="", bad_cpp="")
    fake_tool(checkout, "ninja", f"echo '{folder}/bad.cpp:3:1: error: oh'; exit 1")
    with pytest.raises(GpuliftError, match=r"own/bad\.cpp: cannot be built") as caught:
        prepare(folder)
    assert caught.value.exit_code == 2
    assert "bad.cpp:3:1: error: oh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "there is no technique in it: a .cpp, a .cu, or a .py with ARMS"),
        ({"model_py": "SIZE = 3\n", "a_test_py": SCRIPT}, "there is no technique in it"),
        ({"a_py": "ARMS = ['x'\n"}, "a.py"),
        ({"a_py": "ARMS = 'plain'\n\ndef make(arm, point, seed, gpu): ...\n"}, "ARMS"),
        ({"a_py": "TECHNIQUE = {'arms': ['x'], 'armz': 1}\n"}, "armz"),
        ({"a_py": SCRIPT, "a_cpp": "", "a_cu": ""}, "are both own/a: rename one of them"),
        ({"pinned_py": SCRIPT}, "this build has a technique own/pinned: rename the file"),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line_and_exit_2(
    checkout: Path, capfd: pytest.CaptureFixture[str], files: dict[str, str], words: str
) -> None:
    (checkout / "build" / "modules").mkdir()
    (checkout / "build" / "modules" / "own.pinned.json").write_text("{}", encoding="utf-8")
    folder = make_folder(checkout / "own", **files)
    assert cli.main(["run", "--techniques", str(folder)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("gpulift: error: ")
    assert words in line
    assert not list((checkout / "results").glob("cpu-*")), "before a run"


def test_a_folder_that_is_not_there_is_refused(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["list", "--techniques", str(checkout / "nowhere")]) == 2
    assert "nowhere: there is no such folder" in capfd.readouterr().err
    (checkout / "file").write_text("")
    assert cli.main(["list", "--techniques", str(checkout / "file")]) == 2
    assert "file: cannot be read: Not a directory" in capfd.readouterr().err


def test_a_run_and_a_list_take_the_folders_modules(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = make_folder(checkout / "own", step_py=SCRIPT)
    (modules,) = prepare(folder)
    assert cli.main(["run", "--techniques", str(folder)]) == 0
    said = capfd.readouterr()
    assert f"--more-modules {modules}" in said.err
    state = json.loads((Path(said.out.strip()) / "run.json").read_text())
    (named,) = state["options"]["more_modules"]
    assert named.startswith(f"{modules.name}-")
    (folder / "step.py").write_text(SCRIPT + "# changed\n", encoding="utf-8")
    prepare(folder)
    changed = measuring.Options(more_modules=(modules,)).given()
    assert changed != state["options"], "is another run"
    make_folder(folder, model_py="SIZE = 4\n")
    assert measuring.Options(more_modules=(modules,)).given() != changed, "it may import this"
    assert cli.main(["list", "--json", "--techniques", str(folder)]) == 0
    assert "own/step" in {one["id"] for one in json.loads(capfd.readouterr().out)}
