"""A file in a branch of a git repository, read and written without a checkout of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gpulift.gate.git import asked, line, made, reason
from gpulift.ground.errors import FAILED, GpuliftError, RecordError
from gpulift.ground.programs import text_of

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
            return made(self.root, "cat-file", "blob", blob).decode()
        except UnicodeDecodeError:
            raise RecordError(f"{self.branch}:{name}: is no text") from None

    def write(self, name: str, content: str, message: str) -> None:
        """A commit in which that file is another and all others are the same. Raises GpuliftError
        where the branch is checked out, whose files would not follow, or has another tip by now."""
        ref = _ref(self.root, self.branch)
        listed = os.fsdecode(made(self.root, "worktree", "list", "--porcelain"))
        for lines in map(str.splitlines, listed.split("\n\n")):
            if f"branch {ref}" in lines:
                place = lines[0].removeprefix("worktree ")
                raise GpuliftError(
                    f"--branch {self.branch}: is checked out in {place}: name one that nobody"
                    " works in"
                )
        blob = line(self.root, "hash-object", "-w", "--stdin", content=content.encode())
        own = f"100644 blob {blob}\t{name}".encode()
        entries = [own, *(one for one in self.entries if _name(one) != name.encode())]
        # --missing: a clone may lack the files of what it has never shown.
        tree = line(self.root, "mktree", "-z", "--missing", content=b"\0".join([*entries, b""]))
        parents = ["-p", self.commit] if self.commit else []
        commit = line(self.root, "commit-tree", tree, *parents, "-m", message)
        made(self.root, "update-ref", ref, commit, self.commit or "0" * len(commit))


def tip(root: Path, branch: str) -> Tip:
    """The branch as it is now; that of origin, which is fetched, where it is not here."""
    ref = _ref(root, branch)
    here = ("rev-parse", "--verify", "--quiet", ref)
    found = asked(root, *here)
    if found.returncode != 0 and _is_at_remote(root, branch, ref):
        made(root, "fetch", "--quiet", "--no-tags", REMOTE, f"{ref}:{ref}")
        found = asked(root, *here)
    if found.returncode != 0:
        return Tip(root, branch)
    commit = found.stdout.decode().strip()
    listed = made(root, "ls-tree", "-z", commit)
    return Tip(root, branch, commit, tuple(filter(None, listed.split(b"\0"))))


def lock_of(root: Path) -> Path:
    """A file that all worktrees of the repository share."""
    return root / line(root, "rev-parse", "--git-common-dir") / "gpulift-history.lock"


def _is_at_remote(root: Path, branch: str, ref: str) -> bool:
    if asked(root, "remote", "get-url", REMOTE).returncode != 0:
        return False
    answer = asked(root, "ls-remote", "--exit-code", REMOTE, ref)
    if answer.returncode not in (0, NO_BRANCH):
        raise GpuliftError(
            f"--branch {branch}: is not here, and {REMOTE} does not say whether it is there:"
            f" {reason(answer)}",
            FAILED,
        )
    return answer.returncode == 0


def _name(entry: bytes) -> bytes:
    return entry.partition(b"\t")[2]


def _ref(root: Path, branch: str) -> str:
    answer = asked(root, "check-ref-format", "--branch", branch)
    if text_of(answer.stdout) != f"{branch}\n" or branch.startswith("refs/"):
        raise GpuliftError(f"--branch {branch!r}: is no name of a branch")
    return f"refs/heads/{branch}"
