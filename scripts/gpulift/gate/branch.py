"""A file in a branch of a git repository, read and written without a checkout of it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpulift.ground.errors import FAILED, GpuliftError, RecordError
from gpulift.ground.programs import last_error, text_of

LIMIT_S = 60
AUTHOR = {"GIT_AUTHOR_NAME": "gpulift", "GIT_AUTHOR_EMAIL": "gpulift@localhost"}
COMMITTER = {"GIT_COMMITTER_NAME": "gpulift", "GIT_COMMITTER_EMAIL": "gpulift@localhost"}
ALWAYS = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}  # nobody is there to give a password
REMOTE = "origin"
NO_BRANCH = 2  # of `git ls-remote --exit-code`


@dataclass(frozen=True)
class Tip:
    """A branch as it was read: its newest commit, empty where there is none, and the entries of its
    tree as git lists them, which may have any name."""

    root: Path
    branch: str
    commit: str = ""
    entries: tuple[bytes, ...] = ()

    def content(self, name: str) -> str | None:
        """Of a file at the top; None where it is not there."""
        entry = next((one for one in self.entries if _name(one) == name.encode()), None)
        if entry is None:
            return None
        mode, _, blob = entry.partition(b"\t")[0].decode().split()
        if mode not in ("100644", "100755"):
            raise GpuliftError(f"{self.branch}:{name}: is no file there: name another branch")
        try:
            return _made(self.root, "cat-file", "blob", blob).decode()
        except UnicodeDecodeError:
            raise RecordError(f"{self.branch}:{name}: is no text") from None

    def write(self, name: str, content: str, message: str) -> None:
        """A commit in which that file is another and all others are the same. Raises GpuliftError
        where the branch is checked out, whose files would not follow, or has another tip by now."""
        ref = _ref(self.root, self.branch)
        listed = os.fsdecode(_made(self.root, "worktree", "list", "--porcelain"))
        for lines in map(str.splitlines, listed.split("\n\n")):
            if f"branch {ref}" in lines:
                place = lines[0].removeprefix("worktree ")
                raise GpuliftError(
                    f"--branch {self.branch}: is checked out in {place}: name one that nobody"
                    " works in"
                )
        blob = _line(self.root, "hash-object", "-w", "--stdin", content=content.encode())
        own = f"100644 blob {blob}\t{name}".encode()
        entries = [own, *(one for one in self.entries if _name(one) != name.encode())]
        # --missing: a clone may lack the files of what it has never shown.
        tree = _line(self.root, "mktree", "-z", "--missing", content=b"\0".join([*entries, b""]))
        parents = ["-p", self.commit] if self.commit else []
        commit = _line(self.root, "commit-tree", tree, *parents, "-m", message)
        _made(self.root, "update-ref", ref, commit, self.commit or "0" * len(commit))


def tip(root: Path, branch: str) -> Tip:
    """The branch as it is now; that of origin, which is fetched, where it is not here."""
    ref = _ref(root, branch)
    here = ("rev-parse", "--verify", "--quiet", ref)
    found = _git(root, *here)
    if found.returncode != 0 and _is_at_remote(root, branch, ref):
        _made(root, "fetch", "--quiet", "--no-tags", REMOTE, f"{ref}:{ref}")
        found = _git(root, *here)
    if found.returncode != 0:
        return Tip(root, branch)
    commit = found.stdout.decode().strip()
    listed = _made(root, "ls-tree", "-z", commit)
    return Tip(root, branch, commit, tuple(filter(None, listed.split(b"\0"))))


def lock_of(root: Path) -> Path:
    """A file that all worktrees of the repository share."""
    return root / _line(root, "rev-parse", "--git-common-dir") / "gpulift-history.lock"


def _is_at_remote(root: Path, branch: str, ref: str) -> bool:
    if _git(root, "remote", "get-url", REMOTE).returncode != 0:
        return False
    asked = _git(root, "ls-remote", "--exit-code", REMOTE, ref)
    if asked.returncode not in (0, NO_BRANCH):
        raise GpuliftError(
            f"--branch {branch}: is not here, and {REMOTE} does not say whether it is there:"
            f" {_reason(asked)}",
            FAILED,
        )
    return asked.returncode == 0


def _name(entry: bytes) -> bytes:
    return entry.partition(b"\t")[2]


def _ref(root: Path, branch: str) -> str:
    asked = _git(root, "check-ref-format", "--branch", branch)
    if text_of(asked.stdout) != f"{branch}\n" or branch.startswith("refs/"):
        raise GpuliftError(f"--branch {branch!r}: is no name of a branch")
    return f"refs/heads/{branch}"


def _made(root: Path, *arguments: str, content: bytes = b"") -> bytes:
    done = _git(root, *arguments, content=content)
    if done.returncode != 0:
        raise GpuliftError(f"git {arguments[0]} in {root}: {_reason(done)}", FAILED)
    return done.stdout


def _line(root: Path, *arguments: str, content: bytes = b"") -> str:
    return os.fsdecode(_made(root, *arguments, content=content)).removesuffix("\n")


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """The first line that says what was fatal: advice may follow."""
    said = text_of(done.stderr).splitlines()
    return next((one for one in said if one.startswith(("fatal: ", "error: "))), last_error(done))


def _git(root: Path, *arguments: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            input=content,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
            env={**COMMITTER, **AUTHOR, **os.environ, **ALWAYS},
        )
    except FileNotFoundError:
        raise GpuliftError("git is not installed: install it") from None
    except subprocess.TimeoutExpired:
        raise GpuliftError(f"git {arguments[0]}: has not ended in {LIMIT_S} s") from None
