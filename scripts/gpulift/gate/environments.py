"""`gpulift gate --base-python ENV --head-python ENV`: two Python environments on one build.

Only arms that Python workers run can differ between them; all other arms are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpulift.engine import machine
from gpulift.engine.machine import TechniqueInfo
from gpulift.gate.asked import PYTHONS, Asked
from gpulift.gate.builds import Build, own_build
from gpulift.gate.rows import choose_rows
from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import answered, last_error
from gpulift.records.decode import converted, parse_line

Say = Callable[[str], None]
WORKER = "gpulift_worker.py"
ANSWER_TIMEOUT_S = 300  # a first import may compile and cache a lot


@dataclass(frozen=True)
class Environment:
    """An interpreter, and in words the versions of what the scripts import."""

    python: Path
    said: str

    @property
    def stem(self) -> str:
        """For names of folders."""
        return re.sub(r"[^\w.+]+", "-", self.said).lower()


@dataclass(frozen=True)
class Answer:
    """What a worker says: by script what it lacks, by package its version."""

    missing: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sides:
    """Both sides of a gate, and the techniques that either has."""

    base: Build
    head: Build
    base_infos: Sequence[TechniqueInfo]
    head_infos: Sequence[TechniqueInfo]


def find_sides(asked: Asked, say: Say) -> Sides:
    """This checkout's build with either environment, and Python arms alone; refuses an environment
    that lacks what a script needs."""
    build = own_build(asked.gpu)
    catalogue = machine.catalogue(build.bench)
    infos = with_python_arms(catalogue)
    rows = choose_rows(infos, infos, asked.filter, asked.all_cases)
    if len(infos) < len(catalogue):
        say(f"techniques without Python arms, left out: {len(catalogue) - len(infos)}")
    scripts = [
        machine.script_of(build.modules, name) for name in sorted({row.technique for row in rows})
    ]
    found = [
        find_environment(option, named, build.modules / WORKER, scripts)
        for option, named in zip(PYTHONS, asked.pythons or (), strict=True)
    ]
    base, head = (
        replace(build, name=f"{one.said} on {build.name}", stem=one.stem, python=one.python)
        for one in found
    )
    return Sides(base, head, infos, infos)


def with_python_arms(infos: Iterable[TechniqueInfo]) -> list[TechniqueInfo]:
    """The techniques that have Python arms, with those arms alone."""
    found = [replace(info, arms=info.python) for info in infos if info.python]
    if not found:
        raise GpuliftError("no technique of this build has Python arms: there is nothing to gate")
    return found


def find_environment(option: str, named: str, worker: Path, scripts: Sequence[Path]) -> Environment:
    """The environment that an option names by its interpreter or its folder, once it has loaded
    the scripts; throws GpuliftError otherwise."""
    python = machine.find_python(option, named)
    answer = _describe(f"{option} {named}", [str(python), str(worker), "--describe", *scripts])
    if answer.missing:
        script, why = min(answer.missing.items())
        technique = script.replace(".", "/", 1)
        raise GpuliftError(
            f"{option} {named}: {technique} cannot run: {why}; install what it needs, or leave the"
            f' technique out with --filter "-{technique}"'
        )
    said = ", ".join(f"{name} {version}" for name, version in answer.versions.items())
    return Environment(python, said.replace("python", "Python", 1))


def _describe(asked: str, command: Sequence[str | Path]) -> Answer:
    done = answered(command, ANSWER_TIMEOUT_S, asked)
    if done.returncode != 0:
        raise GpuliftError(f"{asked}: {last_error(done)}")
    return converted(parse_line(done.stdout, asked), Answer, asked)
