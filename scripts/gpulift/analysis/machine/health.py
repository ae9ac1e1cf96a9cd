"""The card's own state as checks: memory errors, links, limits, clocks, heat, other processes.

Two sources: what the driver says before and after a run (`gpulift-bench --health`, an object of
JSON in which every key may be absent) and the telemetry of the run's records. What neither says
is skipped, never passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpulift.analysis.machine.checks import look_again
from gpulift.analysis.machine.computed_peaks import Facts, facts_of
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult
from gpulift.ground import text
from gpulift.ground.registers import slowdowns
from gpulift.records.decode import converted, decoded
from gpulift.records.model import Context, Record
from gpulift.records.throttle import throttle_of
from gpulift.records.values import Integer, Maybe, Number

UNKNOWN = "the driver does not say"
NEAR_SLOWDOWN_C = 5.0
LOOK_AHEAD_S = 60.0
FREE_SHARE = 0.90
# Of one link: where NVIDIA/DCGM's health watch (dcgm_gpu_hardware_limits.h) begins to mind CRC
# errors. It minds the first replay, but a packet is sent again for a CRC error at the other end:
# one is as usual as the other, and what ECC mends arrives whole. Four H200 whose links were busy at
# their full rate counted up to 16 errors a second on a link, a third of them CRC errors. Of those
# that two H100 counted, 4 of 10 were CRC errors and none replays.
MENDED_PER_S = 100.0
# Below three quarters of the clock a card is held back (NVIDIA/nvbench discards such samples, by
# its default clock). From nine tenths on it boosts: the maximum of GeForce cards is above what
# their boost reaches, that of the H200 of results/ is reached.
CLOCK_PASSES = 0.90
CLOCK_FAILS = 0.75
RESET = "reset the card or reboot; if it comes back, have the card replaced"


@dataclass(frozen=True)
class Ecc:
    """Of the card's memory."""

    enabled: Maybe[bool] = None
    pending: bool = True
    corrected_volatile: Maybe[Integer] = None
    uncorrected_volatile: Maybe[Integer] = None
    uncorrected_aggregate: Maybe[Integer] = None


@dataclass(frozen=True)
class RowRemapping:
    """Rows of memory that others stand in for."""

    pending: Maybe[bool] = None
    failure: Maybe[bool] = None
    correctable: Integer = 0
    uncorrectable: Integer = 0


@dataclass(frozen=True)
class Pcie:
    """The link to the host."""

    replays: Maybe[Integer] = None
    max_generation: Maybe[Integer] = None
    max_width: Maybe[Integer] = None


@dataclass(frozen=True)
class NvLink:
    """One link to another card; without a number it has that of its place."""

    link: Maybe[Integer] = None
    active: Maybe[bool] = None
    errors: Integer = 0
    crc_errors: Integer = 0
    replays: Integer = 0
    ecc_errors: Integer = 0


@dataclass(frozen=True)
class Power:
    """Its limit now and by default."""

    limit_w: Maybe[Number] = None
    default_limit_w: Maybe[Number] = None


@dataclass(frozen=True)
class Memory:
    """How much of it there is."""

    total_bytes: Maybe[Number] = None
    free_bytes: Maybe[Number] = None
    reserved_bytes: Number = 0.0


@dataclass(frozen=True)
class Clocks:
    """The highest, and what applications are set to."""

    max_sm_hz: Maybe[Number] = None
    application_sm_hz: Maybe[Number] = None


@dataclass(frozen=True)
class Temperature:
    """Now, and where the card slows down."""

    now_c: Maybe[Number] = None
    slowdown_c: Maybe[Number] = None


@dataclass(frozen=True)
class Process:
    """One that is on the card."""

    pid: Integer
    used_bytes: Maybe[Integer] = None


