"""Memory that the judge owns: sealed inputs, and outputs that are poisoned before a call and sealed
after it, so that nothing can be written late."""

from __future__ import annotations

import fcntl
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
ALIGNMENT = 64
Part = tuple[str, list[int], int, int]  # type, shape, where, bytes


@dataclass(frozen=True)
class Layout:
    """Where arrays lie in one piece of memory."""

    parts: tuple[Part, ...]
    size: int

    @staticmethod
    def of(arrays: Sequence[tuple[str, Sequence[int]]]) -> Layout:
        """One behind the other."""
        parts: list[Part] = []
        at = 0
        for kind, shape in arrays:
            size = math.prod(shape) * np.dtype(kind).itemsize
            parts.append((kind, list(shape), at, size))
            at += -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        return Layout(tuple(parts), at)

    def arrays(self, held: bytes) -> list[NDArray[Any]]:
        """Those that lie there."""
        return [
            np.frombuffer(held, kind, math.prod(shape), at).reshape(shape)
            for kind, shape, at, _ in self.parts
        ]


class Memory:
    """A piece of it; closes with its block. Who gets `to_write` can neither map it nor open it
    anew: to compute in place would spare the copy that the other side's time has."""

    def __init__(self, content: bytes) -> None:
        self.descriptor = os.memfd_create("judge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.size = len(content)
        os.pwrite(self.descriptor, content, 0)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, SIZE_SEALS)
        self.to_write = os.open(f"/proc/self/fd/{self.descriptor}", os.O_WRONLY | os.O_CLOEXEC)
        os.fchmod(self.descriptor, 0)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.to_write)
        os.close(self.descriptor)

    def seal(self) -> bool:
        """Nothing can write to it from now on; False where somebody still has it open for that."""
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        except OSError:
            return bool(fcntl.fcntl(self.descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE)
        return True

    def read(self) -> bytes:
        """What is in it."""
        return os.pread(self.descriptor, self.size, 0)


def sealed(layout: Layout, arrays: Sequence[NDArray[Any]]) -> Memory:
    """Inputs that nobody can change."""
    content = bytearray(layout.size)
    for (_, _, at, size), one in zip(layout.parts, arrays, strict=True):
        content[at : at + size] = one.tobytes()
    memory = Memory(bytes(content))
    memory.seal()
    return memory


class Poison:
    """Another word for every call, of which none must be left in an output."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.word = secrets.token_bytes(8)
        self.content = self.word * (layout.size // 8)

    def left(self, held: bytes) -> int:
        """How many words of the outputs were never written."""
        word = np.frombuffer(self.word, np.uint64)[0]
        return sum(
            int(np.sum(np.frombuffer(held, np.uint64, size // 8, at) == word))
            for _, _, at, size in self.layout.parts
        )
