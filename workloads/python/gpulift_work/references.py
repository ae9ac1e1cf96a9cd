"""What arms of a case are held against: computed once, and kept for the others in shared memory.

A file has a line of JSON, which says what it is, and behind it the gradients, as FP32 numbers.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from gpulift_worker import shared, spent

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NOTE = "reference"  # of a record: that an arm has one of its own, and why
LONGEST_HEAD = 1 << 20  # in bytes
STAGED = 1 << 24  # numbers that pass the host at once: 64 MiB


class DamagedError(Exception):
    """What was kept is not what was written."""


@dataclass(frozen=True)
class Reference:
    """The losses of some steps, and the gradients of the first in the order of parameters, each of
    which may be read only when it is asked for."""

    losses: Sequence[float]
    gradients: Iterable[torch.Tensor]


@dataclass(frozen=True)
class Head:
    """What a file has: whose reference, its losses, and of each gradient its shape and the sum of
    its words."""

    named: Mapping[str, str]
    losses: list[float]
    shapes: list[list[int]]
    sums: list[int]

    @property
    def gradient_bytes(self) -> int:
        """Behind the head."""
        return 4 * sum(map(math.prod, self.shapes))


@dataclass(frozen=True)
class KeptGradients:
    """Those of a file, brought to the device one by one."""

    file: Path
    head: Head
    start: int
    device: torch.device

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Raises DamagedError where one is not what was written, and removes the file."""
        staged = staging(self.device)
        with self.file.open("rb") as kept:
            kept.seek(self.start)
            for shape, expected in zip(self.head.shapes, self.head.sums, strict=True):
                gradient = torch.empty(shape, device=self.device)
                read = 0
                for part in gradient.view(-1).split(STAGED):
                    numbers = staged[: part.numel()]
                    read += kept.readinto(numbers.numpy())
                    part.copy_(numbers)
                if read != gradient.nbytes or sum_of_words(gradient) != expected:
                    self.file.unlink(missing_ok=True)
                    raise DamagedError("the one in shared memory was damaged")
                yield gradient


def shared_reference(
    compute: Callable[[], Reference],
    device: torch.device,
    notes: MutableMapping[str, str],
    **named: object,
) -> Reference:
    """What `compute` makes, or an arm of the same case made before on the same card by the same
    code, `named` alike: all that the result depends on. Where shared memory is too small each arm
    has its own, and `notes` say so. What `compute` hands to a device is waited for."""
    with spent("reference"):
        folder = shared()
        if folder is None:
            notes[NOTE] = "an arm's own: there is no shared memory"
            return compute()
        whose = identity(device, named)
        file = folder / f"{hashlib.sha256(json.dumps(whose).encode()).hexdigest()}.reference"
        with locked(file.with_suffix(".lock")):
            kept = read(file, whose, device)
            if kept is not None:
                return kept
            made = compute()
            try:
                write(file, whose, made)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                notes[NOTE] = "an arm's own: shared memory is too small"
                return made
            del made
            if device.type == "cuda":
                torch.cuda.empty_cache()  # so that this arm has what the others have
            found = read(file, whose, device)
        if found is None:
            raise RuntimeError("a reference that was just written cannot be read")
        return found


def identity(device: torch.device, named: Mapping[str, object]) -> dict[str, str]:
    """All that a reference depends on; where one thing differs, it is another reference."""
    card = platform.processor() or platform.machine()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        card = f"{properties.name} {properties.uuid}"
    return {"torch": str(torch.__version__), "card": card} | {
        key: str(value) for key, value in sorted(named.items())
    }


def source_of(script: str) -> str:
    """SHA-256 of the workloads' modules and of a script that uses them: of more than a reference
    needs, since another text may only cost another reference."""
    files = (*sorted(Path(__file__).parent.glob("*.py")), Path(script))
    sums = (hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return hashlib.sha256("".join(sums).encode()).hexdigest()


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """One process at a time. That of one which is killed is free again."""
    with file.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(held, fcntl.LOCK_UN)


def write(file: Path, named: Mapping[str, str], reference: Reference) -> None:
    """Under its name once it is whole. Raises OSError, and leaves nothing, where it cannot."""
    gradients = [one.detach() for one in reference.gradients]
    if shutil.disk_usage(file.parent).free < sum(one.nbytes for one in gradients) + LONGEST_HEAD:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    head = Head(
        named=dict(named),
        losses=list(reference.losses),
        shapes=[list(one.shape) for one in gradients],
        sums=[sum_of_words(one) for one in gradients],
    )
    staged = staging(gradients[0].device if gradients else torch.device("cpu"))
    unfinished = file.with_suffix(".part")  # of whoever holds the lock
    try:
        with unfinished.open("wb") as out:
            out.write(json.dumps(asdict(head)).encode() + b"\n")
            for part in (part for one in gradients for part in one.reshape(-1).split(STAGED)):
                numbers = staged[: part.numel()]
                numbers.copy_(part)
                out.write(numbers.numpy())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def read(file: Path, named: Mapping[str, str], device: torch.device) -> Reference | None:
    """What is kept there; None where there is none, or another's, or one that is cut."""
    try:
        with file.open("rb") as kept:
            head, start = _head_of(kept)
        size = file.stat().st_size
    except (OSError, ValueError, TypeError):
        return None
    if head.named != named or size != start + head.gradient_bytes:
        return None
    return Reference(head.losses, KeptGradients(file, head, start, device))


def staging(device: torch.device) -> torch.Tensor:
    """Where numbers pass the host on their way between a file and the device: the same pages for
    all, pinned, since the system takes longer to give new ones than to copy."""
    return torch.empty(STAGED, device="cpu", pin_memory=device.type == "cuda")


def sum_of_words(numbers: torch.Tensor) -> int:
    """Of 32 bits each, where they lie: in any order the same."""
    return int(numbers.contiguous().view(torch.int32).sum(dtype=torch.int64))


def _head_of(kept: BinaryIO) -> tuple[Head, int]:
    """And where it ends. Raises ValueError or TypeError where it is none."""
    line = kept.readline(LONGEST_HEAD)
    said: dict[str, Any] = json.loads(line)
    return Head(**said), len(line)