@dataclass(frozen=True)
class Health:
    """What the driver said of the card at one moment; None and empty is what it does not say."""

    time_s: Number = 0.0
    gpu_missing: Maybe[str] = None
    gpu_remedy: str = ""
    driver: str = ""
    cuda_driver: str = ""
    cuda_runtime: str = ""
    mig: Maybe[bool] = None
    retired_pages_pending: Maybe[bool] = None
    numa_node: Maybe[Integer] = None
    affinity_covers_node: Maybe[bool] = None
    ecc: Ecc = Ecc()
    row_remapping: RowRemapping = RowRemapping()
    pcie: Pcie = Pcie()
    power: Power = Power()
    memory: Memory = Memory()
    clocks: Clocks = Clocks()
    temperature: Temperature = Temperature()
    nvlinks: Maybe[tuple[NvLink, ...]] = None
    processes: Maybe[tuple[Process, ...]] = None


def read_health(answer: bytes, place: str = "gpulift-bench --health") -> Health:
    """Reads the JSON object; RecordError where it is none, or has a key of the wrong type."""
    return decoded(answer, Health, place)


def judge_health(
    before: Health | None, after: Health | None = None, records: Sequence[Record] = ()
) -> tuple[CheckResult, ...]:
    """Every health check of a card before, during and after a run."""
    if _lost(before, after):
        seen = "the card was there before the run and is gone"
        return (_result("gpu", FAIL, seen, RESET), _integrity(records))
    if before is not None and before.gpu_missing is not None:
        seen = f"no GPU: {before.gpu_missing}"
        return (_result("gpu", SKIPPED, seen, before.gpu_remedy), _integrity(records))
    if before is None and records and not any(record.context.gpu for record in records):
        first = records[0].context
        seen = f"no GPU: {first.gpu_missing}" if first.gpu_missing else "the records are of no GPU"
        return (_result("gpu", SKIPPED, seen, first.gpu_remedy), _integrity(records))
    start = before or _from_records(records)
    last = after or start
    own = [judge(start, last) for judge in _OF_THE_DRIVER]
    on_gpu = [record for record in records if record.telemetry is not None]
    return (*own, *(judge(last, on_gpu) for judge in _OF_THE_RUN), _integrity(records))


def judge_links(before: Health, after: Health) -> tuple[CheckResult, ...]:
    """What links between GPUs and to the host say of the time between two looks."""
    return (_nvlinks(before, after), _replays(before, after))


def _lost(before: Health | None, after: Health | None) -> bool:
    """Whether the driver knew the card before the run and does not after it."""
    gone = [health.gpu_missing is not None for health in (before, after) if health is not None]
    return gone == [False, True]


def _from_records(records: Sequence[Record]) -> Health:
    """What records say of the card, for runs whose health was not asked for."""
    context = next((r.context for r in records if r.context.gpu), None)
    if context is None or context.gpu is None:
        return Health()
    facts = context.gpu.facts
    limits = {"limit_w": "power_limit_w", "default_limit_w": "default_power_limit_w"}
    said: dict[str, Any] = {
        "ecc": {"enabled": facts["ecc"]} if "ecc" in facts else {},
        "power": {key: facts[name] for key, name in limits.items() if name in facts},
        **{key: facts[key] for key in ("mig",) if key in facts},
        "driver": context.driver,
        "cuda_driver": context.cuda_driver,
        "cuda_runtime": context.cuda_runtime,
    }
    return converted(said, Health, "the records")


def _result(name: str, verdict: str, seen: str, remedy: str = "") -> CheckResult:
    shown = "" if verdict == PASS else remedy
    return CheckResult(f"health/{name}", verdict, seen, shown, kind="health")


def _unknown(name: str) -> CheckResult:
    return _result(name, SKIPPED, UNKNOWN)


def _ecc(start: Health, last: Health) -> CheckResult:
    ecc = last.ecc
    if ecc.enabled is None:
        return _unknown("ecc")
    if not ecc.enabled:
        seen = "ECC is off: errors in memory would go unseen"
        return _result("ecc", INCONCLUSIVE, seen, "nvidia-smi -e 1, then reboot")
    if not ecc.pending:
        seen = "ECC is on, but will be off after the next reboot"
        return _result("ecc", INCONCLUSIVE, seen, "nvidia-smi -e 1")
    return _result("ecc", PASS, "ECC is on")


