"""One watch: it follows a job to its end and says what was seen. Whatever fails here, the job goes
on."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from gpulift.engine import machine
from gpulift.ground.arguments import require_distinct, require_free
from gpulift.ground.entry import say
from gpulift.ground.errors import INTERRUPTED, OK, GpuliftError
from gpulift.ground.programs import job_environment, require_program
from gpulift.ground.signals import Signals
from gpulift.ground.text import visible
from gpulift.records.model import slug
from gpulift.watch import cards as nvml
from gpulift.watch import gauges, rules, scalars, words
from gpulift.watch.cards import Card
from gpulift.watch.job import Job, StartedJob, attached
from gpulift.watch.log import Log
from gpulift.watch.observer import Observer
from gpulift.watch.samples import History, Sample

FIRST_S = 0.1
LINE_EVERY_S = 10.0
STDERR = 2
# Slurm and users send the first two to have a training write a checkpoint.
OF_JOBS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
POLL_S = 0.2  # how soon the end of a job of somebody else is seen

Stop = Literal["ended", "interrupted"]
Sink = Callable[[Sample], None]


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    command: tuple[str, ...] = ()
    pid: int | None = None
    interval_s: float = 1.0
    log: Path | None = None
    picture: Path | None = None
    prometheus: Path | None = None
    tensorboard: Path | None = None
    gpus: str | None = None
    force: bool = False


@dataclass
class Fragile:
    """A sink that may fail: that is said once, and then it is left alone."""

    name: str
    write: Sink
    works: bool = True

    def add(self, sample: Sample) -> None:
        """The newest sample."""
        if self.works:
            try:
                self.write(sample)
            except (OSError, GpuliftError) as error:
                self.works = False
                why = getattr(error, "strerror", None) or error
                say(f"warning: {self.name}: {why}; it is written no more")


def run(options: Options) -> int:
    """The job's exit code; of a job of somebody else 0, or that of an interruption."""
    environment = job_environment()
    files = inherited()
    _require(options, environment)
    cards = _cards(options.gpus)
    with Signals(*OF_JOBS) as signals, ExitStack() as opened:  # before a thread of ours is there
        log = Log(options.log)
        opened.callback(log.close)
        sinks: list[Sink] = []
        if options.prometheus is not None:
            target = gauges.GaugeFile(options.prometheus)
            opened.callback(target.close)
            write = Fragile(
                f"--prometheus {options.prometheus}",
                lambda sample: target.write(gauges.gauges(sample, cards)),
            )
            sinks.append(write.add)
        if options.tensorboard is not None:
            board = scalars.Scalars(options.tensorboard)
            opened.callback(board.close)
            name = f"--tensorboard {options.tensorboard}"
            sinks.append(Fragile(name, lambda sample: board.write(sample, cards)).add)
        job = _job(options, environment, signals, files)
        return _watched(Watch(job, cards, signals, options), log, sinks)


class Lines:
    """A line on stderr at the first sample, then one after every ten seconds."""

    def __init__(self, cores: float, cards: Sequence[Card]) -> None:
        self._cores = cores
        self._cards = cards
        self._shown_s = -math.inf

    def show(self, sample: Sample) -> None:
        """The newest sample, where it is time to."""
        if sample.time_s - self._shown_s >= LINE_EVERY_S:
            self._shown_s = sample.time_s
            say(words.line(sample, self._cores, self._cards))


@dataclass(frozen=True)
class Watch:
    """A job that runs, and what is watched."""

    job: Job
    cards: Sequence[Card]
    signals: Signals
    options: Options


def _watched(watch: Watch, log: Log, sinks: Sequence[Sink]) -> int:
    job, cards, cores = watch.job, watch.cards, watch.job.cores()
    history = History()
    observer = Observer(job, cards)
    log.begin(job.pid, watch.options.interval_s, cores, cards)
    stop = _follow(watch, observer, [history.add, Lines(cores, cards).show, log.add, *sinks])
    overhead, joules = observer.overhead(), observer.joules()
    code = job.exit_code() if stop == "ended" else INTERRUPTED
    left = observer.last.processes if stop == "ended" and job.ours else 0
    log.end(code, overhead, joules, left, observer.last)
    for line in words.summary(history, observer.last, cores, cards, joules):
        say(line)
    if unseen := words.unseen(left, None if job.ours else overhead.elapsed_s - observer.seen_s):
        say(unseen)
    say(words.overhead(overhead))
    whole = history.whole
    if whole is not None:
        if said := _rules(whole, cores, cards):
            say(said)
        _draw(history, cards, watch.options.picture)
    return OK if code is None else code


