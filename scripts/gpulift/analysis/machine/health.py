"""The card's own state as checks: memory errors, links, limits, clocks, heat, other processes.

Two sources: what the driver says before and after a run (`driver`) and the telemetry of the run's
records (`telemetry`). What neither says is skipped, never passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpulift.analysis.machine import telemetry
from gpulift.analysis.machine.driver import Health, NvLink
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult, judged
from gpulift.ground import text
from gpulift.records.decode import converted
from gpulift.records.model import Record

UNKNOWN = "the driver does not say"
FREE_SHARE = 0.90
# Of one link: where NVIDIA/DCGM's health watch (dcgm_gpu_hardware_limits.h) begins to mind CRC
# errors. It minds the first replay, but a packet is sent again for a CRC error at the other end:
# one is as usual as the other, and what ECC mends arrives whole. Four H200 whose links were busy at
# their full rate counted up to 16 errors a second on a link, a third of them CRC errors. Of those
# that two H100 counted, 4 of 10 were CRC errors and none replays.
MENDED_PER_S = 100.0
RESET = "reset the card or reboot; if it comes back, have the card replaced"


def judge_health(
    before: Health | None, after: Health | None = None, records: Sequence[Record] = ()
) -> tuple[CheckResult, ...]:
    """Every health check of a card before, during and after a run."""
    integrity = {"integrity": telemetry.integrity(records)}
    missing = _missing(before, after, records)
    if missing is not None:
        return _rows({"gpu": missing, **integrity})
    start = before or _from_records(records)
    last = after or start
    own = {name: judge(start, last) for name, judge in _OF_THE_DRIVER.items()}
    on_gpu = [record for record in records if record.telemetry is not None]
    of_run = {name: judge(last, on_gpu) for name, judge in telemetry.OF_THE_RUN.items()}
    return _rows({**own, **of_run, **integrity})


def judge_links(before: Health, after: Health) -> tuple[CheckResult, ...]:
    """What links between GPUs and to the host say of the time between two looks."""
    return _rows({"nvlinks": _nvlinks(before, after), "pcie_replays": _replays(before, after)})


def _missing(
    before: Health | None, after: Health | None, records: Sequence[Record]
) -> CheckResult | None:
    """Of a card that is not there, or was before the run and is gone."""
    if before is not None and before.gpu_missing is not None:
        return judged(SKIPPED, f"no GPU: {before.gpu_missing}", before.gpu_remedy)
    if before is not None and after is not None and after.gpu_missing is not None:
        return judged(FAIL, "the card was there before the run and is gone", RESET)
    if before is None and records and not any(record.context.gpu for record in records):
        first = records[0].context
        told = f"no GPU: {first.gpu_missing}" if first.gpu_missing else "the records are of no GPU"
        return judged(SKIPPED, told, first.gpu_remedy)
    return None


def _rows(found: Mapping[str, CheckResult | None]) -> tuple[CheckResult, ...]:
    """What passes needs no remedy, and what nobody says is skipped."""
    return tuple(
        replace(one or judged(SKIPPED, UNKNOWN), id=f"health/{name}", kind="health")
        for name, one in found.items()
    )


def _from_records(records: Sequence[Record]) -> Health:
    """What records say of the card, for runs whose health was not asked for."""
    context = next((r.context for r in records if r.context.gpu), None)
    if context is None or context.gpu is None:
        return Health()
    facts = context.gpu.facts
    limits = {"limit_w": "power_limit_w", "default_limit_w": "default_power_limit_w"}
    told: dict[str, Any] = {
        "ecc": {"enabled": facts["ecc"]} if "ecc" in facts else {},
        "power": {key: facts[name] for key, name in limits.items() if name in facts},
        **{key: facts[key] for key in ("mig",) if key in facts},
        "driver": context.driver,
        "cuda_driver": context.cuda_driver,
        "cuda_runtime": context.cuda_runtime,
    }
    return converted(told, Health, "the records")


def _ecc(start: Health, last: Health) -> CheckResult | None:
    ecc = last.ecc
    if ecc.enabled is None:
        return None
    if not ecc.enabled:
        seen = "ECC is off: errors in memory would go unseen"
        return judged(INCONCLUSIVE, seen, "nvidia-smi -e 1, then reboot")
    if not ecc.pending:
        seen = "ECC is on, but will be off after the next reboot"
        return judged(INCONCLUSIVE, seen, "nvidia-smi -e 1")
    return judged(PASS, "ECC is on")


def _uncorrected(start: Health, last: Health) -> CheckResult | None:
    ecc = last.ecc
    now = ecc.uncorrected_volatile
    ever = ecc.uncorrected_aggregate
    if now is None and ever is None:
        return None
    if now:
        return judged(FAIL, f"{now} uncorrected memory errors since the driver loaded", RESET)
    if ever:
        seen = f"{ever} uncorrected memory errors in the card's life, none since the driver loaded"
        return judged(INCONCLUSIVE, seen, "watch this card; ask for a replacement if it grows")
    return judged(PASS, "no uncorrected memory errors")


def _corrected(start: Health, last: Health) -> CheckResult | None:
    first = start.ecc.corrected_volatile
    now = last.ecc.corrected_volatile
    if first is None or now is None:
        return None
    if now > first:
        seen = f"{now - first} memory errors were corrected during the run"
        return judged(INCONCLUSIVE, seen, "measure again; a count that grows each time is a fault")
    return judged(PASS, f"none during the run, {now} since the driver loaded")


def _row_remapping(start: Health, last: Health) -> CheckResult | None:
    rows = last.row_remapping
    if rows.pending is None and rows.failure is None:
        return None
    if rows.failure:
        return judged(FAIL, "a memory row could not be remapped", "have the card replaced")
    if rows.pending:
        return judged(FAIL, "a memory row waits to be remapped", "reset the card or reboot")
    done = rows.correctable + rows.uncorrectable
    return judged(PASS, f"{done} rows remapped, none waiting")


def _retired_pages(start: Health, last: Health) -> CheckResult | None:
    if last.retired_pages_pending is None:
        return None
    if last.retired_pages_pending:
        return judged(FAIL, "a memory page waits to be retired", "reboot")
    return judged(PASS, "none waiting")


def _replays(start: Health, last: Health) -> CheckResult | None:
    first = start.pcie.replays
    now = last.pcie.replays
    if first is None or now is None:
        return None
    if now > first:
        seen = f"{now - first} PCIe packets were sent again during the run"
        return judged(INCONCLUSIVE, seen, "seat the card and its riser anew, then measure again")
    return judged(PASS, "none during the run")


def _nvlinks(start: Health, last: Health) -> CheckResult | None:
    links = last.nvlinks
    if links is None:
        return None
    if not links:
        return judged(SKIPPED, "the card has no NVLink")
    if any(link.active is None for link in links):
        return None
    down = [str(number) for number, link in _numbered(links) if not link.active]
    remedy = "look at the fabric manager and the bridge, then nvidia-smi nvlink -s"
    if len(down) == len(links):
        return judged(INCONCLUSIVE, "no NVLink is active: one card, or a fault", remedy)
    if down:
        seen = f"{len(down)} of {len(links)} NVLinks are down: {', '.join(down)}"
        return judged(FAIL, seen, remedy)
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
        return judged(INCONCLUSIVE, seen, remedy)
    if mended:
        seen = f"{crc} CRC errors, {replays} replays and {ecc} mended by ECC"
        seen += f", {worst / seconds:.1f} a second on the worst link: usual below"
        return judged(PASS, f"{seen} {MENDED_PER_S:.0f}, and nothing was lost")
    return judged(PASS, f"{len(links)} active, no new errors")


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


def _power_limit(start: Health, last: Health) -> CheckResult | None:
    power = last.power
    limit, usual = power.limit_w, power.default_limit_w
    if limit is None or usual is None:
        return None
    if limit < usual:
        seen = f"measured under a lowered limit: {limit:.0f} W, the default is {usual:.0f} W"
        return judged(INCONCLUSIVE, seen, f"nvidia-smi -pl {usual:.0f}")
    return judged(PASS, f"{limit:.0f} W, the default is {usual:.0f} W")


def _free_memory(start: Health, last: Health) -> CheckResult | None:
    memory = start.memory
    total, free = memory.total_bytes, memory.free_bytes
    if not total or free is None:
        return None
    share = free / (total - memory.reserved_bytes)
    seen = f"{text.percent(share)} of the card's memory was free before the run"
    if share < FREE_SHARE:
        users = _processes_text(start)
        remedy = "end what uses the card, then measure again"
        return judged(INCONCLUSIVE, f"{seen}: {users or 'the driver names no process'}", remedy)
    return judged(PASS, seen)


def _processes(start: Health, last: Health) -> CheckResult | None:
    if start.processes is None:
        return None
    users = _processes_text(start)
    if users:
        seen = f"other processes are on the card: {users}"
        return judged(INCONCLUSIVE, seen, "end them, then measure again")
    return judged(PASS, "nothing else was on the card before the run")


def _processes_text(health: Health) -> str:
    users = []
    for process in health.processes or ():
        used = process.used_bytes
        size = f" ({text.size(used)})" if used is not None else ""
        users.append(f"pid {process.pid}{size}")
    return ", ".join(users)


def _driver(start: Health, last: Health) -> CheckResult | None:
    """Within one major version an older driver runs what was built for a newer runtime."""
    driver, runtime = last.cuda_driver, last.cuda_runtime
    if not driver or not runtime:
        return None
    seen = f"driver {last.driver} for CUDA {driver}, built for {runtime}".strip()
    if _major(driver) < _major(runtime):
        return judged(FAIL, seen, f"install a driver for CUDA {_major(runtime)}")
    return judged(PASS, seen)


def _major(version: str) -> int:
    match = re.match(r"\d+", version)
    return int(match.group()) if match else 0


def _mig(start: Health, last: Health) -> CheckResult | None:
    if last.mig is None:
        return None
    if last.mig:
        seen = "MIG is on: only a part of the card was measured"
        return judged(INCONCLUSIVE, seen, "nvidia-smi -mig 0, then reset the card")
    return judged(PASS, "MIG is off")


def _numa(start: Health, last: Health) -> CheckResult | None:
    node = start.numa_node
    if node is None or start.affinity_covers_node is None:
        return None
    if not start.affinity_covers_node:
        seen = f"the process may not run on the card's NUMA node {node}"
        remedy = f"numactl --cpunodebind={node} --membind={node} ./gpulift qualify"
        return judged(INCONCLUSIVE, seen, remedy)
    return judged(PASS, f"the process may run on the card's NUMA node {node}")


_OF_THE_DRIVER: Mapping[str, Callable[[Health, Health], CheckResult | None]] = {
    "ecc": _ecc,
    "uncorrected_errors": _uncorrected,
    "corrected_errors": _corrected,
    "row_remapping": _row_remapping,
    "retired_pages": _retired_pages,
    "pcie_replays": _replays,
    "nvlinks": _nvlinks,
    "power_limit": _power_limit,
    "free_memory": _free_memory,
    "processes": _processes,
    "driver": _driver,
    "mig": _mig,
    "numa": _numa,
}
