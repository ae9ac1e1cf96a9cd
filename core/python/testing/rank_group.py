"""The ranks of an arm, started on this machine and spoken to as gpulift-bench does, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

Json = dict[str, Any]
WORKER = Path(__file__).parents[1] / "gpulift_worker.py"
# Answers come from descriptor 3, standard output goes nowhere.
AS_STARTED = ["sh", "-c", 'exec "$0" "$@" 3>&1 1>/dev/null', sys.executable, str(WORKER)]
ENDS_WITHIN_S = 60


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class RankGroup:
    """So many processes of a script's arm; some of them may be left out. All end with the block."""

    def __init__(
        self,
        script: Path,
        *,
        ranks: int = 2,
        started: int | None = None,
        port: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        environment = {**os.environ, **(variables or {}), "WORLD_SIZE": str(ranks)}
        environment["MASTER_ADDR"] = "127.0.0.1"
        environment["MASTER_PORT"] = str(free_port() if port is None else port)
        self.started = ranks if started is None else started
        self.processes = [
            subprocess.Popen(
                [*AS_STARTED, str(script)],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(self.started)
        ]

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for one in self.processes:
            one.kill()
            one.wait()
            pipe(one.stdout).close()
            with contextlib.suppress(BrokenPipeError):  # of what one that had ended never read
                pipe(one.stdin).close()

    def send(self, questions: list[Json]) -> None:
        """One to each rank."""
        for one, question in zip(self.processes, questions, strict=True):
            pipe(one.stdin).write(json.dumps(question) + "\n")
            pipe(one.stdin).flush()

    def answers(self) -> list[Json]:
        """One of each rank; nothing of one that has ended."""
        return [json.loads(pipe(one.stdout).readline() or "{}") for one in self.processes]

    def hello(
        self, arm: str, point: Mapping[str, int | str], *, on_gpus: bool = False
    ) -> list[Json]:
        """What the ranks say once the arm is checked, with a GPU for each or none."""
        case = {"arm": arm, "point": dict(point), "seed": 7, "plant": 0.0, "launch_counter": None}
        self.send([{**case, "gpu": rank if on_gpus else None} for rank in range(self.started)])
        return self.answers()

    def window(self, steps: int) -> list[Json]:
        """Their times of so many steps."""
        self.send([{"lead_in_steps": 0, "steps": steps, "by_events": False}] * self.started)
        return self.answers()

    def exit_codes(self) -> list[int]:
        """Of the ranks, which end by themselves when there are no more questions."""
        for one in self.processes:
            pipe(one.stdin).close()
        return [one.wait(ENDS_WITHIN_S) for one in self.processes]


def pipe(end: Any) -> TextIO:
    """An end of a process that has one."""
    found: TextIO = end
    return found


def altered(folder: Path, script: Path, lines: str) -> Path:
    """A script of the same arms after these lines, in which the module is called `technique`."""
    file = folder / f"altered_{script.name}"
    head = f"import sys\nsys.path.insert(0, {str(script.parent)!r})\n"
    file.write_text(f"{head}import {script.stem} as technique\nmake = technique.make\n{lines}")
    return file
