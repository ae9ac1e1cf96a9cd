"""The first runs of a gate of somebody's command: whether either side works, which rows it has, how
long it takes, and whether what it runs is its own and begins alike each time."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from gpulift.gate import loaded, prepared
from gpulift.gate.jobs import Job, JobSide, RunFailed, Say, run_once
from gpulift.gate.pairs import Run
from gpulift.ground.errors import FAILED, NOT_COMPARABLE, GpuliftError
from gpulift.ground.text import visible

ALIKE = 1.5  # less than so many times another number
NO_LIMIT = float("inf")
INSTALL = "pip install pytest-benchmark"
PYTHONS_CACHE, CACHE_TAG = "__pycache__", "CACHEDIR.TAG"  # bford.info/cachedir


def first_runs(
    job: Job, base: JobSide, head: JobSide, checkout: Path | None, say: Say
) -> tuple[Run, Run, JobSide]:
    """A run of each side, and the head with what is to be said of it. Raises GpuliftError."""
    runs, loads = [], []
    with TemporaryDirectory(prefix="gpulift-gate-") as folder:
        for word, side in (("base", base), ("head", head)):
            say(f"one run of the {word} to begin with, {side.name}: {shlex.join(job.command)}")
            if not side.folder.is_dir():
                raise GpuliftError(f"{side.name} has no folder {side.folder.name}")
            out, told = Path(folder) / word, Path(folder) / f"{word}.loaded"
            try:
                runs.append(run_once(job, loaded.watched(side, told), out, NO_LIMIT))
                loads.append(loaded.read(side, job.command, told, checkout))
                _require_alike(job, side, out, runs[-1])
            except RunFailed as failed:
                more = f": {INSTALL}" if "arguments: --benchmark" in str(failed) else ""
                scripts = (part for part in job.command if part.endswith((".py", ".sh")))
                for gone in (part for part in scripts if not (side.folder / part).is_file()):
                    raise GpuliftError(f"{gone}: is not in {side.name}: commit it") from None
                raise GpuliftError(f"a run of the {word} {failed}{more}", FAILED) from None
    loaded.require_own(base, head, loads, checkout)
    if one := loaded.same_build(base, head, loads):
        head = replace(head, name=f"{head.name}, with the binaries of the base as {visible(one)}")
    return runs[0], runs[1], head


def _require_alike(job: Job, side: JobSide, out: Path, first: Run) -> None:
    """Refuses (not comparable) a command that says other numbers where it finds what an earlier run
    left, as one that goes on from a checkpoint; a cache is there for that."""
    if side.root is None:
        return
    found: list[Path] = []
    for again in range(3):  # the first run may have filled caches elsewhere; noise may do it once
        if again:
            prepared.remove(side.root, [*map(str, found)])
            first = run_once(job, side, out, NO_LIMIT)
        left = [*map(Path, prepared.left(side.root.parent, side.root))]
        found = [name for name in left if not _is_cached(name, side.root)]
        if not found:
            return
        later = run_once(job, side, out, NO_LIMIT)
        factors = [
            math.exp(abs(math.log(first.values[row].value / later.values[row].value)))
            for row in first.values.keys() & later.values.keys()
        ]
        if max(factors, default=1.0) < ALIKE:
            return
    named = visible(str(found[0]))
    raise GpuliftError(
        f"not comparable: a run of {side.name} that finds {named} of an earlier one"
        f" says {max(factors):.3g} times another number: let the command remove it, or --setup"
        " make it",
        NOT_COMPARABLE,
    )


def _is_cached(name: Path, root: Path) -> bool:
    """Whether it is in a folder of Python's or numba's, or one that says that it is a cache."""
    tagged = any((root / folder / CACHE_TAG).is_file() for folder in name.parents)
    return tagged or PYTHONS_CACHE in name.parts or name.suffix == ".pyc"
