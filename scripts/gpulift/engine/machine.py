"""Talks to gpulift-bench: what the machine is, what it can measure, and the measuring itself."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpulift.ground import place
from gpulift.ground.errors import FAILED, PATTERN_ERRORS, USAGE, GpuliftError, RecordError
from gpulift.ground.near import near_filter
from gpulift.ground.programs import answered, last_error
from gpulift.ground.signals import Signals
from gpulift.records.decode import converted, parse_line
from gpulift.records.model import Context, Prediction
from gpulift.records.parse import read_context

ANSWER_TIMEOUT_S = 60
LEAST_PYTHON = (3, 10)
INDEX_OR_UUID = re.compile(r"[0-9]+|(GPU|MIG)-.+")


@dataclass(frozen=True)
class CaseInfo:
    """One case of a technique, as its manifest lists it."""

    id: str
    quick: bool = False
    regime: str = "burst"
    off_sweep: bool = False  # the technique has no such case: --axis asked for it


@dataclass(frozen=True)
class CasePrediction(Prediction):
    """A prediction as a technique makes it: of the cases that have these values."""

    case: Mapping[str, int | str] = field(default_factory=dict)


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
    libraries: tuple[str, ...] = ()  # that a module of a wheel takes from torch
    unavailable: str = ""
    remedy: str = ""
    launch_bound: bool = False
    whole_steps: bool = False  # each of a model's training, and each launch begins with its check
    predict: tuple[CasePrediction, ...] = ()

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
    """GPULIFT_ROOT, or else this checkout, or what a wheel brings in its place."""
    named = os.environ.get("GPULIFT_ROOT")
    return Path(named) if named else place.FILES


def results_folder() -> Path:
    """The checkout's results."""
    return checkout_root() / "results"


def own_results() -> Path:
    """Where this user's runs go: beside the checkout's, or else below the current folder."""
    return place.RESULTS if place.INSTALLED else results_folder()


def all_records() -> Path:
    """Those that were committed. Raises GpuliftError where a wheel brings a few of them alone."""
    if place.INSTALLED:
        raise GpuliftError("the committed records are in a checkout of gpulift: name RESULTS")
    return results_folder()


def own_folder() -> Path:
    """Above what this user's gates and trials keep: the checkout, or else the current folder."""
    return Path() if place.INSTALLED else checkout_root()


def searched() -> list[Path]:
    """Where a record is looked for."""
    own = [place.RESULTS] if place.INSTALLED and place.RESULTS.is_dir() else []
    return [results_folder(), *own]


def find_bench() -> Path:
    """gpulift-bench of the build folder that GPULIFT_BUILD names (default: build)."""
    build = Path(os.environ.get("GPULIFT_BUILD") or checkout_root() / "build")
    bench = build / "gpulift-bench"
    if not os.access(bench, os.X_OK):
        failed = build / "failed"  # what setup/build.py told; nothing where the disk was full
        if failed.is_file() and (said := failed.read_text("utf-8", "replace").split()):
            raise GpuliftError(" ".join(said))
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


