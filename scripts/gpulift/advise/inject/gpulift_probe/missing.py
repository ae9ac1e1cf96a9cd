"""Packages of fused kernels that were looked for in vain, after which libraries take slower code.

Finders are asked in turns: what comes to this last one was found by none. It knows no torch, since
packages may be asked for ahead of it."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Container, Iterator
from types import FrameType
from typing import Any

FUSED = (
    *("flash_attn", "flash_attn_interface", "fla", "causal_conv1d", "mamba_ssm", "apex"),
    *("liger_kernel", "xformers", "bitsandbytes", "transformer_engine", "deepspeed", "triton"),
)
INSTALLED = ("site-packages", "dist-packages")
asked: dict[str, list[str]] = {}  # by package: files of the callers, the innermost first


class Last(importlib.abc.MetaPathFinder):
    """Finds nothing, and writes down who asked first."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Of packages alone, not of their parts."""
        if fullname in FUSED and fullname not in asked:
            frame = sys._getframe(1)
            asked[fullname] = [
                f"{one.f_code.co_filename}:{one.f_lineno}"
                for one in _callers(frame)
                if "importlib" not in one.f_code.co_filename
            ]


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def watch() -> None:
    """From now on."""
    sys.meta_path.append(Last())


def told(files: Container[str]) -> Iterator[tuple[str, str]]:
    """Packages that are still not there, with the line that asked: one of the script itself, or of
    a library on behalf of one of these files. Libraries ask for much that a script has no use of.
    """
    for package, lines in asked.items():
        if package in sys.modules or not lines:
            continue
        own = not any(folder in lines[0] for folder in INSTALLED)
        if own or any(line.rpartition(":")[0] in files for line in lines):
            yield package, lines[0]
