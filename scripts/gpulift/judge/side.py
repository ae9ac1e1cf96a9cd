"""The judge's end of a candidate's process: its clock, its memory, its patience.

Time runs from inputs published to outputs sealed. The process is stopped whenever it is not asked,
so that it can neither work ahead nor disturb the other side.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.judge import cuda
from gpulift.judge.memory import Layout, Memory, Poison
from gpulift.judge.sandbox import DUMPABLE, prctl
from gpulift.judge.task import Source, Task
from gpulift.judge.worker import DONE, LOADED, MOST_BYTES, PROBLEM, PROCESS, READY

WORKER = Path(__file__).with_name("worker.py")
PACKAGE = WORKER.parents[2]
START_S = 120.0  # to import what there is
SEND_S = 10.0
LOOK_S = 1e-4
THREADS = 512  # of head
STDERR: int | IO[bytes] = subprocess.DEVNULL
STEPS_OF_CPU = 100  # limits of one call that all calls of a process have
PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Limits:
    """What a candidate may take: seconds of a call, bytes of memory."""

    call_s: float = 60.0
    memory: int = 8 << 30


@dataclass(frozen=True)
class Call:
    """Inputs that are published, and what is asked for."""

    inputs: Layout
    memory: Memory
    outputs: Layout


@dataclass(frozen=True)
class Answer:
    """What came of a call."""

    seconds: float
    held: bytes
    unwritten: int  # words of poison that are left


class RefusedError(Exception):
    """Base or head is none: the message says why."""

    def __init__(self, side: str, reason: str) -> None:
        super().__init__(reason)
        self.side = side
        self.reason = reason


class Side:
    """A process of base or head; closes with its block."""

    def __init__(
        self, source: Source, task: Task, limits: Limits, arena: cuda.Arena | None, place: int
    ) -> None:
        self.source = source
        self.limits = limits
        self.arena = arena
        self.walls: dict[str, Any] = {}
        self._process_of: int | None = None  # a descriptor, which no later process can have
        self._threads = Path(os.devnull)
        self.waits_s: list[float] = []  # for outputs, after it said that they are there
        self._taken = 0  # bytes of the card's memory
        with contextlib.suppress(OSError):
            prctl(DUMPABLE, 0)  # no one of the same user reads our memory or descriptors
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(WORKER), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=STDERR,
                cwd="/",
                env={name: os.environ[name] for name in PASSED_ON if name in os.environ}
                | {"USER": "nobody", "HOME": "/nonexistent"},  # its id has neither
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        asked = {
            **{"package": str(PACKAGE), "path": _paths(), "arrays": task.arrays},
            **{"letters": len(source.text), "name": source.name, "function": task.function},
            **{"memory": None if task.arrays == "cuda" else limits.memory, "file": 1 << 32},
            **{"cpu_s": int(limits.call_s * STEPS_OF_CPU) * (os.cpu_count() or 1) + 1},
            # The system counts a user's, of both sides: so that what head takes is not base's.
            **{"arena": arena.size if arena else 0, "threads": THREADS * (2 - place)},
        }
        device = arena.descriptors() if arena else []
        self._send(json.dumps(asked).encode(), device)
        for descriptor in device:
            os.close(descriptor)

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._link.close()
        if self._process_of is not None:
            os.close(self._process_of)

    def ready(self) -> None:
        """Waits until it can be asked; then it is stopped. Raises RefusedError."""
        said = self._heard(START_S, "to start")
        if said[:1] == PROCESS:
            with contextlib.suppress(ProcessLookupError):  # it ended already, which is heard next
                self._process_of = os.pidfd_open(int(said[1:]))
                self._threads = Path(f"/proc/{int(said[1:])}/task")
            said = self._heard(START_S, "to start")
        self._require(said, READY)
        self.walls = json.loads(said[1:])  # said before the candidate's first line ran
        if self.arena and not self.walls["shared"]:
            self.arena = None
        free = self.arena.free() if self.arena else 0
        with Memory(self.source.text) as text:
            text.seal()
            self._send(LOADED, [text.descriptor])
            self._require(self._heard(START_S, "to start"), LOADED)
        self._stop()
        self._require_share(free)

    def call(self, call: Call, delay_s: float = 0.0) -> Answer:
        """One call, on our clock; a slow-down is planted by waiting within it."""
        poison, token = Poison(call.outputs), secrets.token_bytes(8)
        header = json.dumps(
            {
                **{"token": token.hex(), "bytes": call.memory.size},
                **{"inputs": call.inputs.parts, "outputs": call.outputs.parts},
            }
        ).encode()
        with Memory(poison.content) as output:
            if self.arena:
                self.arena.stage(call.memory.read(), poison.content)
            free = self.arena.free() if self.arena else 0
            self._signal(signal.SIGCONT)
            began_s = time.perf_counter()
            if self.arena:
                self.arena.publish(call.memory.size)
            self._send(header, [call.memory.descriptor, output.to_write])
            said = self._heard(self.limits.call_s, f"in {self.limits.call_s:g} s")
            if delay_s:
                until_s = time.perf_counter() + delay_s
                while time.perf_counter() < until_s:
                    pass
            said_s = time.perf_counter()
            if self.arena:
                self.arena.collect(output.size)
            sealed = output.seal()
            ended_s = time.perf_counter()
            self.waits_s.append(ended_s - said_s)
            self._stop()
            self._require_share(free)
            self._require(said, DONE + token)
            if self.arena and not self.arena.kept(call.memory.size):
                raise self._refused("changes its inputs")
            if not sealed:
                raise self._refused("keeps its output open to write to it later")
            held = self.arena.collected(output.size) if self.arena else output.read()
        return Answer(ended_s - began_s, held, poison.left(held))

    def _send(self, header: bytes, descriptors: Sequence[int]) -> None:
        self._link.settimeout(SEND_S)
        try:
            socket.send_fds(self._link, [header], list(descriptors))
        except OSError:
            raise self._refused(self._end()) from None

    def _heard(self, limit_s: float, what: str) -> bytes:
        self._link.settimeout(limit_s)
        try:
            said = self._link.recv(MOST_BYTES)
        except TimeoutError:
            raise self._refused(f"hangs: no answer {what}") from None
        except OSError:
            said = b""
        if not said:
            raise self._refused(self._end())
        return said

    def _require(self, said: bytes, wanted: bytes) -> None:
        if said[: len(wanted)] == wanted:
            return
        if said[:1] == PROBLEM:
            raise self._refused(visible(said[1:].decode("utf-8", "replace")))
        raise self._refused("answers what it was not asked")

    def _end(self) -> str:
        """How the process ended."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its end and runs on"
        if code > 128:
            with contextlib.suppress(ValueError):
                return f"crashed: {signal.Signals(code - 128).name}"
        return f"ended with code {code}"

    def _refused(self, reason: str) -> RefusedError:
        return RefusedError(self.source.side, reason)

    def _stop(self) -> None:
        """Returns when all its threads stand: what the kernel does for one ends before that does.
        Raises RefusedError."""
        self._signal(signal.SIGSTOP)
        until_s = time.monotonic() + self.limits.call_s
        while not all(map(_stands, self._threads.glob("*/stat"))):
            if time.monotonic() > until_s:
                raise self._refused(
                    f"does not stand still {self.limits.call_s:g} s after it was stopped"
                )
            time.sleep(LOOK_S)
        if self.arena and not self.arena.quiet():
            raise self._refused("keeps the card at work when it is not asked")

    def _require_share(self, free: int) -> None:
        """`free` is what was, of the card's memory. Raises RefusedError."""
        if self.arena:
            self._taken += free - self.arena.free()
            if self._taken > self.arena.share:
                raise self._refused("takes more than half of the card's memory")

    def _signal(self, number: int) -> None:
        if self._process_of is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process_of, number)


def _stands(thread: Path) -> bool:
    """Whether it is stopped, or has ended."""
    try:
        return thread.read_bytes().rpartition(b") ")[2][:1] in b"TtZXx"
    except OSError:
        return True


def told(walls: Mapping[str, Any]) -> str:
    """What stood around a candidate, and what could not."""
    missing = "; ".join(f"{name} ({why})" for name, why in walls.get("missing", {}).items())
    held = ", ".join(walls.get("held", ()))
    return f"isolated: {held or 'nothing'}" + (f"; not isolated: {missing}" if missing else "")


def _paths() -> list[str]:
    """Where installed packages are, and nothing of ours."""
    names = ("purelib", "platlib")
    return list(dict.fromkeys(sysconfig.get_path(name) for name in names))


def require_linux() -> None:
    """Sealed memory is Linux's."""
    if not hasattr(os, "memfd_create"):
        raise GpuliftError("judge needs Linux: memory that can be sealed")
