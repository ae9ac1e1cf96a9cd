"""Talks to gpulift-bench: what the machine is, what it can measure, and the measuring itself."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulift.errors import FAILED, GpuliftError, RecordError
from gpulift.programs import finished
from gpulift.records.fields import Fields
from gpulift.records.model import Context
from gpulift.records.parse import read_context
from gpulift.records.read import parse_line

ANSWER_TIMEOUT_S = 60
INDEX_OR_UUID = re.compile(r"[0-9]+|(GPU|MIG)-.+")
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SENT_BY_KERNEL = 0x80  # SI_KERNEL of Linux: the terminal sent it to the whole foreground group


@dataclass(frozen=True)
class CaseInfo:
    """One case of a technique, as its manifest lists it."""

    id: str
    quick: bool
    regime: str


@dataclass(frozen=True)
class TechniqueInfo:
    """What is known of a technique without loading it."""

    id: str
    question: str
    gpus: int  # the least number; 0: it runs on any machine
    ceiling: bool
    arms: tuple[str, ...]
    cases: tuple[CaseInfo, ...]
    python: tuple[str, ...] = ()  # of the arms, those that Python workers run
    unavailable: str = ""
    remedy: str = ""
    launch_bound: bool = False
    whole_steps: bool = False  # each of a model's training, and each launch begins with its check

    def not_here(self, context: Context) -> str:
        """Why it cannot run on the machine; empty when it can."""
        if self.unavailable:
            return self.unavailable
        return context.gpu_missing if self.gpus and context.gpu is None else ""

    def told_not_here(self, context: Context) -> str:
        """Why it cannot run on the machine, and what helps; empty when it can."""
        reason = self.not_here(context)
        remedy = self.remedy if self.unavailable else context.gpu_remedy
        return f"{reason}; {remedy}" if reason and remedy else reason


def checkout_root() -> Path:
    """GPULIFT_ROOT, or else the folder that holds this package's `scripts`."""
    named = os.environ.get("GPULIFT_ROOT")
    return Path(named) if named else Path(__file__).resolve().parents[2]


def find_bench() -> Path:
    """gpulift-bench of the build folder that GPULIFT_BUILD names (default: build)."""
    build = Path(os.environ.get("GPULIFT_BUILD") or checkout_root() / "build")
    bench = build / "gpulift-bench"
    if not os.access(bench, os.X_OK):
        raise GpuliftError(
            f"{bench} is not there: run ./gpulift setup, or set GPULIFT_BUILD to a build folder"
        )
    return bench


def script_of(modules: Path, technique: str) -> Path:
    """The script that makes a technique's Python arms."""
    return modules / f"{technique.replace('/', '.')}.py"


def find_interpreter(option: str, named: str) -> Path:
    """The interpreter itself, or bin/python of a virtual environment. A link stays a link: its own
    place is how Python knows its environment."""
    given = Path(named).absolute()
    python = given / "bin" / "python" if given.is_dir() else given
    if not (named and python.is_file() and os.access(python, os.X_OK)):
        raise GpuliftError(
            f"{option} {named}: is neither an interpreter nor a virtual environment (a folder with"
            " bin/python)"
        )
    return python


def describe(bench: Path, gpu: int | None = None) -> Context:
    """The machine's facts; also without a GPU."""
    flags = [] if gpu is None else ["--gpu", str(gpu)]
    return read_context(_answer(bench, ["--describe", *flags]), "gpulift-bench --describe")


def describe_asked(bench: Path, gpu: int | None) -> Context:
    """The same with the GPU that the user named; refused where it is not there, since the host
    would be measured in its place."""
    context = describe(bench, gpu)
    if gpu is not None and context.gpu is None:
        told = "; ".join(text for text in (context.gpu_missing, context.gpu_remedy) if text)
        raise GpuliftError(f"--gpu {gpu}: {told}")
    return context


def describe_all(bench: Path, gpus: Sequence[int]) -> Context:
    """The same of several GPUs, all of which have to be there; the facts are those of the first."""
    contexts = [describe_asked(bench, gpu) for gpu in gpus or (None,)]
    return contexts[0]


def gpus_named(bench: Path, text: str, *, several: bool = True) -> tuple[int, ...]:
    """The indices of `0`, `0,1` or `GPU-3a2b1c4d`; gpulift-bench knows whose UUID begins so."""
    option = "--gpus" if several else "--gpu"
    parts = text.split(",") if several else [text]
    if not all(map(INDEX_OR_UUID.fullmatch, parts)):
        told = "name a GPU by its index, as 0, or by its UUID, as nvidia-smi -L prints it"
        raise GpuliftError(f"{option} {text}: {told}")
    indices = tuple(map(int, parts)) if all(map(str.isdecimal, parts)) else _asked(bench, text)
    if len(set(indices)) < len(indices):
        raise GpuliftError(f"{option} {text}: name each GPU once, as in 0,1")
    return indices


def _asked(bench: Path, gpus: str) -> tuple[int, ...]:
    answer = _answer(bench, ["--gpus", gpus, "--gpu-indices"])
    return Fields({"gpus": answer}, "gpulift-bench --gpu-indices").wholes("gpus")