def _uncorrected(start: Health, last: Health) -> CheckResult:
    ecc = last.ecc
    now = ecc.uncorrected_volatile
    ever = ecc.uncorrected_aggregate
    name = "uncorrected_errors"
    if now is None and ever is None:
        return _unknown(name)
    if now:
        return _result(
            name, FAIL, f"{now} uncorrected memory errors since the driver loaded", RESET
        )
    if ever:
        seen = f"{ever} uncorrected memory errors in the card's life, none since the driver loaded"
        return _result(
            name, INCONCLUSIVE, seen, "watch this card; ask for a replacement if it grows"
        )
    return _result(name, PASS, "no uncorrected memory errors")


def _corrected(start: Health, last: Health) -> CheckResult:
    first = start.ecc.corrected_volatile
    now = last.ecc.corrected_volatile
    name = "corrected_errors"
    if first is None or now is None:
        return _unknown(name)
    if now > first:
        seen = f"{now - first} memory errors were corrected during the run"
        return _result(
            name, INCONCLUSIVE, seen, "measure again; a count that grows each time is a fault"
        )
    return _result(name, PASS, f"none during the run, {now} since the driver loaded")


def _row_remapping(start: Health, last: Health) -> CheckResult:
    rows = last.row_remapping
    name = "row_remapping"
    if rows.pending is None and rows.failure is None:
        return _unknown(name)
    if rows.failure:
        return _result(name, FAIL, "a memory row could not be remapped", "have the card replaced")
    if rows.pending:
        return _result(name, FAIL, "a memory row waits to be remapped", "reset the card or reboot")
    done = rows.correctable + rows.uncorrectable
    return _result(name, PASS, f"{done} rows remapped, none waiting")


def _retired_pages(start: Health, last: Health) -> CheckResult:
    if last.retired_pages_pending is None:
        return _unknown("retired_pages")
    if last.retired_pages_pending:
        return _result("retired_pages", FAIL, "a memory page waits to be retired", "reboot")
    return _result("retired_pages", PASS, "none waiting")


def _replays(start: Health, last: Health) -> CheckResult:
    first = start.pcie.replays
    now = last.pcie.replays
    name = "pcie_replays"
    if first is None or now is None:
        return _unknown(name)
    if now > first:
        seen = f"{now - first} PCIe packets were sent again during the run"
        return _result(
            name, INCONCLUSIVE, seen, "seat the card and its riser anew, then measure again"
        )
    return _result(name, PASS, "none during the run")


def _nvlinks(start: Health, last: Health) -> CheckResult:
    links = last.nvlinks
    if links is None:
        return _unknown("nvlinks")
    if not links:
        return _result("nvlinks", SKIPPED, "the card has no NVLink")
    if any(link.active is None for link in links):
        return _unknown("nvlinks")
    down = [str(number) for number, link in _numbered(links) if not link.active]
    remedy = "look at the fabric manager and the bridge, then nvidia-smi nvlink -s"
    if len(down) == len(links):
        return _result("nvlinks", INCONCLUSIVE, "no NVLink is active: one card, or a fault", remedy)
    if down:
        seen = f"{len(down)} of {len(links)} NVLinks are down: {', '.join(down)}"
        return _result("nvlinks", FAIL, seen, remedy)
    new = _new_errors(start, last, "errors")
    kinds = [_new_errors(start, last, kind) for kind in ("crc_errors", "replays", "ecc_errors")]
    mended = {link: sum(kind.get(link, 0) for kind in kinds) for link in set().union(*kinds)}
    crc, replays, ecc = (sum(kind.values()) for kind in kinds)
    seconds = last.time_s - start.time_s
    worst = max((count for kind in kinds for count in kind.values()), default=0)
    is_usual = new == mended and seconds > 0 and worst < MENDED_PER_S * seconds
    if new and not is_usual:
        told = ", ".join(f"link {link} ({count})" for link, count in new.items())
        seen = f"{sum(new.values())} errors on NVLinks during the run: {told}"
        if mended:
            seen += f"; {crc} of them CRC errors, {replays} replays, {ecc} mended by ECC"
        return _result("nvlinks", INCONCLUSIVE, seen, remedy)
    if mended:
        seen = f"{crc} CRC errors, {replays} replays and {ecc} mended by ECC"
        seen += f", {worst / seconds:.1f} a second on the worst link: usual below"
        return _result("nvlinks", PASS, f"{seen} {MENDED_PER_S:.0f}, and nothing was lost")
    return _result("nvlinks", PASS, f"{len(links)} active, no new errors")


