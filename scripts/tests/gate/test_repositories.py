"""Commits of somebody's repository as the sides of a gate."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulift.gate import repositories
from gpulift.gate.jobs import JobSide
from gpulift.gate.repositories import Repository
from gpulift.ground.errors import GpuliftError

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]
OWN = (".cache", "gpulift", "gate")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def made(folder: Path) -> Path:
    """A repository with two commits, in which `part/speed` holds 1 and then 2."""
    (folder / "part").mkdir(parents=True)
    git(folder, "init", "--quiet")
    for speed in "12":
        (folder / "part" / "speed").write_text(speed, "utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", speed)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return made(tmp_path / "pro ject")


def cache_of(repository: Repository) -> dict[str, str]:
    """The environment of its gates."""
    return {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(repository.root.parent / "c")}


def side(
    repository: Repository,
    commit: str,
    setup: str = "",
    said: list[str] | None = None,
    **more: str,
) -> JobSide:
    told = said if said is not None else []
    environment = {**cache_of(repository), **more}
    return repository.side(commit, "the head", setup, environment, 60.0, told.append)


def test_a_side_is_a_commit_in_a_folder_of_its_own(project: Path) -> None:
    repository = Repository.here(project / "part")
    assert repository.inside == "part/"
    base = side(repository, repository.commit("HEAD~1"))
    assert (base.folder / "speed").read_text("utf-8") == "1"
    assert (project / "part" / "speed").read_text("utf-8") == "2"
    assert base.folder.is_relative_to(project.parent / "c" / "gpulift" / "gate")


def test_a_checkout_with_changes_is_judged_as_it_is_and_named(project: Path) -> None:
    repository = Repository.here(project)
    assert repository.as_it_is() == (
        repository.commit("HEAD"),
        f"this checkout ({repository.commit('HEAD')[:7]})",
    )
    (project / "part" / "speed").write_text("3", "utf-8")
    (project / "new").write_text("", "utf-8")
    commit, said = repository.as_it_is()
    assert "with uncommitted changes)" in said
    assert said.endswith(", without 1 new file that git does not know")
    assert (side(repository, commit).folder / "part" / "speed").read_text("utf-8") == "3"
    assert (project / "part" / "speed").read_text("utf-8") == "3"


def test_a_set_up_runs_once_and_anew_where_it_is_another(project: Path) -> None:
    repository = Repository.here(project)
    commit = repository.commit("HEAD")
    said: list[str] = []
    for setup in ("echo x >> log", "echo x >> log", 'cp "$GPULIFT_CHECKOUT/part/speed" taken'):
        head = side(repository, commit, setup, said)
        assert (head.folder / "log").is_file() == setup.startswith("echo")
    assert (head.folder / "taken").read_text("utf-8") == "2"
    assert [line.partition(" the head")[0] for line in said] == [
        "setting up",
        "checking",
        "setting up",
    ]


def test_a_set_up_that_fails_is_said_and_tried_again(project: Path) -> None:
    repository = Repository.here(project)
    commit = repository.commit("HEAD")
    for _ in range(2):
        with pytest.raises(GpuliftError, match=r"failed in the head with code 3; .*: no compiler"):
            side(repository, commit, "echo no compiler >&2; exit 3")


def test_a_set_up_that_does_not_end_is_stopped(project: Path) -> None:
    repository = Repository.here(project)
    own = cache_of(repository)
    with pytest.raises(GpuliftError, match=r"--setup has not ended in 0\.2 s in base"):
        repository.side(repository.commit("HEAD"), "base", "sleep 60", own, 0.2, print)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda above: (above / "prepared.json").unlink(), "it was not finished"),
        (lambda above: (above / "prepared.json").write_text("{"), "prepared.json is broken"),
        (lambda above: (above / "source/part/speed").unlink(), "part/speed is not as it was"),
        (lambda above: (above / "source/made").write_text("other"), "made is not as it was"),
    ],
)
def test_what_is_not_as_a_set_up_left_it_is_made_anew(
    project: Path, spoil: Callable[[Path], object], why: str
) -> None:
    repository = Repository.here(project)
    commit = repository.commit("HEAD")
    above = side(repository, commit, "cp part/speed made").folder.parent
    spoil(above)
    said: list[str] = []
    side(repository, commit, "cp part/speed made", said)
    assert said[0] == f"checking the head out anew: {why}"
    assert [(above / "source" / name).read_text() for name in ("part/speed", "made")] == ["2", "2"]


@pytest.mark.parametrize("name", ["CFLAGS", "PATH"])
def test_other_flags_or_another_compiler_set_up_anew(project: Path, name: str) -> None:
    repository = Repository.here(project)
    commit = repository.commit("HEAD")
    compiler = project.parent / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n", "utf-8")
    compiler.chmod(0o755)
    more = {"CFLAGS": "-O3"} if name == "CFLAGS" else {"PATH": f"{compiler.parent}:/usr/bin:/bin"}
    said: list[str] = []
    for environment in ({}, {"SSH_TTY": "1", "GITHUB_RUN_ID": "2"}, more, more):
        side(repository, commit, 'echo "$CFLAGS" > made', said, **environment)
    assert [line.split()[0] for line in said] == ["setting", "checking", "setting"]
    assert "set-up, variables or compilers are others now" in said[1]


def test_what_runs_left_is_removed_before_the_next_gate_and_said(project: Path) -> None:
    repository = Repository.here(project)
    commit = repository.commit("HEAD")
    first = side(repository, commit, "echo built > made")
    (first.folder / "sub").mkdir()
    for name in ("sub/checkpoint", "x.pyc"):
        (first.folder / name).write_text("", "utf-8")
    said: list[str] = []
    again = side(repository, commit, "echo built > made", said)
    assert said == [f"removed 1 file of earlier runs in {again.root}, as sub/checkpoint"]
    assert sorted(one.name for one in again.folder.iterdir()) == [".git", "made", "part", "sub"]


def test_what_cannot_be_removed_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository.here(project)
    head = side(repository, repository.commit("HEAD"))
    (head.folder / "of_root").write_text("", "utf-8")

    def refuse(file: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(GpuliftError, match="source/of_root: cannot be written: Permission denied"):
        side(repository, repository.commit("HEAD"))


def test_no_hook_has_a_part_in_it_and_no_worktree_is_listed(project: Path) -> None:
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    hook.chmod(0o755)
    repository = Repository.here(project)
    head = side(repository, repository.commit("HEAD~1"))
    assert git(head.folder, "describe", "--always") == git(
        project, "rev-parse", "--short", "HEAD~1"
    )
    assert git(head.folder, "status", "--porcelain") == ""
    for folder in (project, head.folder):
        assert len(git(folder, "worktree", "list").splitlines()) == 1


def test_a_part_of_a_checkout_is_a_part_of_its_sides(project: Path) -> None:
    (project / "other").mkdir()
    (project / "other" / "large").write_text("", "utf-8")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "other")
    git(project, "sparse-checkout", "set", "part")
    repository = Repository.here(project)
    head = side(repository, repository.commit("HEAD"))
    assert sorted(one.name for one in head.folder.iterdir()) == [".git", "part"]


@pytest.mark.parametrize("reference", ["nothing", "--help", ""])
def test_what_is_no_reference_is_refused(project: Path, reference: str) -> None:
    with pytest.raises(GpuliftError, match="is no reference of"):
        Repository.here(project).commit(reference)


def test_a_folder_outside_of_any_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="is in no git repository"):
        Repository.here(tmp_path)


def test_git_says_itself_why_it_takes_no_repository(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(project, "clone", "--quiet", "--bare", ".", "bare")
    with pytest.raises(GpuliftError, match=r"bare: fatal: this operation must be run in a work"):
        Repository.here(project / "bare")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GpuliftError, match=r"dubious ownership .* git config --global --add safe"):
        Repository.here(project)


def test_what_a_hook_of_git_hands_on_is_not_taken_for_the_checkout(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "part" / "speed").write_text("3", "utf-8")
    (project / ".git" / "index.lock").write_text("", "utf-8")  # as during `git commit -a`
    monkeypatch.setenv("GIT_INDEX_FILE", str(project / ".git" / "index.lock"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    repository = Repository.here(project)
    commit, said = repository.as_it_is()
    assert "with uncommitted changes" in said
    monkeypatch.delenv("GIT_DIR")
    assert git(project, "show", f"{commit}:part/speed") == "3"
    assert repository.as_it_is()[0] == commit


def test_a_file_that_is_only_meant_to_be_added_is_judged(project: Path) -> None:
    (project / "new").write_text("new", "utf-8")
    git(project, "add", "--intent-to-add", "new")
    commit, said = Repository.here(project).as_it_is()
    assert said.endswith("with uncommitted changes)")
    assert git(project, "show", f"{commit}:new") == "new"


def test_a_checkout_with_conflicts_is_refused(project: Path) -> None:
    git(project, "checkout", "--quiet", "-b", "other", "HEAD~1")
    (project / "part" / "speed").write_text("4", "utf-8")
    git(project, "commit", "--quiet", "-a", "-m", "4")
    with pytest.raises(subprocess.CalledProcessError):
        git(project, "merge", "-")
    with pytest.raises(GpuliftError, match="part/speed has conflicts: resolve them"):
        Repository.here(project).as_it_is()


def test_a_set_up_that_installs_has_a_python_of_its_own(project: Path) -> None:
    """It finds what that of the user has, and what it is given stays its own."""
    repository = Repository.here(project)
    install = (
        "python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))' > where  # pip\n"
        'echo "SPEED = $(cat part/speed)" > "$(cat where)/gate_probe.py"'
    )
    ask = ("python", "-c", "import gate_probe, pytest; print(gate_probe.SPEED)")
    said = []
    for reference in ("HEAD~1", "HEAD"):
        cache = str(project.parent / "one's own")
        one = side(repository, repository.commit(reference), install, XDG_CACHE_HOME=cache)
        said.append(
            subprocess.run(ask, env=one.environment, capture_output=True, check=True).stdout
        )
    assert said == [b"1\n", b"2\n"]
    pip = str(shutil.which("pip", path=one.environment["PATH"]))
    assert cache in pip
    assert b"pip " in subprocess.run([pip, "--version"], capture_output=True, check=True).stdout
    assert subprocess.run(ask, capture_output=True).returncode != 0


def test_a_gate_waits_for_another_one_in_its_folder(project: Path) -> None:
    repository = Repository.here(project)
    commits = [repository.commit("HEAD"), repository.commit("HEAD")]
    said: list[str] = []
    order = []

    def second() -> None:
        with repository.held(commits, cache_of(repository), said.append):
            order.append("second")

    with repository.held(commits, cache_of(repository), print):
        waiting = threading.Thread(target=second)
        waiting.start()
        while not said:
            time.sleep(0.01)
        order.append("first")
    waiting.join()
    assert (order, said) == (["first", "second"], ["another gate runs here; waiting"])


def test_submodules_are_said_not_to_be_there(project: Path) -> None:
    (project / ".gitmodules").write_text("", "utf-8")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "sub")
    said: list[str] = []
    repository = Repository.here(project)
    side(repository, repository.commit("HEAD"), said=said)
    assert said == [
        "submodules are not checked out: --setup 'git submodule update --init' does that"
    ]


def test_worktrees_that_nobody_used_for_long_are_removed(project: Path) -> None:
    repository = Repository.here(project)
    with repository.held([repository.commit("HEAD~1")], cache_of(repository), print):
        old = side(repository, repository.commit("HEAD~1")).folder
    long_ago = time.time() - repositories.KEPT_S - 1
    os.utime(old.parent / repositories.LOCK, (long_ago, long_ago))
    with repository.held([repository.commit("HEAD")], cache_of(repository), print):
        assert not old.exists()


def test_two_repositories_of_one_name_share_nothing(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    caches = {Repository.here(made(tmp_path / above / "same")).cache(environment) for above in "ab"}
    assert len(caches) == 2


def test_the_cache_is_that_of_the_user() -> None:
    assert repositories.cache_folder({"HOME": "/h"}) == Path("/h/.cache/gpulift/gate")
    assert repositories.cache_folder({"HOME": "/h", "XDG_CACHE_HOME": "relative"}).is_absolute()
    assert repositories.cache_folder({}) == Path(pwd.getpwuid(os.getuid()).pw_dir, *OWN)


def test_who_has_no_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(GpuliftError, match="HOME is not set: set it, or XDG_CACHE_HOME"):
        repositories.cache_folder({"HOME": ""})
