"""Health of a card: each check on sound and unsound answers, and on answers that lack it."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from gpulift.analysis.machine.driver import Health, read_health
from gpulift.analysis.machine.health import RESET, judge_health, judge_links
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult
from gpulift.ground.errors import RecordError
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from tests.sample import CPU_CONTEXT, GPU_CONTEXT, Json, arm, gpu_context, record, unmeasured

SOUND: Json = {
    "card": "1a2b3c4d",
    "ecc": {
        "enabled": True,
        "pending": True,
        "corrected_volatile": 3,
        "uncorrected_volatile": 0,
        "corrected_aggregate": 9,
        "uncorrected_aggregate": 0,
    },
    "row_remapping": {"correctable": 1, "uncorrectable": 0, "pending": False, "failure": False},
    "retired_pages_pending": False,
    "pcie": {"generation": 1, "width": 16, "max_generation": 5, "max_width": 16, "replays": 2},
    "nvlinks": [{"link": i, "active": True, "version": 4, "errors": 0} for i in range(4)],
    "power": {"limit_w": 700.0, "default_limit_w": 700.0},
    "clocks": {"sm_hz": 3.45e8, "max_sm_hz": 1.98e9, "application_sm_hz": 1.98e9},
    "throttle": [],
    "temperature": {"now_c": 35.0, "slowdown_c": 90.0, "shutdown_c": 95.0},
    "memory": {"total_bytes": 150e9, "free_bytes": 148e9, "used_bytes": 1e9, "reserved_bytes": 1e9},
    "processes": [],
    "mig": False,
    "numa_node": 1,
    "host_numa_nodes": 2,
    "affinity_covers_node": True,
    "driver": "580.1",
    "cuda_driver": "13.0",
    "cuda_runtime": "13.0",
}
NAMES = {
    *("ecc", "uncorrected_errors", "corrected_errors", "row_remapping", "retired_pages"),
    *("pcie_replays", "nvlinks", "power_limit", "free_memory", "processes", "driver", "mig"),
    *("numa", "pcie_link", "sm_clock", "throttle", "temperature", "integrity"),
}


def health(**changes: Any) -> Health:
    """A sound answer with changes; a dictionary changes single keys of its part."""
    made = copy.deepcopy(SOUND)
    for key, value in changes.items():
        made[key] = made[key] | value if isinstance(value, dict) else value
    return read_health(json.dumps(made).encode())


Telemetry = dict[str, Any]


def measured(telemetry: Telemetry | None = None, regime: str = "burst", **facts: Any) -> Record:
    """A record of a copy to the card; its telemetry is sound but for the changes."""
    limits = {"max_sm_clock_hz": 1.98e9, "pcie_max_generation": 5, "pcie_max_width": 16}
    context = gpu_context(gpu={**limits, **facts})
    copied = arm("h2d", 1e-3, cost={"bytes": 1e6, "roof": "host_link/h2d"})
    made = record("ceiling/host_link", {"n": 1}, [copied], context=context, regime=regime)
    made["telemetry"] |= {
        "temperature_c": {"min": 35.0, "median": 50.0, "max": 60.0},
        "pcie_generation": 5,
        "pcie_width": 16,
        **(telemetry or {}),
    }
    return read_record(made)


def idle() -> Record:
    """Of no copy, so that the link was slowed down."""
    made = record("precision/matmul", {"n": 1}, [arm("a", 1e-3)])
    made["context"]["gpu"] = GPU_CONTEXT["gpu"] | {"pcie_max_generation": 5, "pcie_max_width": 16}
    made["telemetry"] |= {"pcie_generation": 1, "pcie_width": 16}
    return read_record(made)


def silent() -> Record:
    """Of a card whose driver does not say what holds its clock down."""
    made = copy.deepcopy(dict(measured().raw))
    del made["telemetry"]["throttle"]
    return read_record(made)


def repeats(outcome: str = "ok", arm_outcome: str = "ok") -> Record:
    """Of one product, whose bits may differ."""
    if outcome != "ok":
        return read_record(unmeasured("integrity/repeats", {"n": 1}, outcome, "bits differ"))
    made = record("integrity/repeats", {"n": 2}, [arm("copy", 1e-3), arm("sum", 1e-3)])
    if arm_outcome != "ok":
        bad = {"outcome": arm_outcome, "reason": "bits differ"}
        made["arms"][1] = {"name": "sum", "role": "technique", **bad}
        made["order"]["blocks"] = [[0, 0]] * 8
    return read_record(made)


def clock(reached_hz: float) -> Telemetry:
    return {"sm_clock_hz": {"min": 1e9, "median": 1.2e9, "max": reached_hz}}


def links(*down: int, **counts: int) -> Telemetry:
    return {"nvlinks": [{"link": i, "active": i not in down, **counts} for i in range(4)]}


def results(
    before: Health | None, after: Health | None = None, *records: Record
) -> dict[str, CheckResult]:
    """By name; whatever fails or is open says what to do about it."""
    made = judge_health(before, after, records or [measured()])
    assert len({one.id for one in made}) == len(made)
    for one in made:
        wanted = one.verdict in (FAIL, INCONCLUSIVE)
        assert bool(one.remedy) == wanted or one.verdict == SKIPPED, one
    return {one.id.removeprefix("health/"): one for one in made}


def test_a_sound_card_passes_everything_that_was_looked_at() -> None:
    made = results(health())
    assert set(made) == NAMES
    assert {one.verdict for name, one in made.items() if name != "integrity"} == {PASS}
    assert made["integrity"].verdict == SKIPPED
    assert [name for name, one in made.items() if one.remedy] == ["integrity"]
    assert made["pcie_link"].reason == "generation 5 x16 under load, 5 x16 is possible"


USERS = [{"pid": 42, "used_bytes": 40 << 30}, {"pid": 43}]
NUMA = "numactl --cpunodebind=1 --membind=1"
SILENT = "the driver does not say"


@pytest.mark.parametrize(
    ("change", "name", "verdict", "words", "remedy"),
    [
        ({"ecc": {"enabled": False}}, "ecc", INCONCLUSIVE, "ECC is off", "nvidia-smi -e 1"),
        ({"ecc": {"pending": False}}, "ecc", INCONCLUSIVE, "after the next reboot", ""),
        ({"ecc": {"uncorrected_volatile": 2}}, "uncorrected_errors", FAIL, "2 uncorrected", ""),
        ({"ecc": {"uncorrected_aggregate": 5}}, "uncorrected_errors", INCONCLUSIVE, "life", ""),
        ({"row_remapping": {"pending": True}}, "row_remapping", FAIL, "waits", ""),
        ({"row_remapping": {"failure": True}}, "row_remapping", FAIL, "could not be rem", ""),
        ({"retired_pages_pending": True}, "retired_pages", FAIL, "waits to be retired", ""),
        ({"power": {"limit_w": 5e2}}, "power_limit", INCONCLUSIVE, "500 W", "nvidia-smi -pl 700"),
        ({"mig": True}, "mig", INCONCLUSIVE, "MIG is on", ""),
        ({"cuda_driver": "12.4"}, "driver", FAIL, "for CUDA 12.4, built for 13.0", ""),
        ({"cuda_runtime": "13.2"}, "driver", PASS, "for CUDA 13.0, built for 13.2", ""),
        ({"affinity_covers_node": False}, "numa", INCONCLUSIVE, "NUMA node 1", NUMA),
        ({"processes": USERS}, "processes", INCONCLUSIVE, "pid 42 (40.0 GiB), pid 43", ""),
        ({"memory": {"free_bytes": 1e11}}, "free_memory", INCONCLUSIVE, "names no process", ""),
        ({"temperature": {"slowdown_c": 64.0}}, "temperature", FAIL, "60 °C at most", ""),
        (links(2), "nvlinks", FAIL, "1 of 4 NVLinks are down: 2", "fabric manager"),
        (links(0, 1, 2, 3), "nvlinks", INCONCLUSIVE, "no NVLink is active", ""),
        ({"nvlinks": []}, "nvlinks", SKIPPED, "the card has no NVLink", ""),
        ({"nvlinks": [{"link": 0}]}, "nvlinks", SKIPPED, SILENT, ""),
    ],
)
def test_what_the_driver_says(
    change: Json, name: str, verdict: str, words: str, remedy: str
) -> None:
    made = results(health(**change))
    assert made[name].verdict == verdict
    assert words in made[name].reason
    assert remedy in made[name].remedy
    others = {one.verdict for other, one in made.items() if other not in (name, "integrity")}
    assert others == {PASS}, "nothing else may change"


def test_who_holds_the_memory_is_named() -> None:
    made = results(health(processes=USERS, memory={"free_bytes": 100e9}))
    assert "pid 42 (40.0 GiB), pid 43" in made["free_memory"].reason


@pytest.mark.parametrize(
    ("after", "name", "verdict", "words"),
    [
        ({"ecc": {"corrected_volatile": 5}}, "corrected_errors", INCONCLUSIVE, "2 memory errors"),
        ({"pcie": {"replays": 3}}, "pcie_replays", INCONCLUSIVE, "1 PCIe packets were sent again"),
        ({"ecc": {"uncorrected_volatile": 1}}, "uncorrected_errors", FAIL, "1 uncorrected"),
        (
            links(errors=5),
            "nvlinks",
            INCONCLUSIVE,
            "20 errors on NVLinks during the run: link 0",
        ),
    ],
)
def test_what_grew_during_the_run(after: Json, name: str, verdict: str, words: str) -> None:
    made = results(health(), health(**after))[name]
    assert made.verdict == verdict
    assert words in made.reason
    if name == "nvlinks":
        assert results(health(**after), health(**after))[name].verdict == PASS


@pytest.mark.parametrize(
    ("crc", "replays", "ecc", "others", "verdict", "words"),
    [
        (300, 0, 0, 0, PASS, "600 CRC errors, 0 replays and 0 mended by ECC, 30.0 a second on the"),
        (0, 300, 0, 0, PASS, "0 CRC errors, 600 replays and 0 mended by ECC, 30.0 a second on the"),
        (0, 0, 300, 0, PASS, "0 CRC errors, 0 replays and 600 mended by ECC, 30.0 a second on the"),
        (900, 990, 9, 0, PASS, "1800 CRC errors, 1980 replays and 18 mended by ECC, 99.0 a second"),
        (1000, 0, 0, 0, INCONCLUSIVE, "2000 errors on NVLinks during the run"),
        (0, 1000, 0, 0, INCONCLUSIVE, "2000 errors on NVLinks during the run"),
        (0, 0, 1000, 0, INCONCLUSIVE, "2000 errors on NVLinks during the run"),
        (300, 2, 3, 1, INCONCLUSIVE, "612 errors .*; 600 of them CRC errors, 4 replays, 6 mended"),
    ],
)
def test_what_was_mended_matters_by_its_rate(
    crc: int, replays: int, ecc: int, others: int, verdict: str, words: str
) -> None:
    counts = {"crc_errors": crc, "replays": replays, "ecc_errors": ecc}
    counts["errors"] = sum(counts.values()) + others
    later = [{"link": i, "active": True, **counts} for i in range(2)]
    earlier = [{"link": i, "active": True} for i in range(2)]
    looks = health(nvlinks=earlier, time_s=5.0), health(nvlinks=later, time_s=15.0)
    nvlinks, pcie = judge_links(*looks)
    assert (nvlinks.id, nvlinks.verdict, pcie.verdict) == ("health/nvlinks", verdict, PASS)
    assert re.match(words, nvlinks.reason)
    if crc and not others:
        untimed, _ = judge_links(health(nvlinks=earlier), health(nvlinks=later))
        assert untimed.verdict == INCONCLUSIVE, "of a rate that is not known"


HELD = "normal under load"
SLOPE = "temperature_slope_c_per_s"


@pytest.mark.parametrize(
    ("records", "name", "verdict", "words"),
    [
        ([measured({"pcie_generation": 4})], "pcie_link", FAIL, "generation 4 x16 under load"),
        ([measured({"pcie_width": 8})], "pcie_link", FAIL, "generation 5 x8 under load"),
        ([measured({"pcie_width": 8}), measured()], "pcie_link", PASS, ""),  # at its fastest
        ([idle()], "pcie_link", INCONCLUSIVE, "no copy was measured"),
        ([measured(clock(1.98e9)), measured(regime="sustained")], "sm_clock", PASS, ""),
        ([measured(clock(1.79e9))], "sm_clock", PASS, "1790 of 1980 MHz"),
        ([measured(clock(1.7e9))], "sm_clock", INCONCLUSIVE, ""),
        ([measured(clock(1.4e9))], "sm_clock", FAIL, ""),
        ([measured({"throttle": []})], "throttle", PASS, "nothing held the clock down"),
        ([measured({"throttle": ["sw_power_cap"]})], "throttle", PASS, HELD),
        ([measured({"throttle": ["sw_power_cap", "hw_slowdown"]})], "throttle", FAIL, "hw_slowdow"),
        ([measured({"throttle": ["hw_power_brake_slowdown"]})], "throttle", FAIL, "hw_power_brake"),
        ([measured({"throttle": ["sw_thermal_slowdown"]})], "throttle", FAIL, "in ceiling/host_li"),
        ([measured({"throttle": ["other_0x200"]})], "throttle", INCONCLUSIVE, "held by other_0x2"),
        ([silent(), silent()], "throttle", SKIPPED, SILENT),
        ([measured({SLOPE: 0.01}, "sustained"), measured()], "temperature", PASS, "+0.01 °C/s in"),
        ([measured({SLOPE: -0.5}, "sustained"), measured()], "temperature", PASS, "-0.50 °C/s in"),
        ([measured({SLOPE: 0.5}, "sustained")], "temperature", INCONCLUSIVE, "+0.50 °C/s in a sus"),
        ([measured({SLOPE: 0.5})], "temperature", PASS, "slows down at 90 °C"),
        ([repeats()], "integrity", PASS, "1 repeated cases gave the same bits"),
        ([repeats(), repeats("failed")], "integrity", FAIL, "silent corruption: bits differ"),
        ([repeats(), repeats("error")], "integrity", INCONCLUSIVE, "error: bits differ"),
        ([repeats(), repeats("skipped")], "integrity", SKIPPED, "skipped: bits differ"),
        ([repeats("ok", "failed")], "integrity", FAIL, "silent corruption: sum: bits differ"),
    ],
)
def test_what_the_records_say(records: list[Record], name: str, verdict: str, words: str) -> None:
    made = results(health(), None, *records)[name]
    assert made.verdict == verdict
    assert words in made.reason


def test_a_clock_that_was_set_is_named() -> None:
    made = results(health(clocks={"application_sm_hz": 1.2e9}), None, measured(clock(1.2e9)))
    assert "application clocks are set to 1200 MHz" in made["sm_clock"].reason


@pytest.mark.parametrize(
    ("reasons", "verdict"),
    [([], PASS), (["sw_power_cap"], PASS), (["hw_slowdown"], FAIL), (["other"], INCONCLUSIVE)],
)
def test_throttling_known_of_some_records_says_of_how_many(
    reasons: list[str], verdict: str
) -> None:
    made = results(health(), None, silent(), measured({"throttle": reasons}), silent())["throttle"]
    assert made.verdict == verdict
    assert made.reason.endswith(" (the driver said it of 1 of 3 records)")


def test_what_the_driver_does_not_say_is_skipped() -> None:
    made = judge_health(read_health(b"{}"), None, [])
    assert {one.id.removeprefix("health/") for one in made} == NAMES
    assert {one.verdict for one in made} == {SKIPPED}
    partly = results(read_health(b'{"ecc": {"corrected_volatile": 0}, "row_remapping": {}}'))
    assert (partly["ecc"].reason, partly["row_remapping"].verdict) == (SILENT, SKIPPED)
    assert partly["corrected_errors"].verdict == PASS


def test_without_an_answer_records_tell_what_they_can() -> None:
    facts: Json = {"power_limit_w": 600.0, "default_power_limit_w": 700.0, "mig": False}
    made = results(None, None, measured(**facts))
    names = ("power_limit", "driver", "ecc", "uncorrected_errors")
    assert [made[name].verdict for name in names] == [INCONCLUSIVE, PASS, PASS, SKIPPED]


TOLD = {"gpu_missing": "no driver here", "gpu_remedy": "install it"}


def on_cpu(**context: str) -> Record:
    bare = {key: value for key, value in CPU_CONTEXT.items() if key not in TOLD}
    made = record("allocator/host_malloc", {"n": 1}, [arm("a", 1e-3)], 0, {**bare, **context})
    return read_record(made)


@pytest.mark.parametrize(
    ("before", "after", "records", "verdict", "told"),
    [
        (TOLD, None, [], SKIPPED, ("no GPU: no driver here", "install it")),
        (None, None, [on_cpu(**TOLD)], SKIPPED, ("no GPU: no driver here", "install it")),
        (None, None, [on_cpu()], SKIPPED, ("the records are of no GPU", "")),  # asked no driver
        (SOUND, TOLD, [], FAIL, ("the card was there before the run and is gone", RESET)),
    ],
)
def test_without_a_gpu_there_is_one_row_with_the_remedy(
    before: Json | None, after: Json | None, records: list[Record], verdict: str, told: Any
) -> None:
    looks = [read_health(json.dumps(one).encode()) if one else None for one in (before, after)]
    gone, integrity = judge_health(looks[0], looks[1], records)
    assert (gone.id, gone.verdict) == ("health/gpu", verdict)
    assert (gone.reason, gone.remedy) == told
    assert (integrity.id, integrity.verdict) == ("health/integrity", SKIPPED)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"nonsense", "gpulift-bench --health"),
        (b"[]", "must be"),
        (b'{"mig": "on"}', "mig must be bool, not str"),
        (b'{"ecc": {"corrected_volatile": 1.5}}', "ecc.corrected_volatile must be int, not float"),
        (b'{"nvlinks": [{"active": "yes"}]}', r"nvlinks\[0\].active must be bool, not str"),
    ],
)
def test_a_wrong_answer_is_named(answer: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        judge_health(read_health(answer))
