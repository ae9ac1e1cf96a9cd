"""The facts of a build that CMake writes at every build: whose commit, and which flags."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

OWN = Path("core/cmake/write_build_info.cmake")
SETTINGS = {
    "COMPILER": "GNU 12",
    "CUDA_COMPILER": " ",
    "CUDA_HOST_COMPILER": " ",
    "LINKER": "GNU 2.40",
    "TYPE": "Release",
    "FLAGS": "-fno-inline -O3",
    "CUDA_FLAGS": "",
    "LINK_FLAGS": "",
    "ARCHITECTURES": "90",
    "SANITIZERS": "",
    "ENVIRONMENT": "CPATH=/x;NVCC_APPEND_FLAGS=-g",
}


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def committed(folder: Path, *files: str) -> str:
    """A new repository with these files committed; its commit as builds tell it."""
    git(folder, "init", "-q")
    git(folder, "add", *files)
    git(folder, "commit", "-q", "-m", "x")
    return git(folder, "rev-parse", "--short=10", "HEAD")


def unpacked(folder: Path) -> Path:
    """A source tree, as far as its commit is looked for."""
    (folder / OWN).parent.mkdir(parents=True)
    shutil.copy(CHECKOUT / OWN, folder / OWN)
    return folder


def written(source: Path, commit: str = "", **environment: str) -> tuple[str, str]:
    """The file that is written, and what is said meanwhile."""
    output = source.parent / "build_info.cpp"
    given = {**SETTINGS, "SOURCE_DIR": str(source), "OUTPUT": str(output), "COMMIT": commit}
    clean = {k: v for k, v in os.environ.items() if not k.endswith("FLAGS")}
    done = subprocess.run(
        ["cmake", *(f"-D{key}={value}" for key, value in given.items()), "-P", source / OWN],
        capture_output=True,
        text=True,
        check=True,
        env={**clean, "GIT_CEILING_DIRECTORIES": "/", **environment},
    )
    return output.read_text(encoding="utf-8"), done.stdout + done.stderr


def origin(text: str) -> tuple[str, str | None]:
    """Commit and dirty."""
    dirty = re.search(r'\{"dirty", (\w+)\}', text)
    (commit,) = re.findall(r'\{"commit", "(\w*)"\}', text)
    return commit, dirty.group(1) if dirty else None


def test_the_commit_is_that_of_the_checkout(tmp_path: Path) -> None:
    source = unpacked(tmp_path / "gpulift")
    commit = committed(source, str(OWN))
    assert origin(written(source)[0]) == (commit, "false")
    with (source / OWN).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert origin(written(source)[0]) == (commit, "true")


def test_a_tree_without_git_has_no_commit_and_does_not_say_that_it_is_unchanged(
    tmp_path: Path,
) -> None:
    assert origin(written(unpacked(tmp_path / "gpulift"))[0]) == ("unknown", None)


def test_a_commit_may_be_given_to_a_tree_without_git(tmp_path: Path) -> None:
    source = unpacked(tmp_path / "gpulift")
    assert origin(written(source, commit="abc1234")[0]) == ("abc1234", "false")


@pytest.mark.parametrize("place", ["gpulift", "."])
def test_the_commit_of_a_repository_around_it_is_not_its_own(tmp_path: Path, place: str) -> None:
    above = tmp_path / "other"
    above.mkdir()
    (above / "file").touch()
    committed(above, "file")
    source = unpacked(above / place if place != "." else above)
    assert origin(written(source)[0]) == ("unknown", None)


def test_not_even_where_that_repository_holds_it(tmp_path: Path) -> None:
    source = unpacked(tmp_path / "other" / "vendor" / "gpulift")
    committed(tmp_path / "other", ".")
    assert origin(written(source)[0]) == ("unknown", None)


def test_another_repository_of_the_environment_is_not_asked(tmp_path: Path) -> None:
    source = unpacked(tmp_path / "gpulift")
    commit = committed(source, str(OWN))
    other = unpacked(tmp_path / "other")
    committed(other, ".")
    there = {"GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other)}
    assert origin(written(source, **there)[0]) == (commit, "false")


def test_flags_and_what_compilers_read_are_told(tmp_path: Path) -> None:
    text, said = written(unpacked(tmp_path / "gpulift"))
    assert 'without_paths(R"flags(-fno-inline -O3)flags")' in text
    assert 'build_environment(R"flags(CPATH=/x\nNVCC_APPEND_FLAGS=-g)flags")' in text
    assert said == ""


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("CXXFLAGS", "-fno-inline", False),
        ("CXXFLAGS", "-Og", True),
        ("CUDAFLAGS", "-G", True),
        ("LDFLAGS", "-s", True),
        ("NVCC_APPEND_FLAGS", "-g", False),
        ("NVCC_APPEND_FLAGS", "-O0", True),
    ],
)
def test_flags_that_come_too_late_are_said_to_have_no_effect(
    tmp_path: Path, variable: str, value: str, told: bool
) -> None:
    text, said = written(unpacked(tmp_path / "gpulift"), **{variable: value})
    assert (f"{variable} is not as this build folder was configured with" in said) == told
    assert value not in text or not told
