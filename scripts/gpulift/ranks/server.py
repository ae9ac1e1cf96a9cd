"""Another rank's end: starts its workers, passes on what rank 0 asks them and what they answer, and
ends them when rank 0 says so, or is gone."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.ranks.hub import SILENCE_S
from gpulift.ranks.store import LOOK_S, Lost, Reader, Store, Writer

Json = dict[str, Any]

ENDS_WITHIN_S = 10  # once it has closed its answers
SCRATCH, SCRATCH_MISSING = "GPULIFT_SCRATCH", "GPULIFT_SCRATCH_MISSING"
OURS = "GPULIFT_"
# What the engine sets of a worker's place, and techniques of libraries. A path names a program or a
# library to be loaded: none of them.
ALLOWED = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "OMP_", "MALLOC_", "CUDA_DEVICE_MAX_CONNECTIONS"),
)
ELSEWHERE = "the scratch folder of rank 0 is not on this host: name one that all share"
# What it prints must not reach the answers, which gpulift-bench's children write to descriptor 3.
ON_DESCRIPTOR_3 = ("/bin/sh", "-c", 'exec "$@" 3>&1 1>/dev/null', "sh")


@dataclass(frozen=True)
class Here:
    """What workers of this host are started with."""

    rank: int
    bench: Path
    python: Path
    modules: tuple[Path, ...]
    gpu: int | None
    environment: Mapping[str, str]  # of this host, in place of rank 0's

    def file(self, name: str) -> Path:
        """A module or script by its name. Throws GpuliftError where there is none."""
        found = next((folder / name for folder in self.modules if (folder / name).is_file()), None)
        if found is None or Path(name).name != name:
            raise GpuliftError(f"{name} is not among the techniques of this host", FAILED)
        return found

    def command(self, file: Path) -> list[str]:
        """Of the worker for a module or script."""
        if file.suffix != ".py":
            return [str(self.bench), "--serve-worker"]
        worker = file.with_name("gpulift_worker.py")
        if not worker.is_file():
            worker = self.bench.parent / "modules" / worker.name
        return [str(self.python), str(worker), str(file)]

    def variables(self, asked: Mapping[str, str]) -> dict[str, str]:
        """Those that rank 0 asks for, as they are here. Throws GpuliftError of one that is neither
        of a worker's place nor a library's setting."""
        for name, value in asked.items():
            is_setting = name.startswith(ALLOWED) and "/" not in value
            if not (is_setting or name.startswith(OURS)):
                raise GpuliftError(f"rank 0 asks for {name}, which no rank sets for it", FAILED)
        variables = {**os.environ, **asked, **self.environment}
        folder = variables.get(SCRATCH)
        if folder is not None and not Path(folder).parent.is_dir():
            del variables[SCRATCH]
            variables[SCRATCH_MISSING] = ELSEWHERE
        return variables

    def question(self, first: Json, file: Path) -> Json:
        """The first one, with this host's files."""
        question = {key: value for key, value in first.items() if key != "start"}
        if "job" in question:
            question["job"]["module"] = str(file)
            question["settings"]["gpus"] = [] if self.gpu is None else [self.gpu]
        return question


def serve(store: Store, here: Here) -> int:
    """Until rank 0 says that all is done: the exit code. Throws GpuliftError where it is gone."""
    lost = Event()
    clock = Thread(target=_answer_clock, args=(store.again(), here.rank, lost), daemon=True)
    clock.start()
    sessions: list[Session] = []
    try:
        for number in range(1 << 62):
            message = _next(store, f"{here.rank}/session/{number}", lost)
            if "bye" in message:
                store.put(f"{here.rank}/left", {})
                return int(message["bye"])
            # Each has connections, of which a process and rank 0's store may have a thousand.
            sessions = [*(one for one in sessions if one.is_alive()), Session(store, here, number)]
    except Lost:
        raise GpuliftError(
            f"--ranks given: rank {here.rank} no longer hears of rank 0", FAILED
        ) from None
    finally:
        store.close()
        for session in sessions:
            session.end()
        clock.join()
    return FAILED


def _next(store: Store, key: str, lost: Event) -> Json:
    """The message, once it comes. Throws Lost."""
    while not lost.is_set():
        message = store.take(key, LOOK_S)
        if message is not None:
            return message
    raise Lost


def _answer_clock(store: Store, rank: int, lost: Event) -> None:
    """Tells what the clock is whenever rank 0 asks, which also says that it lives."""
    with suppress(Lost):
        number = 0
        while store.wait(f"{rank}/ping/{number}", SILENCE_S):
            store.put(f"{rank}/pong/{number}", {"s": time.monotonic()})
            number += 1
    lost.set()


class Session:
    """A worker, from the first question to its end."""

    def __init__(self, store: Store, here: Here, number: int) -> None:
        self._here = here
        self._down = Reader(store.again(), f"{here.rank}/{number}/down")
        self._up = Writer(store.again(), f"{here.rank}/{number}/up")
        self._worker: subprocess.Popen[bytes] | None = None
        self._asking: Thread | None = None
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def end(self) -> None:
        """At once."""
        self._over.set()
        if self._worker is not None:
            self._worker.kill()
        self._thread.join()

    def _run(self) -> None:
        # The worker ends with the thread that starts it, which is why this one waits for it.
        code = FAILED
        with suppress(Lost):
            try:
                first = self._first()
                code = 0 if first is None else self._work(first)
            except (GpuliftError, OSError) as error:
                self._up.put({"line": json.dumps({"error": str(error)}) + "\n"})
            self._over.set()
            self._up.put({"ended": code})
        if self._asking is not None:
            self._asking.join()

    def _first(self) -> Json | None:
        """The arm and its case; None where nobody wants it any more. Throws Lost."""
        while not self._over.is_set():
            message = self._down.take(LOOK_S)
            if message is not None:
                return None if "end" in message else dict(json.loads(message["line"]))
        return None

    def _work(self, first: Json) -> int:
        """The exit code of the worker. Throws GpuliftError, OSError or Lost."""
        start = first["start"]
        file = self._here.file(start["file"])
        worker = subprocess.Popen(
            [*ON_DESCRIPTOR_3, *self._here.command(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._here.variables(start["environment"]),
        )
        self._worker = worker
        self._asking = Thread(target=self._ask, args=(worker,), daemon=True)
        try:
            self._tell(worker, json.dumps(self._here.question(first, file)) + "\n")
            self._asking.start()
            for line in worker.stdout or ():
                self._up.put({"line": line.decode()})
            return worker.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:  # which names the command, and so folders
            raise GpuliftError(f"it did not end within {ENDS_WITHIN_S} s", FAILED) from None
        finally:
            self._over.set()
            worker.kill()
            worker.wait()

    def _ask(self, worker: subprocess.Popen[bytes]) -> None:
        with suppress(Lost):
            while not self._over.is_set():
                message = self._down.take(LOOK_S)
                if message is not None and "line" in message:
                    self._tell(worker, message["line"])
                elif message is not None:
                    break
        worker.kill()

    @staticmethod
    def _tell(worker: subprocess.Popen[bytes], line: str) -> None:
        with suppress(OSError):  # it has ended, which its answers tell
            if worker.stdin is not None:
                worker.stdin.write(line.encode())
                worker.stdin.flush()
