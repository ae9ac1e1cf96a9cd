"""From what processes said to what each change is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add
from statistics import fmean, median

from gpulift.advise import launches, noise, ranked, remedies, results
from gpulift.advise.advice import (
    ALREADY_ON,
    FAILED,
    HELPS,
    HURTS,
    NO_CHANGE,
    NOT_APPLICABLE,
    NOT_SET,
    NOT_TRIED,
    OTHER_WORK,
    RESULT_DIFFERS,
    UNDECIDED,
    UPPER_BOUND,
    VERDICTS,
    Advice,
    Row,
    Span,
    winners,
)
from gpulift.advise.evidence import BASELINE, TOGETHER, Hello, Process
from gpulift.advise.settings import Setting
from gpulift.ground.estimate import Estimate
from gpulift.verdicts.decision import holm

ALL = Setting(TOGETHER, "all that help, together", "step")
INPUT = "input: an infinitely fast loader"
PERSISTENT = "persistent_workers, which start anew each epoch"
THREADED = (
    "another thread of the script reads the loader: its batches are not given again, and what a"
    " step waits for them is not told apart"
)
# That any of several changes that do nothing is told to do something: half of it, that one helps.
CHANCE = 0.02
LITTLE = 0.02  # of a step: what waits for input no longer is beside the point
MUCH = 0.05  # of a step, that one line takes outside of torch
SAID_NOTHING = "the process never imported torch"
NO_STEPS = "the process ended ahead of its first measured step"
NO_WINDOWS = "the process ended ahead of its windows"
READS = "reads"  # the arm that leaves out waiting for values
OTHER_NUMBERS = "other random numbers, or another order, in other worker processes"


@dataclass(frozen=True)
class Trial:
    """A change with a log gain for each launch; its gain decides unless it has a verdict."""

    row: Row
    logs: tuple[float, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether its gain may become a claim, for which it is tested among the others."""
        return bool(self.logs) and self.row.verdict in ("", ALREADY_ON)


def advise(
    replays: Sequence[Process],
    turns: Sequence[Process],
    settings: Sequence[Setting],
    together_runs: Sequence[Process],
    cached: bool = True,
    launch_s: float | None = None,
) -> Advice:
    """The answer of all processes that there are. A change is told to help or to hurt only where
    Holm's test among all of them says so at 2 %. `cached`: replays had their batches at once;
    `launch_s`: what one more launch of all takes."""
    every = [*replays, *turns, *together_runs]
    plain = [one for one in every if one.setting == BASELINE]
    live = [one for one in replays if one.steps_s] or [one for one in plain if one.steps_s]
    step = launches.over_values([launches.live_s(one) for one in live])
    fed = [one for one in replays if cached and one.facts and one.facts.anchor == "loader"]
    rests = [(one, log) for one in fed if (log := launches.rest_log(one)) is not None]
    rest = launches.over_launches([log for _, log in rests])
    cached_step = launches.over_values(
        [live_s * math.exp(log) for one, log in rests if (live_s := launches.live_s(one))]
    )
    trials = [_of_arm(replays, name) for name in _arm_names(replays)]
    rounding = results.rounding(plain)
    trials += [_of_setting(turns, one, rounding, remedies.draws_anew(one.name)) for one in settings]
    judged = _ordered(_judged(trials))
    bounds = [*_restarts(live), *ranked.slow_ranks(replays), *_host_lines(live)]
    rows = [*_head_space(rest, cached_step), *bounds, *judged]
    together = _together(together_runs, winners(rows), rounding)
    helping = [row for row in (together, *winners(rows)) if row and row.verdict == HELPS]
    gains = [row.gain.mid for row in helping if row.gain]
    on_gpu = any(one.on_gpu for one in every)
    hello = next((one.hello for one in every if one.hello), None)
    return Advice(
        device=_where(hello) if hello else "",
        torch=hello.torch if hello else "",
        launches=len(live),
        steps=sum(one.ended.steps for one in every if one.ended),
        step_s=Span.of(step),
        cached_s=Span.of(cached_step),
        wait_share=_complement(rest),
        pace=tuple(noise.pace(replays if on_gpu else (), rows)),
        noise=tuple(noise.line(rows, launch_s)),
        bound=", ".join(_bounds(rest, replays if on_gpu else ())),
        probe_share=_probe_share(live),
        rows=tuple(rows),
        together=together,
        do=tuple(_lines(rows, every, on_gpu)),
        not_tried=tuple(_not_tried(rows)),
        notes=tuple(dict.fromkeys((*_notes(rest, replays, plain), *_asides(live, gains)))),
    )


