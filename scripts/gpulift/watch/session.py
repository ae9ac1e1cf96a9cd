"""One watch: it follows a job to its end and says what was seen. Whatever fails here, the job goes
on."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from gpulift import machine
from gpulift.entry import say
from gpulift.errors import INTERRUPTED, OK, GpuliftError
from gpulift.exchange.writing import require_free
from gpulift.records.model import slug
from gpulift.watch import cards as nvml
from gpulift.watch import gauges, rules, words
from gpulift.watch.cards import Card
from gpulift.watch.job import Job, StartedJob, attached
from gpulift.watch.log import Log
from gpulift.watch.observer import Observer
from gpulift.watch.samples import History, Sample
from gpulift.watch.screen import Lines, Relay, View
from gpulift.watch.signals import Signals

ENVIRONMENT = "GPULIFT_JOB_ENVIRONMENT"  # a descriptor, from which ./gpulift lets it be read
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
    prometheus: str | None = None
    gpus: tuple[int, ...] | None = None
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
            except OSError as error:
                self.works = False
                with suppress(OSError):  # stderr itself may be what fails
                    say(f"warning: {self.name}: {error.strerror or error}; it is written no more")


def run(options: Options) -> int:
    """The job's exit code; of a job of somebody else 0, or that of an interruption."""
    environment = job_environment()
    _require(options, environment)
    cards = _cards(options.gpus)
    with Signals() as signals, ExitStack() as opened:  # before a thread of ours is there
        log = Log(options.log)
        opened.callback(log.close)
        sinks: list[Sink] = []
        if options.prometheus is not None:
            target = gauges.opened(options.prometheus)
            opened.callback(target.close)
            write = Fragile(
                f"--prometheus {options.prometheus}",
                lambda sample: target.write(gauges.gauges(sample, cards)),
            )
            sinks.append(write.add)
        relay = Relay() if options.command and sys.stderr.isatty() else None
        job = _job(options, relay, environment, signals)
        return _watched(Watch(job, cards, signals, options), log, relay, sinks)


@dataclass(frozen=True)
class Watch:
    """A job that runs, and what is watched."""

    job: Job
    cards: Sequence[Card]
    signals: Signals
    options: Options


def _watched(watch: Watch, log: Log, relay: Relay | None, sinks: Sequence[Sink]) -> int:
    job, cards, cores = watch.job, watch.cards, watch.job.cores()
    history = History()
    observer = Observer(job, cards)
    view = View(cores, cards, relay) if sys.stderr.isatty() else Lines(cores, cards)
    log.begin(job.pid, watch.options.interval_s, cores, cards)
    shown = Fragile("the view", view.show)
    stop = _follow(watch, observer, [history.add, shown.add, log.add, *sinks])
    overhead, joules = observer.overhead(), observer.joules()
    code = job.exit_code() if stop == "ended" else INTERRUPTED
    view.close()
    log.end(code, overhead, joules)
    for line in words.summary(history, cores, cards, joules):
        say(line)
    say(words.overhead(overhead))
    whole = history.whole
    if whole is not None:
        say(_rules(whole, cores, cards))
        _draw(history, cards, watch.options.picture)
    return OK if code is None else code


def _follow(watch: Watch, observer: Observer, sinks: Sequence[Sink]) -> Stop:
    """Samples until the job ends or the watch is interrupted."""
    interval_s = watch.options.interval_s
    next_s = time.monotonic() + interval_s
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


def job_environment() -> Mapping[str, str] | None:
    """The environment in which ./gpulift was called, which isolates its own Python; None where the
    job gets ours."""
    descriptor = os.environ.pop(ENVIRONMENT, None)
    if descriptor is None:
        return None
    with open(int(descriptor), "rb") as file:
        entries = file.read().split(b"\0")
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, sign, value in pairs if sign}


def _require(options: Options, environment: Mapping[str, str] | None) -> None:
    """Before a file is written: raises GpuliftError for a job or a file that cannot be."""
    if options.pid is not None:
        attached(options.pid)
    else:
        path = (os.environ if environment is None else environment).get("PATH")
        if shutil.which(options.command[0], path=path) is None:
            raise GpuliftError(f"{options.command[0]}: there is no such program")
    for file in (options.log, options.picture):
        if file is not None:
            require_free(file, options.force)


def _job(
    options: Options,
    relay: Relay | None,
    environment: Mapping[str, str] | None,
    signals: Signals,
) -> Job:
    if options.pid is not None:
        return attached(options.pid)
    theirs = None if relay is None else relay.theirs
    stdout = theirs if sys.stdout.isatty() else None
    return StartedJob(options.command, stdout, theirs, environment, signals.mask_before)


def _cards(wanted: Sequence[int] | None) -> list[Card]:
    library, why = nvml.load()
    if library is None:
        if wanted:
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
    except OSError as error:
        say(f"warning: {file}: {error.strerror or error}; there is no picture")
