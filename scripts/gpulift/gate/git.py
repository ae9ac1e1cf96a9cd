"""git, asked about a checkout, and commits that are checked out beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.ground.programs import finished, text_of
from gpulift.ground.text import visible
from gpulift.ground.whole import whole_folder

LIMIT_S = 600  # of a checkout on a slow disk
# By these the git that calls a hook says which index and folder are its own.
OF_ANOTHER = frozenset(
    f"GIT_{name}"
    for name in ("DIR", "WORK_TREE", "IMPLICIT_WORK_TREE", "COMMON_DIR", "INDEX_FILE", "PREFIX")
)
# No hook and no daemon of the user's has a part in it, and no commit is in his name.
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "user.name=gpulift",
    "user.email=gpulift@localhost",
)
SPARSE = ("config.worktree", "info/sparse-checkout")  # of a checkout that has a part of the files


def git(
    folder: Path, *arguments: str, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it says in the folder. Raises GpuliftError where it does not end."""
    settings = [part for one in SETTINGS for part in ("-c", one)]
    command = ["git", "-C", str(folder), *settings, *arguments]
    try:
        done = finished(command, LIMIT_S, environment={**of_no_git(os.environ), **(more or {})})
    except subprocess.TimeoutExpired:
        asked = f"git {arguments[0]}"
        raise GpuliftError(f"{asked}: has not ended in {LIMIT_S} s in {folder}") from None
    said, errors = text_of(done.stdout), text_of(done.stderr)
    return subprocess.CompletedProcess(command, done.returncode, said, errors)


def of_no_git(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, as it is outside of git's hooks."""
    return {name: value for name, value in environment.items() if name not in OF_ANOTHER}


def check_out(repository: Path, commit: str, folder: Path) -> None:
    """The commit's files in a folder, which is there once it is whole.

    It is a worktree of the repository that nothing but the folder itself tells of, so that no entry
    of it is left behind, however this ends.
    """
    asked = git(repository, "rev-parse", "--git-common-dir", "--git-dir")
    common, own = (Path(repository, line).resolve() for line in asked.stdout.splitlines())
    with whole_folder(folder) as part:
        (part / ".git" / "info").mkdir(parents=True)
        (part / ".git" / "commondir").write_text(f"{common}\n", "utf-8")
        (part / ".git" / "HEAD").write_text(f"{commit}\n", "utf-8")
        for name in SPARSE:
            if (own / name).is_file():
                shutil.copyfile(own / name, part / ".git" / name)
        done = git(part, "reset", "--hard", "--quiet", commit)
        if done.returncode != 0:
            raise GpuliftError(f"{commit} cannot be checked out: {last_words(done, 1)}", FAILED)


def last_words(done: subprocess.CompletedProcess[str], lines: int) -> str:
    """The last lines of what a program says, on one."""
    told = done.stderr.strip() or done.stdout.strip()
    return visible(" ".join(" ".join(told.split("\n")[-lines:]).split())) or "no reason was given"