def _numbered(links: Sequence[NvLink]) -> list[tuple[int, NvLink]]:
    return [(i if link.link is None else link.link, link) for i, link in enumerate(links)]


def _new_errors(start: Health, last: Health, kind: str) -> dict[int, int]:
    """By link, those that came between two looks at the same links."""
    before, after = (
        {number: getattr(link, kind) for number, link in _numbered(look.nvlinks or ())}
        for look in (start, last)
    )
    return {
        link: after[link] - before[link] for link in before if after.get(link, 0) > before[link]
    }


def _power_limit(start: Health, last: Health) -> CheckResult:
    power = last.power
    limit, usual = power.limit_w, power.default_limit_w
    if limit is None or usual is None:
        return _unknown("power_limit")
    if limit < usual:
        seen = f"measured under a lowered limit: {limit:.0f} W, the default is {usual:.0f} W"
        return _result("power_limit", INCONCLUSIVE, seen, f"nvidia-smi -pl {usual:.0f}")
    return _result("power_limit", PASS, f"{limit:.0f} W, the default is {usual:.0f} W")


def _free_memory(start: Health, last: Health) -> CheckResult:
    memory = start.memory
    total, free = memory.total_bytes, memory.free_bytes
    name = "free_memory"
    if not total or free is None:
        return _unknown(name)
    share = free / (total - memory.reserved_bytes)
    seen = f"{text.percent(share)} of the card's memory was free before the run"
    if share < FREE_SHARE:
        users = _processes_text(start)
        remedy = "end what uses the card, then measure again"
        return _result(
            name, INCONCLUSIVE, f"{seen}: {users or 'the driver names no process'}", remedy
        )
    return _result(name, PASS, seen)


def _processes(start: Health, last: Health) -> CheckResult:
    if start.processes is None:
        return _unknown("processes")
    users = _processes_text(start)
    if users:
        seen = f"other processes are on the card: {users}"
        return _result("processes", INCONCLUSIVE, seen, "end them, then measure again")
    return _result("processes", PASS, "nothing else was on the card before the run")


def _processes_text(health: Health) -> str:
    users = []
    for process in health.processes or ():
        used = process.used_bytes
        size = f" ({text.size(used)})" if used is not None else ""
        users.append(f"pid {process.pid}{size}")
    return ", ".join(users)


def _driver(start: Health, last: Health) -> CheckResult:
    """Within one major version an older driver runs what was built for a newer runtime."""
    driver, runtime = last.cuda_driver, last.cuda_runtime
    if not driver or not runtime:
        return _unknown("driver")
    seen = f"driver {last.driver} for CUDA {driver}, built for {runtime}".strip()
    if _major(driver) < _major(runtime):
        return _result("driver", FAIL, seen, f"install a driver for CUDA {_major(runtime)}")
    return _result("driver", PASS, seen)


def _major(version: str) -> int:
    match = re.match(r"\d+", version)
    return int(match.group()) if match else 0


def _mig(start: Health, last: Health) -> CheckResult:
    if last.mig is None:
        return _unknown("mig")
    if last.mig:
        seen = "MIG is on: only a part of the card was measured"
        return _result("mig", INCONCLUSIVE, seen, "nvidia-smi -mig 0, then reset the card")
    return _result("mig", PASS, "MIG is off")


def _numa(start: Health, last: Health) -> CheckResult:
    node = start.numa_node
    if node is None or start.affinity_covers_node is None:
        return _unknown("numa")
    if not start.affinity_covers_node:
        seen = f"the process may not run on the card's NUMA node {node}"
        remedy = f"numactl --cpunodebind={node} --membind={node} ./gpulift qualify"
        return _result("numa", INCONCLUSIVE, seen, remedy)
    return _result("numa", PASS, f"the process may run on the card's NUMA node {node}")


