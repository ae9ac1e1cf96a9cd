"""Imports that are put off while a help is asked for: it names options, and computes nothing.

What a command's module imports by name is then a stand-in, which imports its own module when
something is asked of it, as a default that the help tells.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from gpulift.ground.errors import GpuliftError

NOW = ("gpulift.commands.", "gpulift.ground.", "gpulift.verdicts.thresholds")  # have options
LATER = (
    "gpulift.ground.terminal",
    "numpy",
    "numpy.typing",
    "rich.console",
    "rich.markup",
    "rich.progress",
    "rich.table",
    "rich.text",
    "scipy",
)


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether one of them does, before those of another command."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--help" in own or "-h" in own


def put_off() -> None:
    """From now on, in this process."""
    sys.meta_path.insert(0, _Finder())


def refusing(command: Callable[..., Any]) -> Callable[..., Any]:
    """It with its options, where imports are put off: no command works with stand-ins."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        return command

    @wraps(command)
    def refused(*_: Any, **__: Any) -> None:
        raise GpuliftError("--help is no value of an option; give it alone, or the value as ./-h")

    return refused


class _StandIn:
    """Of a constant that was not imported yet."""

    def __init__(self, module: str, name: str) -> None:
        self._of = (module, name)

    def _found(self) -> Any:
        module, name = self._of
        if isinstance(sys.modules.get(module), _Module):
            del sys.modules[module]
            for finder in sys.meta_path:
                if isinstance(finder, _Finder):
                    finder.wanted.add(module)
        return getattr(import_module(module), name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    def __rmul__(self, factor: float) -> Any:
        return factor * self._found()

    def __str__(self) -> str:
        return str(self._found())


class _Callable(_StandIn):
    """Of a class, a function or a module."""

    def __call__(self, *values: Any, **named: Any) -> Any:
        return self._found()(*values, **named)

    def __mro_entries__(self, _: Any) -> tuple[Any, ...]:
        return (self._found(),)

    def __getitem__(self, _: Any) -> _Callable:
        return self  # as a type of annotations, which nobody evaluates


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return (_StandIn if name.isupper() else _Callable)(self.__name__, name)


class _Finder(MetaPathFinder, Loader):
    def __init__(self) -> None:
        self.wanted: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of what is put off; modules, not the folders that they are in."""
        name = fullname.rpartition(".")[2]
        ours = fullname.startswith("gpulift.") and not fullname.startswith(NOW)
        late = (ours or fullname in LATER) and fullname not in self.wanted
        is_folder = any(Path(one, name).is_dir() for one in path or ())
        return ModuleSpec(fullname, self) if late and not is_folder else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """One that has every name."""
        made = _Module(spec.name)
        made.__path__ = []  # it may have modules
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is."""
