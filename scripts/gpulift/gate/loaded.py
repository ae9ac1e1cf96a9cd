"""What a run of a command really loads: a side that runs what is not its own measures something
else, and two that run the same files measure nothing.

Python tells its modules, and the loader of glibc the programs and libraries of all processes that a
run starts. What neither knows, as a static program that a script calls, is not seen.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gpulift.gate.jobs import JobSide
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError
from gpulift.ground.text import visible

INJECT = Path(__file__).parent / "inject"
PYTHON, LIBRARIES = "python.*", "libraries"
LOADS = re.compile(r":\s+(?:calling init|initialize program): (.+)$", re.M)
BINARY = b"\x7fELF"
PACKAGES = ("site-packages", "dist-packages")
OF_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
OWN = (
    "let --setup install it by a plain pip, which has an environment of its own on each side, or"
    " name it from the side's folder, as PYTHONPATH=src does"
)


@dataclass(frozen=True)
class Loaded:
    """The files of programs, libraries and modules, the Pythons with their environments, and what
    the command itself names by a full path."""

    files: frozenset[Path]
    pythons: frozenset[tuple[str, str]]
    named: frozenset[Path]


def watched(side: JobSide, folder: Path) -> JobSide:
    """The side, whose run tells in the folder what it loads."""
    folder.mkdir()
    environment = dict(side.environment)
    environment["GPULIFT_LOADED"] = str(folder)
    paths = [str(INJECT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if "LD_DEBUG" not in environment:
        environment |= {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(folder / LIBRARIES)}
    return replace(side, environment=environment)


def read(side: JobSide, command: Sequence[str], folder: Path, elsewhere: Path | None) -> Loaded:
    """What the run told. What has no full path and is not in the side's folder may be in another
    one, the user's own, where a script went there."""
    files, pythons = {command[0]}, set()
    for file in folder.glob(PYTHON):
        executable, *more = file.read_text("utf-8", "surrogateescape").split("\0")
        if more:  # it was not killed while it wrote
            pythons.add((os.path.realpath(executable), more[0]))
            files.update(more[1:])
    for file in folder.glob(f"{LIBRARIES}.*"):
        files.update(LOADS.findall(file.read_text("utf-8", "surrogateescape")))
    folders = [one for one in (side.folder, elsewhere) if one is not None]
    found = (_path(name, folders, side.environment) for name in files)
    named = (Path(os.path.realpath(part)) for part in command[1:] if part.startswith("/"))
    return Loaded(frozenset(filter(None, found)), frozenset(pythons), frozenset(named))


def _path(name: str, folders: Sequence[Path], environment: Mapping[str, str]) -> Path | None:
    if "/" not in name:
        name = shutil.which(name, path=environment.get("PATH", os.defpath)) or ""
    paths = (Path(os.path.realpath(folder / name)) for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), None)


def same_build(base: JobSide, head: JobSide, loads: Sequence[Loaded]) -> str:
    """The first of the binaries that both sides run of their own, if all are the same byte by byte:
    of another text their set-up may have built, or copied, one thing."""
    if base.root is None or head.root is None or base.root == head.root:
        return ""
    roots = [Path(os.path.realpath(root)) for root in (base.root, head.root)]
    own = [
        {file.relative_to(root) for file in one.files if file.is_relative_to(root)}
        for root, one in zip(roots, loads, strict=True)
    ]
    built = sorted(
        part for part in own[0] | own[1] if any(map(_is_binary, (r / part for r in roots)))
    )
    alike = _Roots(roots[0], roots[1], roots[0]).same
    return str(built[0]) if built and all(map(alike, built)) else ""


def _is_binary(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(BINARY)) == BINARY