def _where(hello: Hello) -> str:
    return f"{hello.world} ranks on {hello.device}" if hello.world > 1 else hello.device


def _complement(rest: Estimate | None) -> Span | None:
    if rest is None:
        return None
    low = None if rest.high is None else 1 - rest.high
    high = None if rest.low is None else 1 - rest.low
    return Span(1 - rest.value, low, high)


def _head_space(rest: Estimate | None, cached: Estimate | None) -> Iterator[Row]:
    if rest is not None and cached is not None:
        gain = Span.of(rest.inverse())
        why = "the most that any change of the input can bring"
        yield Row("input", INPUT, UPPER_BOUND, gain, cached.value, why=why)


def _restarts(live: Sequence[Process]) -> Iterator[Row]:
    """What is over where the workers of a loader go on from epoch to epoch."""
    shares = [share for one in live if (share := launches.starts_share(one)) is not None]
    if shares and median(shares) >= LITTLE:
        gain = 1 / (1 - median(shares))
        why = "the most that workers which go on can bring"
        yield Row("persistent", PERSISTENT, UPPER_BOUND, Span(gain, None, None), why=why)


def _host_lines(live: Sequence[Process]) -> Iterator[Row]:
    """Lines that were seen in every process."""
    shares = [one.facts.host for one in live if one.facts]
    for line in shares[0] if shares else ():
        share = median(every.get(line, 0.0) for every in shares)
        if share >= MUCH:
            gain, why = Span(1 / (1 - min(share, launches.MOST_INPUT)), None, None), "without it"
            yield Row("host", f"work outside of torch at {line}", UPPER_BOUND, gain, why=why)


def _asides(live: Sequence[Process], gains: Sequence[float]) -> Iterator[str]:
    """What comes between steps, and what the best gain is where it stays."""
    ends = [(one.ended, launches.live_s(one)) for one in live if one.ended and one.ended.asides]
    shares = [end.aside_s / (end.aside_s + step_s) for end, step_s in ends if step_s]
    if shares and not any(shares):
        yield "an evaluation came between steps, and is no part of them"
    elif shares:
        share = median(one for one in shares if one)
        took = f"evaluations between steps, no part of them, take {100 * share:.0f} % of the time"
        if gains and gains[0] > 1:
            whole = 1 / (share + (1 - share) / gains[0])
            took += f": a step {gains[0]:.2f} times as fast is a training {whole:.2f} times as fast"
        yield took


def _arm_names(replays: Sequence[Process]) -> list[str]:
    return list(dict.fromkeys(name for one in replays for name in one.arms if name != BASELINE))


def _of_arm(replays: Sequence[Process], name: str) -> Trial:
    arms = [one.arms[name] for one in replays if name in one.arms]
    row = Row(name, arms[0].label)
    states: dict[str, str] = {arm.state: arm.why for arm in arms}
    failures = [states[FAILED]] if FAILED in states else []
    failures += [failed.why for one in replays for failed in one.failed if failed.arm == name]
    if failures:
        return Trial(replace(row, verdict=FAILED, why=max(failures)))  # one may be empty
    if states.keys() == {NOT_APPLICABLE}:
        return Trial(replace(row, verdict=NOT_APPLICABLE, why=states[NOT_APPLICABLE]))
    found = [launches.gain_log(one, name) for one in replays]
    logs = tuple(log for log in found if log is not None)
    if not logs:
        return Trial(replace(row, verdict=NOT_TRIED, why=NO_WINDOWS))
    result = results.of_arm(replays, name)
    if ALREADY_ON in states:  # its windows are without it
        return _timed(replace(row, verdict=ALREADY_ON, result=result), [-log for log in logs])
    step = launches.over_values([launches.replayed_s(one, name) for one in replays])
    row = replace(
        row,
        result=result,
        step_s=step.value if step else None,
        memory_bytes=launches.peak_difference(replays, name),
    )
    return _timed(_with_result(row, arms[0].keeps == "work"), logs)


