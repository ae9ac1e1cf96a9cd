"""git, asked about a checkout, and commits that are checked out beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.ground.programs import finished, last_error, text_of
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
ALWAYS = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}  # nobody is there to give a password
SPARSE = ("config.worktree", "info/sparse-checkout")  # of a checkout that has a part of the files


def git(
    folder: Path, *arguments: str, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it says in the folder. Raises GpuliftError where it does not end."""
    done = asked(folder, *arguments, more=more)
    told, errors = text_of(done.stdout), text_of(done.stderr)
    return subprocess.CompletedProcess(done.args, done.returncode, told, errors)


def asked(
    folder: Path, *arguments: str, more: Mapping[str, str] | None = None, content: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """The same as it is, of what stands in `content`."""
    settings = [part for one in SETTINGS for part in ("-c", one)]
    command = ["git", "-C", str(folder), *settings, *arguments]
    environment = {**of_no_git(os.environ), **ALWAYS, **(more or {})}
    try:
        return finished(command, LIMIT_S, environment=environment, content=content)
    except FileNotFoundError:
        raise GpuliftError("git is not installed: install it") from None
    except subprocess.TimeoutExpired:
        what = f"git {arguments[0]}"
        raise GpuliftError(f"{what}: has not ended in {LIMIT_S} s in {folder}", FAILED) from None


def made(
    folder: Path, *arguments: str, more: Mapping[str, str] | None = None, content: bytes = b""
) -> bytes:
    """The same, where it is to succeed."""
    done = asked(folder, *arguments, more=more, content=content)
    if done.returncode != 0:
        raise GpuliftError(f"git {arguments[0]} in {folder}: {reason(done)}", FAILED)
    return done.stdout


def line(
    folder: Path, *arguments: str, more: Mapping[str, str] | None = None, content: bytes = b""
) -> str:
    """The same of one line."""
    return os.fsdecode(made(folder, *arguments, more=more, content=content)).removesuffix("\n")


def reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """The first line that says what was fatal: advice may follow."""
    told = text_of(done.stderr).splitlines()
    fatal = next((one for one in told if one.startswith(("fatal: ", "error: "))), last_error(done))
    return visible(fatal)


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
        made(part, "reset", "--hard", "--quiet", commit)


def last_words(done: subprocess.CompletedProcess[str], lines: int) -> str:
    """The last lines of what a program says, on one."""
    told = done.stderr.strip() or done.stdout.strip()
    return visible(" ".join(" ".join(told.split("\n")[-lines:]).split())) or "no reason was given"