def _pcie(health: Health, records: Sequence[Record]) -> CheckResult:
    """The link under load: an idle one is slowed down to save power."""
    contexts = {id(record.context): record.context for record in records}
    limits = [_pcie_limits(context, health) for context in contexts.values()]
    links = [(r.telemetry.pcie_generation, r.telemetry.pcie_width) for r in records if r.telemetry]
    generation, width = (max((v for v in values if v), default=0) for values in _columns(links))
    most, widest = (max((v for v in values if v), default=0) for values in _columns(limits))
    if not (generation and width and most and widest):
        return _unknown("pcie_link")
    seen = f"generation {generation} x{width} under load, {most} x{widest} is possible"
    if generation >= most and width >= widest:
        return _result("pcie_link", PASS, seen)
    if not any(_loads_the_link(record) for record in records):
        remedy = "measure transfer or ceiling/host_link: an idle link is slowed down"
        return _result("pcie_link", INCONCLUSIVE, f"{seen}, but no copy was measured", remedy)
    remedy = "seat the card anew; look at slot, riser and firmware settings"
    return _result("pcie_link", FAIL, seen, remedy)


def _columns(pairs: Iterable[tuple[int | None, int | None]]) -> tuple[list[int | None], ...]:
    rows = list(pairs)
    return [first for first, _ in rows], [second for _, second in rows]


def _pcie_limits(context: Context, health: Health) -> tuple[int | None, int | None]:
    facts = facts_of(context.gpu) if context.gpu else Facts()
    link = health.pcie
    return (
        facts.pcie_max_generation or link.max_generation,
        facts.pcie_max_width or link.max_width,
    )


def _loads_the_link(record: Record) -> bool:
    return any(arm.cost and arm.cost.roof.startswith("host_link/") for arm in record.arms)


def _clock(health: Health, records: Sequence[Record]) -> CheckResult:
    """The highest SM clock of burst cases, which run before power or heat hold the clock down."""
    seen_hz = [
        record.telemetry.ranges["sm_clock_hz"].max
        for record in records
        if record.regime == "burst"
        and record.telemetry
        and "sm_clock_hz" in record.telemetry.ranges
    ]
    clocks = health.clocks
    facts = (facts_of(record.context.gpu) for record in records if record.context.gpu)
    most = next((f.max_sm_clock_hz for f in facts), None)
    most = most or clocks.max_sm_hz
    if not seen_hz or not most:
        return _unknown("sm_clock")
    share = max(seen_hz) / most
    seen = f"{max(seen_hz) / 1e6:.0f} of {most / 1e6:.0f} MHz reached"
    if share >= CLOCK_PASSES:
        return _result("sm_clock", PASS, seen)
    set_to = clocks.application_sm_hz
    if set_to and set_to < most:
        seen += f"; application clocks are set to {set_to / 1e6:.0f} MHz"
    verdict = FAIL if share < CLOCK_FAILS else INCONCLUSIVE
    return _result(
        "sm_clock", verdict, seen, "nvidia-smi -rgc and -rac; then look at power and heat"
    )


def _throttle(health: Health, records: Sequence[Record]) -> CheckResult:
    """What held the clock down while cases ran, as far as the driver said it."""
    seen = throttle_of(records)
    if seen.unread == len(records):
        return _unknown("throttle")
    read = len(records) - seen.unread
    part = f" (the driver said it of {read} of {len(records)} records)" if seen.unread else ""
    bad = [reason for reason in seen.reasons if reason in slowdowns("hardware") | slowdowns("heat")]
    if bad:
        named = "; ".join(f"{reason} in {_held_by(reason, records)}" for reason in bad)
        remedy = "look at cooling, power supply and power cables"
        return _result("throttle", FAIL, f"{named}{part}", remedy)
    other = [reason for reason in seen.reasons if reason not in slowdowns("power_limit")]
    if other:
        remedy = "nvidia-smi -rgc and -rac undo clock settings"
        held = f"the clock was held by {', '.join(other)}{part}"
        return _result("throttle", INCONCLUSIVE, held, remedy)
    normal = ", ".join(seen.reasons)
    held = f"only {normal}, which is normal under load" if normal else "nothing held the clock down"
    return _result("throttle", PASS, f"{held}{part}")