def require_own(
    base: JobSide, head: JobSide, loads: Sequence[Loaded], checkout: Path | None
) -> None:
    """Refuses (not comparable) sides of which one runs the other's files or the user's checkout, or
    both a copy of the project that is installed for both."""
    of_base, of_head = loads
    if base.python and head.python:
        if of_base.pythons == of_head.pythons and of_base.pythons and base.python != head.python:
            ((_, prefix), *_) = sorted(of_base.pythons)
            raise _refusal(
                f"both sides run the Python of {prefix}", "write `python` in the command"
            )
        return
    if checkout is None or base.root is None or head.root is None or base.root == head.root:
        return
    roots = _Roots(*(Path(os.path.realpath(one)) for one in (base.root, head.root, checkout)))
    for word, own, loaded in (("base", roots.base, of_base), ("head", roots.head, of_head)):
        for file in sorted(loaded.files):
            if not file.is_relative_to(own) and (whose := roots.foreign(file, loaded.named)):
                raise _refusal(f"the {word} runs {visible(str(file))}, which is in {whose}", OWN)
    for file in sorted(of_base.files & of_head.files):
        if whose := roots.installed(file):
            raise _refusal(f"both sides run {visible(str(file))}, which is {whose}", OWN)


def _refusal(told: str, advice: str) -> GpuliftError:
    return GpuliftError(f"not comparable: {told}: {advice}", NOT_COMPARABLE)


@dataclass(frozen=True)
class _Roots:
    """The files of both commits, and those that the user works on."""

    base: Path
    head: Path
    checkout: Path

    def foreign(self, file: Path, named: frozenset[Path]) -> str:
        """Whose a file is that another side runs; empty where that does no harm: it is in no
        folder of these, or is the same in both commits, or one that only the user's checkout has
        and the command names, as a new benchmark of old code."""
        root = self._above(file)
        if root is None:
            return ""
        part = file.relative_to(root)
        both = (self.base / part).is_file() and (self.head / part).is_file()
        if (both and self.same(part)) or (file in named and not both):
            return ""
        return {self.base: "the base", self.head: "the head"}.get(root, "your checkout")

    def installed(self, file: Path) -> str:
        """Of what a file elsewhere is an installed copy; empty where of nothing that differs."""
        if self._above(file) is not None:
            return ""
        above = next((one for one in file.parents if one.name in PACKAGES), None)
        end = f"/{file.name}" if above is None else f"/{file.relative_to(above)}"
        if above is not None:
            project = _projects(above).get(file.relative_to(above).parts[0], Path("/"))
            folders = (self.checkout, self.base.parents[1])
            if any(project.is_relative_to(one) for one in folders):
                return f"installed from {project}"
        for part in self._parts.get(file.name, ()):
            if not f"/{part}".endswith(end) or self.same(part):
                continue
            if above is not None or self._copied(file, part):
                return f"a copy of {part}"
        return ""

    def _above(self, file: Path) -> Path | None:
        """The folder of these that it is in, but for environments that stand there."""
        roots = (self.base, self.head, self.checkout)
        found = (
            one for one in roots if file.is_relative_to(one) and not _of_environment(file, one)
        )
        return next(found, None)

    def same(self, part: Path) -> bool:
        """Whether both commits have a file, with the same bytes."""
        base, head = self.base / part, self.head / part
        return base.is_file() and head.is_file() and filecmp.cmp(base, head, shallow=False)

    def _copied(self, file: Path, part: Path) -> bool:
        sides = (self.base / part, self.head / part)
        return any(one.is_file() and filecmp.cmp(one, file, shallow=False) for one in sides)

    @cached_property
    def _parts(self) -> Mapping[str, set[Path]]:
        """The files of either commit by name."""
        found: dict[str, set[Path]] = {}
        for root in (self.base, self.head):
            for folder, _, files in os.walk(root):
                for name in files:
                    found.setdefault(name, set()).add(Path(folder, name).relative_to(root))
        return found


def _of_environment(file: Path, root: Path) -> bool:
    """Whether it is of packages that stand in a folder of a project."""
    above = [one for one in file.parents if one != root and one.is_relative_to(root)]
    return any(
        one.name in PACKAGES or any((one / mark).exists() for mark in OF_ENVIRONMENT)
        for one in above
    )


@cache
def _projects(packages: Path) -> Mapping[str, Path]:
    """The folders from which packages were installed, as pip notes it."""
    found: dict[str, Path] = {}
    for note in packages.glob("*.dist-info/direct_url.json"):
        try:
            url = urlsplit(json.loads(note.read_bytes())["url"])
            record = (note.parent / "RECORD").read_text("utf-8", "replace")
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if url.scheme == "file":
            project = Path(os.path.realpath(unquote(url.path)))
            found |= dict.fromkeys(re.findall(r"^([^/,]+)", record, re.M), project)
    return found
