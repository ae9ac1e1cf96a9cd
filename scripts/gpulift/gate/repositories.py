"""The two sides of a gate of somebody's command: commits of any git repository, each checked out
into a folder of its own and set up once.

They stand in the user's cache, so that no run sees or changes what somebody is editing. A tree with
changes is judged as it is, by a commit of it that no branch has.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gpulift.gate import prepared
from gpulift.gate.git import check_out, git, last_words, line
from gpulift.gate.jobs import JobSide
from gpulift.gate.prepared import Say
from gpulift.gate.processes import run_to_end
from gpulift.ground.errors import FAILED, GpuliftError, write_error
from gpulift.ground.lock import alone
from gpulift.ground.programs import text_of
from gpulift.ground.text import counted, visible

CHECKOUT = "GPULIFT_CHECKOUT"  # what a set-up may take things from that no commit holds
DIGITS = 12  # of a commit in the name of its folder
LAST_LINES = 5
NO_REPOSITORY = "not a git repository"  # in the words of git
SOURCE = "source"
LOCK = "lock"  # its time is when the folder was used last
NO_TIME = "2000-01-01T00:00:00Z"  # so that the same changes are the same commit
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
        found = git(folder, "rev-parse", "--show-toplevel", "--show-prefix")
        if found.returncode != 0:
            said = last_words(found, LAST_LINES)
            if NO_REPOSITORY in said:
                said = "is in no git repository: call it from a checkout"
            raise GpuliftError(f"{folder}: {said}")
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
        if clashing := git(self.root, "diff", "--name-only", "--diff-filter=U").stdout.split("\n")[
            0
        ]:
            raise GpuliftError(f"{clashing} has conflicts: resolve them, or name a --head")
        with TemporaryDirectory(prefix="gpulift-index-") as folder:
            own = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            index = line(self.root, "rev-parse", "--git-path", "index")
            # With its time, by which git knows what may have changed since.
            shutil.copy2(self.root / index, own["GIT_INDEX_FILE"])
            line(self.root, "add", "--update", more=own)
            tree = line(self.root, "write-tree", more=own)
        commit = head
        if changed := tree != self.tree(head):
            dates = {f"GIT_{who}_DATE": NO_TIME for who in ("AUTHOR", "COMMITTER")}
            commit = line(self.root, "commit-tree", tree, "-p", head, "-m", "changes", more=dates)
        listed = git(self.root, "ls-files", "--others", "--exclude-standard").stdout
        new = len(listed.splitlines())
        said = f"this checkout ({head[:7]}{' with uncommitted changes' if changed else ''})"
        if new:
            said += f", without {counted(new, 'new file')} that git does not know"
        return commit, said

    def tree(self, commit: str) -> str:
        """Which files it has: of several commits with the same files one."""
        return line(self.root, "rev-parse", f"{commit}^{{tree}}")

    @contextmanager
    def held(self, commits: list[str], environment: Mapping[str, str], say: Say) -> Iterator[None]:
        """Holds the folders of commits: no other gate clears them while runs are in them."""
        folders = sorted({self._above(commit, environment) for commit in commits})
        if folders:
            self._remove_old(folders[0].parent)
        with ExitStack() as stack:
            for above in folders:  # in one order, so that no two gates wait for each other
                try:
                    above.mkdir(parents=True, exist_ok=True)
                    waits = alone(above / LOCK, lambda: say("another gate runs here; waiting"))
                    stack.enter_context(waits)
                    os.utime(above / LOCK)
                except OSError as error:
                    raise write_error(above, error) from None
            yield

    def side(
        self,
        commit: str,
        said: str,
        setup: str,
        environment: Mapping[str, str],
        limit_s: float,
        say: Say,
    ) -> JobSide:
        """The commit's files, set up by a command of the shell where one is given."""
        above = self._above(commit, environment)
        source = above / SOURCE
        try:
            above.mkdir(parents=True, exist_ok=True)
            made_with = prepared.made_with(setup, environment)
            if why := prepared.restore(above, source, made_with, say):
                if source.is_dir():
                    say(f"checking {said} out anew: {why}")
                for part in (above / prepared.FILE, source, above / prepared.ENVIRONMENT):
                    shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
                self._check_out(commit, source, say)
                own = prepared.own_environment(above, setup, environment)
                self._set_up(source, said, setup, own, limit_s, say)
                prepared.write(above, source, made_with)
            own = prepared.own_environment(above, setup, environment)
        except OSError as error:
            raise write_error(above, error) from None
        return JobSide(said, source / self.inside, own, source, commit=commit)

    def _above(self, commit: str, environment: Mapping[str, str]) -> Path:
        return self.cache(environment) / commit[:DIGITS]

    def cache(self, environment: Mapping[str, str]) -> Path:
        """The folder of this repository in the cache, which two of one name do not share."""
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", self.root.name)
        return cache_folder(environment) / f"{name}-{digest}"

    def _remove_old(self, cache: Path) -> None:
        """Folders that no gate has used for long."""
        for lock in cache.glob(f"*/{LOCK}"):
            if time.time() - lock.stat().st_mtime > KEPT_S:
                shutil.rmtree(lock.parent, ignore_errors=True)

    def _check_out(self, commit: str, source: Path, say: Say) -> None:
        check_out(self.root, commit, source)
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
        if not setup:
            return
        if not (source / self.inside).is_dir():
            raise GpuliftError(f"{said} has no folder {self.inside}: call it from another one")
        say(f"setting up {said}: {setup}")
        own = {**environment, CHECKOUT: str(self.root)}
        try:
            ended = run_to_end(["sh", "-c", setup], limit_s, source / self.inside, own)
        except subprocess.TimeoutExpired:
            raise GpuliftError(
                f"--setup has not ended in {limit_s:g} s in {said}", FAILED
            ) from None
        if ended.code != 0:
            told = (text_of(ended.errors).strip() or text_of(ended.printed).strip()).split("\n")
            last = visible(" ".join(told[-LAST_LINES:])) or "no reason was given"
            raise GpuliftError(
                f"--setup failed in {said} with code {ended.code}; where base and head need"
                f" different ones, let it ask what is there. It said: {last}",
                FAILED,
            )


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where commits are checked out: below XDG_CACHE_HOME, or .cache of the user."""
    named = environment.get("XDG_CACHE_HOME", "")
    above = Path(named) if named.startswith("/") else Path(_home(environment)) / ".cache"
    return above / "gpulift" / "gate"


def _home(environment: Mapping[str, str]) -> str:
    if named := environment.get("HOME"):
        return named
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise GpuliftError("HOME is not set: set it, or XDG_CACHE_HOME") from None
