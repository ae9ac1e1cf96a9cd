"""How commits of a repository follow each other, as git tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulift.gate.git import git, made


@dataclass(frozen=True)
class Ancestry:
    """Of the repository of a checkout."""

    root: Path

    def shared(self, one: str, other: str) -> list[str]:
        """The newest commits that both follow, or are: the first one alone where the second follows
        it. None where histories have nothing in common."""
        return git(self.root, "merge-base", "--all", one, other).stdout.split()

    def between(self, good: Sequence[str], bad: str) -> list[str]:
        """The commits that follow a good one and that the bad one follows, but no good one does;
        the one first that halves them, as `git bisect` would take it."""
        listed = self._listed("--bisect-all", "--ancestry-path", bad, "--not", *good)
        return [commit for line in listed if (commit := line.split()[0]) != bad]

    def parent(self, commit: str, good: Sequence[str]) -> str:
        """That which follows a good one, or is one: of a merge the side that is looked at."""
        (line,) = self._listed("--parents", "--max-count=1", commit)
        parents = line.split()[1:]
        return next(
            one for one in parents if any(early in self.shared(early, one) for early in good)
        )

    def _listed(self, *arguments: str) -> list[str]:
        return made(self.root, "rev-list", *arguments).decode().splitlines()
