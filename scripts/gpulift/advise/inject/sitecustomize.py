"""Starts gpulift's probe once a script that `gpulift advise` runs has imported torch.

Python imports this file by itself ahead of any script. It prints nothing, lets no error of its own
out, and then does what the sitecustomize would have done that it stands before."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as Python does, and calls the probe when its import has ended."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Of torch alone; some ask for it without importing it."""
        if fullname != "torch":
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    with contextlib.suppress(AttributeError):  # a namespace, or no such loader
                        self._wrap(spec.loader)
                    return spec
        return None

    def _wrap(self, loader: Any) -> None:
        execute = loader.exec_module

        def execute_and_start(module: Any) -> None:
            execute(module)
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)
                start()

        loader.exec_module = execute_and_start


def start() -> None:
    """The probe, whose errors are none of the script."""
    with contextlib.suppress(Exception):
        import gpulift_probe

        gpulift_probe.start()


def run_shadowed() -> None:
    """The environment's own sitecustomize."""
    here = os.path.realpath(os.path.dirname(__file__))
    others = [folder for folder in sys.path if os.path.realpath(folder) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


# Those that stand before others, too, may have this file run twice.
twice = any(type(finder).__name__ == AfterTorch.__name__ for finder in sys.meta_path)
if os.environ.get("GPULIFT_ADVISE") and not twice:
    sys.meta_path.insert(0, AfterTorch())
    with contextlib.suppress(Exception):
        import gpulift_probe.missing

        gpulift_probe.missing.watch()
run_shadowed()
