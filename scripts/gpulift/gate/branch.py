"""A file in a branch of a git repository, read and written without a checkout of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpulift.ground.errors import FAILED, GpuliftError

LIMIT_S = 60
AUTHOR = {"GIT_AUTHOR_NAME": "gpulift", "GIT_AUTHOR_EMAIL": "gpulift@localhost"}
COMMITTER = {"GIT_COMMITTER_NAME": "gpulift", "GIT_COMMITTER_EMAIL": "gpulift@localhost"}


def read(repository: Path, branch: str, name: str) -> str | None:
    """None where the branch or the file is not there."""
    done = _git(repository, "cat-file", "blob", f"{_ref(branch)}:{name}")
    return done.stdout if done.returncode == 0 else None


def write(repository: Path, branch: str, name: str, content: str, message: str) -> None:
    """A commit with that file alone. Raises GpuliftError where another one came in between."""
    ref = _ref(branch)
    before = _git(repository, "rev-parse", "--verify", "--quiet", ref).stdout.strip()
    blob = _made(repository, "hash-object", "-w", "--stdin", content=content)
    tree = _made(repository, "mktree", content=f"100644 blob {blob}\t{name}\n")
    parents = ["-p", before] if before else []
    commit = _made(repository, "commit-tree", tree, *parents, "-m", message)
    _made(repository, "update-ref", ref, commit, before or "0" * len(commit))


def _ref(branch: str) -> str:
    if not branch or branch.startswith("-") or ".." in branch or ":" in branch:
        raise GpuliftError(f"--branch {branch!r}: is no name of a branch")
    return f"refs/heads/{branch}"


def _made(repository: Path, *arguments: str, content: str = "") -> str:
    done = _git(repository, *arguments, content=content)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no reason was given"]
        raise GpuliftError(f"git {arguments[0]} in {repository}: {said[-1]}", FAILED)
    return done.stdout.strip()


def _git(repository: Path, *arguments: str, content: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *arguments],
            input=content,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={**COMMITTER, **AUTHOR, **os.environ},
        )
    except FileNotFoundError:
        raise GpuliftError("git is not installed: install it") from None
    except subprocess.TimeoutExpired:
        raise GpuliftError(f"git {arguments[0]}: has not ended in {LIMIT_S} s") from None
