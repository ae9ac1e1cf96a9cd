"""Python packages that scripts of Python arms import, and whether this interpreter has them.

The interpreter of this package is also that of Python arms, unless --python names another one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gpulift.engine import libraries
from gpulift.engine.machine import TechniqueInfo, script_of

INSTALLED_AS = {"PIL": "pillow"}  # packages whose distributions have other names


def is_installed(package: str) -> bool:
    """Whether it could be imported; it is not, since a framework takes seconds to load."""
    return find_spec(package) is not None


def missing(package: str) -> str:
    """As an arm says it that is skipped."""
    return f"the Python package {package} is not installed"


def remedy(package: str) -> str:
    """As an arm says it that is skipped."""
    distribution = INSTALLED_AS.get(package, package)
    return f"install {distribution}, or name another interpreter with --python"


def with_missing(infos: Iterable[TechniqueInfo], modules: Sequence[Path]) -> list[TechniqueInfo]:
    """The techniques of folders of modules; those without an arm that can run, for want of a
    package or library, are unavailable."""
    return [_with_missing(info, modules) for info in infos]


def _with_missing(info: TechniqueInfo, modules: Sequence[Path]) -> TechniqueInfo:
    for library in info.libraries:
        if not libraries.is_there(library):
            told = f"{library} is not there"
            return replace(info, unavailable=told, remedy=libraries.REMEDY)
    if info.unavailable or not info.arms or set(info.arms) - set(info.python):
        return info
    scripts = (script_of(folder, info.id) for folder in modules)
    for script in filter(Path.is_file, scripts):
        for package in _imported(script, set()):
            if not is_installed(package):
                return replace(info, unavailable=missing(package), remedy=remedy(package))
    return info


def _imported(script: Path, seen: set[Path]) -> Iterator[str]:
    """Packages that loading a script imports, by itself or through the modules beside it.

    What it imports only when it makes an arm is another arm's matter. A script that cannot be read
    names none: the run itself says what is wrong with it.
    """
    seen.add(script)
    # A link to a script elsewhere finds what lies there, too.
    folders = dict.fromkeys((script.parent, script.resolve().parent))
    for name in _names_in(script):
        if any((folder / name).is_dir() for folder in folders):
            continue
        beside = next((one for f in folders if (one := f / f"{name}.py").is_file()), None)
        if beside is None:
            yield name
        elif beside not in seen:
            yield from _imported(beside, seen)


@cache
def _names_in(script: Path) -> list[str]:
    """Of a module that many scripts import it is asked for each."""
    try:
        body = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    return [name for statement in body for name in _names(statement)]


def _names(statement: ast.stmt) -> list[str]:
    """The outermost packages of an import statement."""
    if isinstance(statement, ast.Import):
        return [alias.name.partition(".")[0] for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return [statement.module.partition(".")[0]]
    return []
