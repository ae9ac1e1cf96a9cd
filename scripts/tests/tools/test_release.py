"""ci/release in a checkout of stand-ins: what it refuses, and what it leaves."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

STAND_INS = {
    "gpulift": 'echo "$*" >> ../calls; exit "$(cat ../tests)"',
    "ci/manylinux": 'made=$2/gpulift-$(cat ../made)-py3-none-any.whl; echo > "$made"; echo "$made"',
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name, text in STAND_INS.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        file.chmod(0o755)
    shutil.copy(CHECKOUT / "ci" / "release", root / "ci")
    for name in ("scripts", "setup"):
        (root / name).mkdir()
    (root / ".gitignore").write_text("/dist/\n", encoding="utf-8")
    (root / "setup" / "requirements-base.txt").write_text("numpy==2.4.6\n", encoding="utf-8")
    (tmp_path / "tests").write_text("0", encoding="utf-8")
    git(root, "init", "--quiet")
    commit(root, "1.0.0", "Begin")
    return root


def git(root: Path, *words: str) -> None:
    user = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *user, *words], cwd=root, check=True, capture_output=True)


def commit(root: Path, version: str, subject: str) -> None:
    (root / "scripts" / "pyproject.toml").write_text(f'version = "{version}"\n', encoding="utf-8")
    (root.parent / "made").write_text(version, encoding="utf-8")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", subject)


def release(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [root / "ci" / "release", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_it_leaves_all_that_is_published_and_publishes_nothing(checkout: Path) -> None:
    git(checkout, "tag", "v1.0.0")
    done = release(checkout)
    assert done.returncode == 0, done.stderr
    out = checkout / "dist" / "1.0.0"
    wheel = "gpulift-1.0.0-py3-none-any.whl"
    made = {"gpulift-1.0.0.lock", wheel, "gpulift-1.0.0-source.tar.gz", "CHANGES.md", "SHA256SUMS"}
    assert {one.name for one in out.iterdir()} == made
    assert (checkout.parent / "calls").read_text("utf-8") == "test all\n"
    assert "The first release" in (out / "CHANGES.md").read_text("utf-8")
    with tarfile.open(out / "gpulift-1.0.0-source.tar.gz") as archive:
        assert "gpulift-1.0.0/ci/release" in archive.getnames()
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, check=True)
    assert len((out / "SHA256SUMS").read_text("utf-8").splitlines()) == len(made) - 1
    assert done.stdout == f"git push origin v1.0.0\ntwine upload dist/1.0.0/{wheel}\n"
    again = release(checkout)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)


def test_the_second_tells_what_changed_since_the_first(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "tag", "v1.0.0")
    commit(checkout, "1.1.0", "Mend a fault")
    git(checkout, "tag", "v1.1.0")
    assert release(checkout, "--out", str(tmp_path / "there")).returncode == 0
    told = (tmp_path / "there" / "1.1.0" / "CHANGES.md").read_text("utf-8")
    assert told == "# gpulift 1.1.0\n\nSince v1.0.0:\n\n- Mend a fault\n"


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("no tag", 2, "this commit is not v1.0.0"),
        ("another commit", 2, "this commit is not v1.0.0"),
        ("changed", 2, "changes that are not committed"),
        ("version", 2, "'1.0.0.dev7' is no version of a release"),
        ("tests", 1, ""),
        ("wheel", 1, "is not of version 1.0.0"),
    ],
)
def test_it_refuses(checkout: Path, tmp_path: Path, fault: str, code: int, said: str) -> None:
    if fault != "no tag":
        git(checkout, "tag", "v1.0.0")
    if fault == "another commit":
        (checkout / "more").touch()
        commit(checkout, "1.0.0", "More")
    if fault == "changed":
        (checkout / "scripts" / "new").touch()
    if fault == "version":
        commit(checkout, "1.0.0.dev7", "Go on")
    if fault == "tests":
        (tmp_path / "tests").write_text("1", encoding="utf-8")
    if fault == "wheel":
        (tmp_path / "made").write_text("1.0.0.dev7", encoding="utf-8")
    done = release(checkout)
    assert done.returncode == code
    assert said in done.stderr
    assert not list((checkout / "dist").glob("*/SHA256SUMS"))


def test_an_unknown_option_is_refused(checkout: Path) -> None:
    done = release(checkout, "--upload")
    assert (done.returncode, "unknown option --upload" in done.stderr) == (2, True)