def _held_by(reason: str, records: Sequence[Record]) -> str:
    """The techniques during which that reason held the clock down."""
    throttled = (record for record in records if reason in throttle_of([record]).reasons)
    return ", ".join(sorted({record.technique for record in throttled}))


def _temperature(health: Health, records: Sequence[Record]) -> CheckResult:
    limits = health.temperature
    slowdown = limits.slowdown_c
    readings = [
        record.telemetry.ranges["temperature_c"].max
        for record in records
        if record.telemetry and "temperature_c" in record.telemetry.ranges
    ]
    now = limits.now_c
    highest = max([*readings, *([now] if now is not None else [])], default=None)
    if slowdown is None or highest is None:
        return _unknown("temperature")
    seen = f"{highest:.0f} °C at most, the card slows down at {slowdown:.0f} °C"
    if highest > slowdown - NEAR_SLOWDOWN_C:
        return _result("temperature", FAIL, seen, "look at cooling and airflow")
    rise, reached = _steepest(records, highest)
    if rise is None:
        return _result("temperature", PASS, seen)
    seen += f"; {rise:+.2f} °C/s in a sustained case"
    if reached + rise * LOOK_AHEAD_S > slowdown - NEAR_SLOWDOWN_C:
        seen += ", which would slow it down within a minute"
        return _result("temperature", INCONCLUSIVE, seen, "measure for longer; look at cooling")
    return _result("temperature", PASS, seen)


def _steepest(records: Sequence[Record], highest: float) -> tuple[float | None, float]:
    """The steepest rise of a sustained case, and how hot that case became."""
    slopes = []
    for record in records:
        telemetry = record.telemetry
        slope = telemetry.temperature_slope_c_per_s if telemetry else None
        if record.regime == "sustained" and telemetry and slope is not None:
            own = telemetry.ranges.get("temperature_c")
            slopes.append((slope, own.max if own else highest))
    return max(slopes, default=(None, highest))


def _integrity(records: Sequence[Record]) -> CheckResult:
    """The repeats of one product, which must give the same bits each time."""
    repeats = [record for record in records if record.judges_integrity]
    reasons = [record.reason for record in repeats if record.outcome == "failed"]
    arms = [arm for record in repeats for arm in record.arms if arm.outcome == "failed"]
    reasons += [f"{arm.name}: {arm.reason}" for arm in arms]
    if reasons:
        seen = f"silent corruption: {reasons[0]}"
        return _result("integrity", FAIL, seen, "do not use this card; have it replaced")
    wrong = [record for record in repeats if record.outcome != "ok"]
    if wrong:
        first = wrong[0]
        verdict = SKIPPED if first.outcome == "skipped" else INCONCLUSIVE
        remedy = first.remedy or ("" if verdict == SKIPPED else look_again(first))
        return _result("integrity", verdict, f"{first.outcome}: {first.reason}", remedy)
    if not repeats:
        remedy = "./gpulift qualify without a filter that leaves it out"
        return _result("integrity", SKIPPED, "the run has no integrity/repeats", remedy)
    return _result("integrity", PASS, f"{len(repeats)} repeated cases gave the same bits")


_OF_THE_DRIVER: tuple[Callable[[Health, Health], CheckResult], ...] = (
    _ecc,
    _uncorrected,
    _corrected,
    _row_remapping,
    _retired_pages,
    _replays,
    _nvlinks,
    _power_limit,
    _free_memory,
    _processes,
    _driver,
    _mig,
    _numa,
)
_OF_THE_RUN: tuple[Callable[[Health, Sequence[Record]], CheckResult], ...] = (
    _pcie,
    _clock,
    _throttle,
    _temperature,
)
