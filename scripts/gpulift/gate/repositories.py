"""The two sides of a gate of somebody's command: commits of any git repository, each checked out
into a worktree of its own and set up once.

Worktrees stand in the user's cache, so that no run sees or changes what somebody is editing. A tree
with changes is judged as it is: git makes a commit of it that no branch has.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpulift.gate.git import git
from gpulift.gate.jobs import JobSide
from gpulift.ground.errors import FAILED, GpuliftError, write_error
from gpulift.ground.lock import alone
from gpulift.ground.programs import finished, text_of
from gpulift.ground.text import counted, visible

Say = Callable[[str], None]
CHECKOUT = "GPULIFT_CHECKOUT"  # what a set-up may take things from that no commit holds
DIGITS = 12  # of a commit in the name of its folder
LAST_LINES = 5
DONE = "set_up_with"
LOCK = "lock"  # its time is when the worktree was used last
KEPT_S = 14 * 86400.0  # since then
LFS = "filter=lfs"


@dataclass(frozen=True)
class Repository:
    """A checkout, and the folder inside it from which gpulift was called."""

    root: Path
    inside: str

    @staticmethod
    def here(folder: Path) -> Repository:
        """That of a folder. Raises GpuliftError where there is none."""
        if shutil.which("git") is None:
            raise GpuliftError("git is not installed: install it")
        found = git(folder, "rev-parse", "--show-toplevel", "--show-prefix")
        if found.returncode != 0:
            raise GpuliftError(f"{folder} is in no git repository: call it from the checkout")
        root, _, inside = found.stdout.rstrip("\n").partition("\n")
        return Repository(Path(root), inside)

    def commit(self, reference: str) -> str:
        """The full hash of a reference."""
        if not reference.startswith("-"):
            asked = f"{reference}^{{commit}}"
            found = git(self.root, "rev-parse", "--verify", "--quiet", asked)
            if found.returncode == 0:
                return found.stdout.strip()
        shallow = git(self.root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        more = ", and the clone is shallow: git fetch --unshallow" if shallow else ""
        raise GpuliftError(f"{reference!r} is no reference of {self.root}{more}")

    def described(self, commit: str) -> str:
        """`1a2b3c4 Subject (author, date)`."""
        shown = git(self.root, "show", "-s", "--date=short", "--format=%h %s (%an, %ad)", commit)
        return visible(shown.stdout.strip())

    def as_it_is(self) -> tuple[str, str]:
        """A commit of what the checkout holds now, and words for it."""
        head = self.commit("HEAD")
        changed = git(self.root, "stash", "create").stdout.strip()
        listed = git(self.root, "ls-files", "--others", "--exclude-standard").stdout
        new = len(listed.splitlines())
        said = f"this checkout ({head[:7]}{' with uncommitted changes' if changed else ''})"
        if new:
            said += f", without {counted(new, 'new file')} that git does not know"
        return changed or head, said

    def side(
        self,
        commit: str,
        said: str,
        setup: str,
        environment: Mapping[str, str],
        limit_s: float,
        say: Say,
    ) -> JobSide:
        """The commit's worktree, set up by a command of the shell where one is given."""
        above = self.cache(environment) / commit[:DIGITS]
        self._remove_old(above.parent)
        source = above / "source"
        try:
            above.mkdir(parents=True, exist_ok=True)
            with alone(above / LOCK, lambda: say("another gate sets this up; waiting for it")):
                os.utime(above / LOCK)
                self._check_out(commit, source, say)
                self._set_up(source, said, setup, environment, limit_s, say)
        except OSError as error:
            raise write_error(above, error) from None
        return JobSide(said, source / self.inside, environment)

    def cache(self, environment: Mapping[str, str]) -> Path:
        """The folder of this repository in the cache, which two of one name do not share."""
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", self.root.name)
        return cache_folder(environment) / f"{name}-{digest}"

    def _remove_old(self, cache: Path) -> None:
        """Worktrees that no gate has used for long."""
        for lock in cache.glob(f"*/{LOCK}"):
            if time.time() - lock.stat().st_mtime > KEPT_S:
                git(self.root, "worktree", "remove", "--force", str(lock.parent / "source"))
                shutil.rmtree(lock.parent, ignore_errors=True)

    def _check_out(self, commit: str, source: Path, say: Say) -> None:
        if source.is_dir():
            return
        # Forced: where someone removed the folder, git still has it listed.
        added = git(self.root, "worktree", "add", "--force", "--detach", str(source), commit)
        if added.returncode != 0:
            raise GpuliftError(
                f"{commit} cannot be checked out: {_last(added.stderr, added.stdout, 1)}", FAILED
            )
        if (source / ".gitmodules").is_file():
            say("submodules are not checked out: --setup 'git submodule update --init' does that")
        attributes = source / ".gitattributes"
        lfs = attributes.is_file() and LFS in attributes.read_text("utf-8", "replace")
        if lfs and git(source, "lfs", "version").returncode != 0:
            say("files of Git LFS are pointers, since git-lfs is not installed here")

    def _set_up(
        self,
        source: Path,
        said: str,
        setup: str,
        environment: Mapping[str, str],
        limit_s: float,
        say: Say,
    ) -> None:
        done = source.parent / DONE
        before = done.read_text("utf-8") if done.is_file() else ""
        if not setup or before == setup:
            return
        if not (source / self.inside).is_dir():
            raise GpuliftError(f"{said} has no folder {self.inside}: call it from another one")
        say(f"setting up {said}: {setup}")
        done.unlink(missing_ok=True)
        own = {**environment, CHECKOUT: str(self.root)}
        command = ["sh", "-c", setup]
        try:
            ended = finished(command, limit_s, source / self.inside, own)
        except subprocess.TimeoutExpired:
            raise GpuliftError(
                f"--setup has not ended in {limit_s:g} s in {said}", FAILED
            ) from None
        if ended.returncode != 0:
            last = _last(text_of(ended.stderr), text_of(ended.stdout), LAST_LINES)
            raise GpuliftError(
                f"--setup failed in {said} with code {ended.returncode}; where base and head need"
                f" different ones, let it ask what is there. It said: {last}",
                FAILED,
            )
        done.write_text(setup, encoding="utf-8")


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where worktrees stand: below XDG_CACHE_HOME, or .cache of the user."""
    named = environment.get("XDG_CACHE_HOME", "")
    above = Path(named) if named.startswith("/") else Path(environment.get("HOME", "/")) / ".cache"
    return above / "gpulift" / "gate"


def _last(errors: str, said: str, lines: int) -> str:
    told = errors.strip() or said.strip()
    return visible(" ".join(told.splitlines()[-lines:])) or "no reason was given"