def _of_setting(
    turns: Sequence[Process], setting: Setting, rounding: float, draws_anew: bool
) -> Trial:
    row = Row(setting.name, setting.label)
    own = [one for one in turns if one.setting == setting.name]
    if setting.why_not or not own:
        why = setting.why_not or "no process was started with it"
        return Trial(replace(row, verdict=NOT_TRIED, why=why))
    failures = [why for one in own if (why := _failure(one))]
    if failures:
        return Trial(replace(row, verdict=FAILED, why=failures[0]))
    pairs = launches.paired(turns, setting.name)
    if not pairs:
        return Trial(replace(row, verdict=NOT_TRIED, why="no process as it is beside it"))
    result = results.of_setting(pairs, setting.keeps, rounding, draws_anew)
    items = [log for pair in pairs if (log := launches.items_log(*pair)) is not None]
    # What a launcher passes on in a file of its own shows in the result alone.
    if not setting.arguments or (result in results.SAME and not any(items)):
        for one in own:
            if one.facts and one.facts.unset:
                return Trial(replace(row, verdict=NOT_SET, why=one.facts.unset))
    step = launches.over_values([launches.live_s(one) for one in own])
    row = replace(
        row,
        result=result,
        why=OTHER_NUMBERS if draws_anew and result == results.NOT_COMPARABLE else "",
        step_s=step.value if step else None,
        memory_bytes=launches.memory_difference(pairs, "device_bytes"),
        host_bytes=launches.memory_difference(pairs, "host_bytes"),
    )
    logs = [launches.paired_gain_log(*pair) for pair in pairs]
    if setting.keeps != "work" and not any(items):
        return _timed(_with_result(row, works=False), logs)
    if len(items) == len(logs):
        row, logs = replace(row, why="per item"), list(map(add, logs, items))
    return _timed(_with_result(row, works=True), logs)


def _failure(process: Process) -> str:
    """Why a process came to no live step; empty where it did."""
    if said := [failed.why for failed in process.failed if not failed.arm]:
        return said[0]
    if process.hello is None:
        return SAID_NOTHING
    return "" if process.steps_s else NO_STEPS


def _with_result(row: Row, works: bool) -> Row:
    if works:
        return replace(row, result=results.OTHER_WORK, verdict=OTHER_WORK)
    differs = row.result.startswith(results.DIFFERS)
    return replace(row, verdict=RESULT_DIFFERS) if differs else row


def _timed(row: Row, logs: Sequence[float]) -> Trial:
    gain = launches.over_launches(logs)
    return Trial(replace(row, gain=Span.of(gain)), tuple(logs))


def _judged(trials: Sequence[Trial]) -> Iterator[Row]:
    every = dict(enumerate(trials))
    adjusted = holm({at: launches.p_value(one.logs) for at, one in every.items() if one.compared})
    for at, trial in every.items():
        if at in adjusted:
            yield _verdict(trial.row, adjusted[at] <= CHANCE, trial.logs)
        else:
            yield trial.row