def catalogue(bench: Path, more_modules: Sequence[Path] = ()) -> list[TechniqueInfo]:
    """All techniques with their cases, from their manifests; no module is loaded."""
    answer = _answer(bench, ["--catalogue", *more_flags(more_modules)])
    if not isinstance(answer, list):
        raise GpuliftError("gpulift-bench --catalogue: the answer is not a list", FAILED)
    return [_technique(Fields(entry, "gpulift-bench --catalogue")) for entry in answer]


def matcher(filter: str | None) -> Callable[..., bool]:
    """As gpulift-bench selects: whether one of the names of an arm (its technique's, its case's and
    its own) is found; a filter that starts with - selects where none is."""
    if filter in (None, "", "all"):
        return lambda *names: True
    try:
        pattern = re.compile(filter.removeprefix("-"))
    except re.error as error:
        raise GpuliftError(f"{filter!r} is not a regular expression: {error}") from None
    wanted = not filter.startswith("-")
    return lambda *names: any(map(pattern.search, names)) == wanted


def more_flags(modules: Sequence[Path]) -> list[str]:
    """What gpulift-bench is told of folders of modules beside its own."""
    return [flag for folder in modules for flag in ("--more-modules", str(folder))]


def health(bench: Path, gpu: int | None = None) -> bytes:
    """What the driver says of the card's health now, as the JSON of `gpulift-bench --health`."""
    return _output(bench, ["--health", *([] if gpu is None else ["--gpu", str(gpu)])])


def measure(bench: Path, flags: Sequence[str], limit_s: float = math.inf) -> int:
    """Runs gpulift-bench with its progress on our stderr; its exit code, negative for a signal."""
    return measure_all(bench, [(flags, None)], limit_s)[0]


def measure_all(
    bench: Path, runs: Sequence[tuple[Sequence[str], Path | None]], limit_s: float = math.inf
) -> list[int]:
    """Runs gpulift-bench once per list of flags, all at the same time; their exit codes.

    Progress goes to the file beside the flags, or to our stderr. Signals that only this process
    got are forwarded, those that a terminal sends to the whole group are not, so that each child
    gets each of them once. Those that run for longer than the limit are interrupted, as by Ctrl-C:
    they keep the records that are finished.
    """
    ends_s = time.monotonic() + limit_s
    waited = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        with ExitStack() as started:
            children = []
            for flags, log in runs:
                child = subprocess.Popen(
                    # Its JSON has the context that its other formats print on stderr, amid the
                    # progress.
                    [str(bench), *flags, "--benchmark_format=json"],
                    stdout=subprocess.DEVNULL,
                    stderr=None if log is None else started.enter_context(log.open("wb")),
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
                )
                started.callback(child.wait)
                started.callback(child.terminate)  # has no effect on one that has ended
                children.append(child)
            while any(child.poll() is None for child in children):
                info = signal.sigtimedwait(waited, 1.0)
                if info and info.si_signo in FORWARDED and info.si_code != SENT_BY_KERNEL:
                    for child in children:
                        child.send_signal(info.si_signo)
                if time.monotonic() >= ends_s:
                    ends_s = math.inf  # once
                    for child in children:
                        child.send_signal(signal.SIGINT)
        return [child.returncode for child in children]
    except OSError as error:
        raise GpuliftError(f"{bench}: cannot be started: {error.strerror}", FAILED) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answer(bench: Path, flags: Sequence[str]) -> Any:
    return _json(_output(bench, flags), " ".join(["gpulift-bench", *flags]))


def _output(bench: Path, flags: Sequence[str]) -> bytes:
    command = " ".join(["gpulift-bench", *flags])
    try:
        done = finished([bench, *flags], ANSWER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise GpuliftError(f"{command}: no answer in {ANSWER_TIMEOUT_S} s", FAILED) from None
    except OSError as error:
        raise GpuliftError(f"{bench}: cannot be started: {error.strerror}", FAILED) from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[-1] if said else f"exit code {done.returncode}"
        raise GpuliftError(f"{command}: {why}", max(done.returncode, FAILED))
    return done.stdout


def _json(text: bytes, command: str) -> Any:
    try:
        return parse_line(b'{"answer":' + text + b"}", command)["answer"]
    except RecordError:
        raise GpuliftError(f"{command}: the answer is not JSON", FAILED) from None


def _technique(fields: Fields) -> TechniqueInfo:
    return TechniqueInfo(
        id=fields.text("id"),
        question=fields.text("question", ""),
        # An older build that a gate compares with tells no number.
        gpus=fields.whole("gpus", int(fields.flag("needs_device", True))),
        ceiling=fields.flag("ceiling", False),
        arms=fields.texts("arms"),
        cases=tuple(
            CaseInfo(case.text("id"), case.flag("quick", False), case.text("regime", "burst"))
            for case in fields.children("cases")
        ),
        python=fields.texts("python"),
        unavailable=fields.text("unavailable", ""),
        remedy=fields.text("remedy", ""),
        # Of an older build that a gate compares with, only the name says so.
        launch_bound=fields.flag("launch_bound", "launch" in fields.text("id").split("/")),
        whole_steps=fields.flag("whole_steps", False),
    )
