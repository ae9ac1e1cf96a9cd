"""Notes which modules a Python process of a command has loaded, as it ends.

Python imports this file by itself ahead of any script. It prints nothing, lets no error of its own
out, and does what the sitecustomize would have done that it stands before. It may be of any
Python since 3.6."""

import atexit
import contextlib
import importlib
import os
import sys


def note() -> None:
    """One file for each process: its interpreter, its environment and its modules."""
    with contextlib.suppress(Exception):
        # Not by getattr, upon which lazy modules load, or fail.
        all_names = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
        files = [names["__file__"] for names in all_names if type(names.get("__file__")) is str]
        told = [sys.executable, sys.prefix] + [os.path.abspath(file) for file in files]
        name = os.path.join(os.environ["GPULIFT_LOADED"], f"python.{os.getpid()}")
        with open(name, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\0".join(told))


def run_shadowed() -> None:
    """The environment's own sitecustomize."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    shadowing = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        if shadowing is not None:
            sys.modules["sitecustomize"] = shadowing


atexit.register(note)
run_shadowed()