def _verdict(row: Row, significant: bool, logs: Sequence[float]) -> Row:
    """Of a row with a gain that is tested."""
    assert row.gain is not None, "it was timed"
    gain = row.gain.estimate
    if row.verdict == ALREADY_ON:
        costs = significant and gain.value < 1
        return replace(row, why="it makes the step slower" if costs else "")
    if gain.low is None or gain.high is None:
        return replace(row, verdict=UNDECIDED, why="one launch has no interval")
    if gain.low <= 1 <= gain.high:
        least = gain.half_width
        if least is not None and least > noise.WIDE:
            why = "too few launches for what they differ by"
            return replace(row, verdict=UNDECIDED, why=why, wide=noise.wide(logs))
        return replace(row, verdict=NO_CHANGE, least=least)
    if not significant:
        return replace(row, verdict=UNDECIDED, why="may be chance among so many changes")
    return replace(row, verdict=HELPS if gain.value > 1 else HURTS)


def _ordered(rows: Iterator[Row]) -> list[Row]:
    return sorted(
        rows, key=lambda row: (VERDICTS.index(row.verdict), -row.gain.mid if row.gain else 0)
    )


def _together(processes: Sequence[Process], chosen: Sequence[Row], rounding: float) -> Row | None:
    """Judged alone: what is in it was chosen by other processes."""
    if not processes:
        return None
    draws_anew = any(remedies.draws_anew(row.name) for row in chosen)
    (row,) = _judged([_of_setting(processes, ALL, rounding, draws_anew)])
    # Its switches are flipped behind the steps whose losses are compared.
    return replace(row, result=results.worst([row.result, *(one.result for one in chosen)]))


def _bounds(rest: Estimate | None, on_gpu: Sequence[Process]) -> Iterator[str]:
    wait = _complement(rest)
    if wait is not None:
        ends = [f"{100 * end:.0f}" for end in wait[1:] if end is not None]
        shown = f" [{', '.join(ends)}]" if ends else ""
        yield f"input takes {100 * wait.mid:.0f} %{shown} of the step"
    issued = [share for one in on_gpu if (share := launches.issued_share(one)) is not None]
    if issued:
        reads = any(one.arms[READS].state != NOT_APPLICABLE for one in on_gpu if READS in one.arms)
        waits = ", waiting for values that it reads" if reads else ""
        yield f"the host issues {100 * median(issued):.0f} % of the step{waits}"


def _probe_share(live: Sequence[Process]) -> float | None:
    shares = [
        one.facts.hooks_s / step_s
        for one in live
        if one.facts and (step_s := launches.live_s(one)) is not None
    ]
    return fmean(shares) if shares else None


def _lines(rows: Sequence[Row], every: Sequence[Process], on_gpu: bool) -> Iterator[str]:
    facts = [one.facts for one in every if one.facts]
    for row in winners(rows):
        line = remedies.remedy(row.name, row.label, facts, on_gpu)
        why = f": {row.why}" if row.why else ""
        yield line if row.result in results.SAME else f"{line} (result {row.result}{why})"
    for row in rows:
        if row.verdict == ALREADY_ON and row.why:
            yield f"{row.label}: turn it off, {row.why}"


def _not_tried(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each reason."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict in (NOT_APPLICABLE, NOT_TRIED):
            labels.setdefault(row.why or row.verdict, []).append(row.label)
    for why, alike in labels.items():
        yield f"{', '.join(alike)}: {why}"


def _notes(
    rest: Estimate | None, replays: Sequence[Process], plain: Sequence[Process]
) -> Iterator[str]:
    if rest and (rest.high or 1) < 1 - LITTLE:
        yield (
            "other than settings of the process, changes are timed without the wait for input:"
            " they bring less, or nothing, until input is faster"
        )
    yield from (f"{row.label}: {row.why}" for row in ranked.slow_ranks(replays))
    nulls = [one.checks[BASELINE] for one in replays if BASELINE in one.checks]
    if whys := [null.why for null in nulls if null.why]:
        yield f"the same step once more is another: {whys[0]}"
    elif not all(null.bits for null in nulls):
        yield "the same step once more has other bits: the script is not deterministic"
    for one in (*replays, *plain):
        if one.facts and one.facts.loader and one.facts.loader.threaded:
            yield THREADED
        yield from one.facts.notes if one.facts else ()
        if why := _failure(one):
            yield f"a process of the command failed: {why}"