def _follow(watch: Watch, observer: Observer, sinks: Sequence[Sink]) -> Stop:
    """Samples until the job ends or the watch is interrupted; the first is early, since it may be
    the only one."""
    interval_s = watch.options.interval_s
    next_s = time.monotonic() + min(interval_s, FIRST_S)
    while True:
        stop = wait(watch.job, watch.signals, next_s)
        if stop is None or watch.job.ours:  # of what is gone nothing can be read
            sample = observer.sample()
            for sink in sinks:
                sink(sample)
        if stop is not None:
            return stop
        next_s = max(next_s + interval_s, time.monotonic())


def wait(job: Job, signals: Signals, until_s: float) -> Stop | None:
    """Until that moment, the end of the job, or an interruption of the watch of another's job."""
    while not job.has_ended():
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return None
        came = signals.wait(min(left_s, POLL_S))
        if came is None:
            continue
        if not job.ours:
            return "interrupted"
        number, sent_to_both = came
        if not sent_to_both:
            job.send(number)
    return "ended"


def inherited() -> list[int]:
    """Open files that a job would have besides the first three: as of a shell's <(...)."""
    return [file for file in map(int, os.listdir("/proc/self/fd")) if _is_inherited(file)]


def _is_inherited(file: int) -> bool:
    try:
        return file > STDERR and os.get_inheritable(file)
    except OSError:  # of the folder that was listed
        return False


def _require(options: Options, environment: Mapping[str, str] | None) -> None:
    """Before a file is written: raises GpuliftError for a job or a file that cannot be."""
    if options.pid is not None:
        attached(options.pid)
    else:
        path = (os.environ if environment is None else environment).get("PATH")
        require_program(options.command[0], path)
    files = {
        "--log": options.log,
        "--picture": options.picture,
        "--prometheus": options.prometheus,
    }
    require_distinct({**files, "--tensorboard": options.tensorboard})
    if options.picture is not None and options.picture.suffix not in ("", ".svg"):
        raise GpuliftError(f"--picture {visible(str(options.picture))}: it is SVG; name it so")
    if options.tensorboard is not None:
        scalars.require_folder(options.tensorboard, options.force)
    for option, file in files.items():
        if file is not None:
            ours = gauges.BEGINNING if option == "--prometheus" else b""  # which a kill left
            require_free(file, options.force, ours)
            if option != "--log" and file.is_fifo():  # it would be waited for until somebody reads
                raise GpuliftError(f"{option} {visible(str(file))}: is a pipe; name a file")


def _job(
    options: Options,
    environment: Mapping[str, str] | None,
    signals: Signals,
    files: Collection[int],
) -> Job:
    if options.pid is not None:
        return attached(options.pid)
    return StartedJob(options.command, environment, signals.mask_before, files)


def _cards(wanted: str | None) -> list[Card]:
    if wanted is not None:
        machine.gpu_names("--gpus", wanted)  # what is no name is told first
    library, why = nvml.load()
    if library is None:
        if wanted is not None:
            raise GpuliftError(f"--gpus: {why}")
        say(f"GPUs are not watched: {why}")
        return []
    return nvml.open_cards(library, wanted)


def _rules(whole: Sample, cores: float, cards: Sequence[Card]) -> str:
    found = rules.means(whole, cores, psutil.virtual_memory().total)
    model = slug(cards[0].name) if cards else None
    return rules.paragraph(found, model, machine.checkout_root() / "results")


def _draw(history: History, cards: Sequence[Card], file: Path | None) -> None:
    if file is None:
        return
    from gpulift.watch import picture  # takes long to import

    try:
        picture.write(history.samples, [card.label for card in cards], file)
    except GpuliftError as error:
        say(f"warning: {error}; there is no picture")
