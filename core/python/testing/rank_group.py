"""The ranks of an arm, started on this machine and spoken to as gpulift-bench does, for tests.

They are forks of one process that has loaded torch, which takes seconds, so that a test of two
ranks takes less than one. Variables that torch reads while it loads come too late for them.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Json = dict[str, Any]
LIBRARY = Path(__file__).parents[1]
ANSWERS = 3  # the descriptor that the worker answers on
ENDS_WITHIN_S = 60
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "torch",
        "torch._inductor.compile_fx",
        "torch.distributed.checkpoint.staging",
        "torch.distributed.fsdp",
        "torch.distributed.optim",
        "torch.distributed.pipelining",
        "torch.distributed.tensor.parallel",
        "torch.nn.parallel",
        "torchvision",
    ]
)


def free_port() -> int:
    """A port that nobody uses now. It stays bound here, so that the system gives it to no other
    program before a rank listens there, which SO_REUSEADDR lets bind it all the same."""
    held = socket.socket()
    atexit.register(held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return int(held.getsockname()[1])


def work(
    script: Path, variables: Mapping[str, str], questions: Connection, answers: Connection
) -> None:
    """What a rank's process does: the worker's own main(), on these ends of two pipes."""
    os.environ.clear()
    os.environ.update(variables)
    os.dup2(questions.fileno(), 0)
    os.dup2(answers.fileno(), ANSWERS)
    sys.path.insert(0, str(LIBRARY))
    import gpulift_worker

    code = gpulift_worker.main([str(script)])
    atexit._run_exitfuncs()  # which a fork leaves out
    sys.exit(code)


class Rank:
    """One process of a group."""

    def __init__(self, script: Path, variables: Mapping[str, str]) -> None:
        read_questions, questions = FORKS.Pipe(duplex=False)
        answers, write_answers = FORKS.Pipe(duplex=False)
        self.process = FORKS.Process(
            target=work, args=(script, dict(variables), read_questions, write_answers)
        )
        self.process.start()
        self.questions = os.fdopen(os.dup(questions.fileno()), "w")
        self.answers = os.fdopen(os.dup(answers.fileno()))
        for end in (read_questions, questions, answers, write_answers):
            end.close()

    def send(self, question: Json) -> None:
        """To one that has ended nothing."""
        with contextlib.suppress(BrokenPipeError):
            self.questions.write(json.dumps(question) + "\n")
            self.questions.flush()

    def answer(self) -> Json:
        """Of one that has ended nothing."""
        answer: Json = json.loads(self.answers.readline() or "{}")
        return answer

    def close_questions(self) -> None:
        """There are no more."""
        with contextlib.suppress(BrokenPipeError):  # of what one that had ended never read
            self.questions.close()

    def end(self) -> None:
        """At once."""
        self.process.kill()
        self.process.join()
        self.close_questions()
        self.answers.close()

    def exit_code(self) -> int | None:
        """Once it has ended by itself; None where it does not."""
        self.process.join(ENDS_WITHIN_S)
        return self.process.exitcode


class RankGroup:
    """So many processes of a script's arm, or `started` of them from `first` on. All end with the
    block."""

    def __init__(
        self,
        script: Path,
        *,
        ranks: int = 2,
        started: int | None = None,
        first: int = 0,
        port: int | None = None,
        variables: Mapping[str, str] | None = None,
        seed: int = 7,
    ) -> None:
        shared = {
            **os.environ,
            **(variables or {}),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port() if port is None else port),
        }
        self.world = ranks
        self.seed = seed
        self.started = ranks if started is None else started
        self.ranks = [
            Rank(script, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(first, first + self.started)
        ]

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.ranks:
            one.end()

    def send(self, questions: list[Json]) -> None:
        """One to each rank."""
        for one, question in zip(self.ranks, questions, strict=True):
            one.send(question)

    def answers(self) -> list[Json]:
        """One of each rank."""
        return [one.answer() for one in self.ranks]

    def start(
        self, arm: str, point: Mapping[str, int | str], *, on_gpus: bool = False, waits: bool = True
    ) -> list[Json]:
        """What the ranks say once they have met and wait for their turn."""
        case = {"arm": arm, "point": dict(point), "seed": self.seed, "plant": 0.0}
        case |= {"launch_counter": None, "waits": waits, "ranks": self.world}
        self.send([{**case, "gpu": rank if on_gpus else None} for rank in range(self.started)])
        return self.answers()

    def check(self) -> list[Json]:
        """What they say once their arm is checked."""
        self.send([{"check": True}] * self.started)
        return self.answers()

    def hello(
        self, arm: str, point: Mapping[str, int | str], *, on_gpus: bool = False
    ) -> list[Json]:
        """The same at once, with a GPU for each or none."""
        return self.start(arm, point, on_gpus=on_gpus, waits=False)

    def window(self, steps: int) -> list[Json]:
        """Their times of so many steps."""
        self.send([{"lead_in_steps": 0, "steps": steps, "by_events": False}] * self.started)
        return self.answers()

    def exit_codes(self) -> list[int | None]:
        """Of the ranks, which end by themselves when there are no more questions."""
        for one in self.ranks:
            one.close_questions()
        return [one.exit_code() for one in self.ranks]


def altered(folder: Path, script: Path, lines: str) -> Path:
    """A script of the same arms after these lines, in which the module is called `technique`."""
    file = folder / f"altered_{script.name}"
    head = f"import sys\nsys.path.insert(0, {str(script.parent)!r})\n"
    file.write_text(f"{head}import {script.stem} as technique\nmake = technique.make\n{lines}")
    return file