def find_python(option: str, named: str, least: tuple[int, int] = LEAST_PYTHON) -> Path:
    """The same, once it has answered as a Python that is not older."""
    python = find_interpreter(option, named)
    asked = "import sys; print('Python %d %d' % sys.version_info[:2])"
    try:
        done = answered([python, "-c", asked], ANSWER_TIMEOUT_S, str(python))
    except GpuliftError as error:
        raise GpuliftError(f"{option} {named}: is no Python: {error}") from None
    told = re.fullmatch(rb"Python (\d+) (\d+)\s*", done.stdout)
    if told is None:
        raise GpuliftError(f"{option} {named}: is no Python: {last_error(done)}")
    version = int(told[1]), int(told[2])
    if version < least:
        wanted = ".".join(map(str, least))
        raise GpuliftError(
            f"{option} {named}: is Python {version[0]}.{version[1]}: name one of {wanted} or later"
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
    """The indices of `0`, `0,1`, `GPU-3a2b1c4d` or `all`; gpulift-bench knows whose UUID begins so,
    and which are there."""
    if several and text == "all":
        return _asked(bench, text)
    option = "--gpus" if several else "--gpu"
    parts = gpu_names(option, text, several=several)
    indices = tuple(map(int, parts)) if all(map(str.isdecimal, parts)) else _asked(bench, text)
    require_each_once(option, text, indices)
    return indices


def gpu_names(option: str, text: str, *, several: bool = True) -> list[str]:
    """Indices and UUIDs as they were written; raises GpuliftError for what is neither."""
    parts = text.split(",") if several else [text]
    if not all(map(INDEX_OR_UUID.fullmatch, parts)):
        told = "name a GPU by its index, as 0, or by its UUID, as nvidia-smi -L prints it"
        raise GpuliftError(f"{option} {text}: {told}")
    return parts


def require_each_once(option: str, text: str, indices: Sequence[int]) -> None:
    """Raises GpuliftError where a GPU is named twice, maybe once by its UUID."""
    if len(set(indices)) < len(indices):
        raise GpuliftError(f"{option} {text}: name each GPU once, as in 0,1")


def _asked(bench: Path, gpus: str) -> tuple[int, ...]:
    answer = _answer(bench, ["--gpus", gpus, "--gpu-indices"])
    return converted(answer, tuple[int, ...], "gpulift-bench --gpu-indices", "gpus")


def catalogue(
    bench: Path,
    more_modules: Sequence[Path] = (),
    modules: Path | None = None,
    axes: Sequence[str] = (),
    filter: str | None = None,
) -> list[TechniqueInfo]:
    """All techniques with their cases, from their manifests; no module is loaded. `modules` in
    place of those of the build; with `axes` those that have them alone, of which what the filter
    selects must take their values."""
    own = [] if modules is None else ["--modules", str(modules)]
    if axes:
        own += [*axis_flags(axes), *([f"--benchmark_filter={filter}"] if filter else [])]
    answer = _answer(bench, ["--catalogue", *own, *more_flags(more_modules)])
    if not isinstance(answer, list):
        raise GpuliftError("gpulift-bench --catalogue: the answer is not a list", FAILED)
    return [_technique(entry, f"[{index}]") for index, entry in enumerate(answer)]


def technique_ids() -> list[str]:
    """Those of the build, by the names of its files alone: a shell that completes a line waits."""
    try:
        modules = find_bench().parent / "modules"
    except GpuliftError:
        return []
    return sorted(file.stem.replace(".", "/", 1) for file in modules.glob("*.json"))


def matcher(filter: str | None, how: int = 0) -> Callable[..., bool]:
    """As gpulift-bench selects: whether one of the names of an arm (its technique's, its case's and
    its own) is found; a filter that starts with - selects where none is."""
    if filter in (None, "", "all"):
        return lambda *names: True
    try:
        pattern = re.compile(filter.removeprefix("-"), how)
    except PATTERN_ERRORS as error:
        raise GpuliftError(f"{filter!r} is not a regular expression: {error}") from None
    wanted = not filter.startswith("-")
    return lambda *names: any(map(pattern.search, names)) == wanted


def select(infos: Iterable[TechniqueInfo], filter: str | None, how: int = 0) -> list[TechniqueInfo]:
    """The techniques with the cases that a run with this filter would measure; one whose cases are
    not known, since it is unavailable, by its own name."""
    matches = matcher(filter, how)
    return [one for info in infos if (one := _selected(info, matches))]


def _selected(info: TechniqueInfo, matches: Callable[..., bool]) -> TechniqueInfo | None:
    if not (info.cases and info.arms):
        return info if matches(info.id) else None
    cases = tuple(
        case
        for case in info.cases
        for name in ["/".join(part for part in (info.id, case.id) if part)]
        if any(matches(info.id, name, f"{name}/{arm}") for arm in info.arms)
    )
    return replace(info, cases=cases) if cases else None


def require_selected(infos: Sequence[TechniqueInfo], filter: str | None) -> list[TechniqueInfo]:
    """The same. Raises GpuliftError, with why not or names that are near, where there are none."""
    if chosen := select(infos, filter):
        return chosen
    names = dict.fromkeys(name for info in infos for name in (info.id, *info.arms))
    close = near_filter(filter or "", names)
    hint = f"near it: {', '.join(close)}" if close else "./gpulift list shows all"
    for info in infos:  # whose cases are not known where it cannot run
        if info.unavailable and f"{info.id}/" in (filter or ""):
            hint = f"{info.id} cannot run here: {info.unavailable}; {info.remedy}".rstrip("; ")
    raise GpuliftError(f"no case matches the filter {filter!r}; {hint}")


def axis_flags(axes: Sequence[str]) -> list[str]:
    """What gpulift-bench is told of axes."""
    return [flag for axis in axes for flag in ("--axis", axis)]


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
    try:
        with Signals() as signals, ExitStack() as started:
            children = []
            for flags, log in runs:
                child = subprocess.Popen(
                    # Its JSON has the context that its other formats print on stderr, amid the
                    # progress.
                    [str(bench), *flags, "--benchmark_format=json"],
                    stdout=subprocess.DEVNULL,
                    stderr=None if log is None else started.enter_context(log.open("wb")),
                    preexec_fn=signals.restore_mask,
                )
                started.callback(child.wait)
                started.callback(child.terminate)  # has no effect on one that has ended
                children.append(child)
            while any(child.poll() is None for child in children):
                came = signals.wait(1.0)
                if came and not came[1]:
                    for child in children:
                        child.send_signal(came[0])
                if time.monotonic() >= ends_s:
                    ends_s = math.inf  # once
                    for child in children:
                        child.send_signal(signal.SIGINT)
        return [child.returncode for child in children]
    except OSError as error:
        raise GpuliftError(f"{bench}: cannot be started: {error.strerror}", FAILED) from None


def _answer(bench: Path, flags: Sequence[str]) -> Any:
    return _json(_output(bench, flags), " ".join(["gpulift-bench", *flags]))


def _output(bench: Path, flags: Sequence[str]) -> bytes:
    command = " ".join(["gpulift-bench", *flags])
    done = answered([bench, *flags], ANSWER_TIMEOUT_S, command)
    if done.returncode != 0:
        why = last_error(done)
        if done.returncode == USAGE:  # of what the user asked for, which its line names
            raise GpuliftError(why.removeprefix("gpulift-bench: "))
        raise GpuliftError(f"{command}: {why}", max(done.returncode, FAILED))
    return done.stdout


def _json(text: bytes, command: str) -> Any:
    try:
        return parse_line(b'{"answer":' + text + b"}", command)["answer"]
    except RecordError:
        raise GpuliftError(f"{command}: the answer is not JSON", FAILED) from None


def _technique(raw: Any, key: str) -> TechniqueInfo:
    place = "gpulift-bench --catalogue"
    entry = converted(raw, dict[str, Any], place, key)
    older = {  # what a build of before tells, which a gate compares with, or leaves to be told
        "question": "",
        "gpus": int(entry.get("needs_device", True) is True),
        "ceiling": False,
        "arms": (),
        "cases": (),
        "launch_bound": "launch" in str(entry.get("id")).split("/"),
    }
    return converted({**older, **entry}, TechniqueInfo, place, key)


def cached(file: Path) -> dict[str, str]:
    """Everything that CMakeCache.txt of a build folder holds."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise GpuliftError(
            f"{file} is not there, so a reference cannot be built like it: run ./gpulift setup"
        ) from None
    entries = (re.match(r"([A-Za-z_]\w*):[A-Z]+=(.*)", line) for line in lines)
    return {entry[1]: entry[2] for entry in entries if entry}
