"""Health of a card: each check on sound and unsound answers, and on answers that lack it."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from gpulift.analysis.machine.health import Health, judge_health, judge_links, read_health
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


def measured(telemetry: Json | None = None, regime: str = "burst", **facts: Any) -> Record:
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


def results(
    before: Health | None, after: Health | None = None, *records: Record
) -> dict[str, CheckResult]:
    made = judge_health(before, after, records or [measured()])
    assert len({one.id for one in made}) == len(made)
    return {one.id.removeprefix("health/"): one for one in made}


def test_records_of_a_machine_without_a_gpu_say_nothing_of_a_driver() -> None:
    """As `report` judges them, which asks no driver."""
    context = {**CPU_CONTEXT, "gpu_missing": "no driver here", "gpu_remedy": "install one"}
    copied = read_record(
        record("ceiling/host_memory", {"n": 1}, [arm("copy", 1e-3)], context=context)
    )
    gone, integrity = judge_health(None, None, [copied])
    assert (gone.id, gone.verdict) == ("health/gpu", SKIPPED)
    assert (gone.reason, gone.remedy) == ("no GPU: no driver here", "install one")
    assert integrity.id == "health/integrity"
    del context["gpu_missing"]
    told = read_record(record("gbench/x", {"n": 1}, [arm("a", 1e-3)], context=context))
    assert judge_health(None, None, [told])[0].reason == "the records are of no GPU"


def test_a_sound_card_passes_everything_that_was_looked_at() -> None:
    found = results(health())
    assert set(found) == NAMES
    assert {one.verdict for name, one in found.items() if name != "integrity"} == {PASS}
    assert found["integrity"].verdict == SKIPPED
    assert [name for name, one in found.items() if one.remedy] == ["integrity"]
    assert found["pcie_link"].reason == "generation 5 x16 under load, 5 x16 is possible"


@pytest.mark.parametrize(
    ("change", "name", "verdict", "words"),
    [
        ({"ecc": {"enabled": False}}, "ecc", INCONCLUSIVE, "ECC is off"),
        ({"ecc": {"pending": False}}, "ecc", INCONCLUSIVE, "after the next reboot"),
        ({"ecc": {"uncorrected_volatile": 2}}, "uncorrected_errors", FAIL, "2 uncorrected"),
        ({"ecc": {"uncorrected_aggregate": 5}}, "uncorrected_errors", INCONCLUSIVE, "life"),
        ({"row_remapping": {"pending": True}}, "row_remapping", FAIL, "waits"),
        ({"row_remapping": {"failure": True}}, "row_remapping", FAIL, "could not be remapped"),
        ({"retired_pages_pending": True}, "retired_pages", FAIL, "waits to be retired"),
        (
            {"power": {"limit_w": 500.0}},
            "power_limit",
            INCONCLUSIVE,
            "under a lowered limit: 500 W",
        ),
        ({"mig": True}, "mig", INCONCLUSIVE, "MIG is on"),
        ({"cuda_driver": "12.4"}, "driver", FAIL, "for CUDA 12.4, built for 13.0"),
        ({"affinity_covers_node": False}, "numa", INCONCLUSIVE, "NUMA node 1"),
        ({"processes": [{"pid": 42, "used_bytes": 1 << 30}]}, "processes", INCONCLUSIVE, "pid 42"),
        ({"memory": {"free_bytes": 100e9}}, "free_memory", INCONCLUSIVE, "names no process"),
        ({"temperature": {"slowdown_c": 64.0}}, "temperature", FAIL, "60 °C at most"),
    ],
)
def test_unsound_answers(change: Json, name: str, verdict: str, words: str) -> None:
    found = results(health(**change))
    assert found[name].verdict == verdict
    assert words in found[name].reason
    assert found[name].remedy
    others = {one.verdict for other, one in found.items() if other not in (name, "integrity")}
    assert others == {PASS}, "nothing else may change"


def test_remedies_name_the_command() -> None:
    found = results(health(affinity_covers_node=False, power={"limit_w": 500.0}))
    assert "numactl --cpunodebind=1 --membind=1" in found["numa"].remedy
    assert found["power_limit"].remedy == "nvidia-smi -pl 700"


def test_an_older_minor_version_of_the_driver_is_enough() -> None:
    assert results(health(cuda_driver="13.0", cuda_runtime="13.2"))["driver"].verdict == PASS


def test_who_holds_the_memory_is_named() -> None:
    users = [{"pid": 42, "used_bytes": 40 << 30}, {"pid": 43}]
    found = results(health(processes=users, memory={"free_bytes": 100e9}))
    assert "pid 42 (40.0 GiB), pid 43" in found["free_memory"].reason


def test_what_grew_during_the_run() -> None:
    after = health(ecc={"corrected_volatile": 5}, pcie={"replays": 3})
    found = results(health(), after)
    assert found["corrected_errors"].verdict == INCONCLUSIVE
    assert "2 memory errors were corrected" in found["corrected_errors"].reason
    assert found["pcie_replays"].verdict == INCONCLUSIVE
    broken = results(health(), health(ecc={"uncorrected_volatile": 1}))
    assert broken["uncorrected_errors"].verdict == FAIL


@pytest.mark.parametrize(
    ("down", "verdict"), [((), PASS), ((2,), FAIL), ((0, 1, 2, 3), INCONCLUSIVE)]
)
def test_nvlinks(down: tuple[int, ...], verdict: str) -> None:
    links = [{"link": i, "active": i not in down} for i in range(4)]
    assert results(health(nvlinks=links))["nvlinks"].verdict == verdict


def test_errors_that_came_while_links_were_busy_are_named_by_link() -> None:
    counts = [0, 7, 0, 2]
    later = [{"link": i, "active": True, "errors": n} for i, n in enumerate(counts)]
    earlier = [{"link": i, "active": True, "errors": n // 7} for i, n in enumerate(counts)]
    links, replays = judge_links(health(nvlinks=earlier), health(nvlinks=later))
    assert (links.id, links.verdict) == ("health/nvlinks", INCONCLUSIVE)
    assert links.reason == "8 errors on NVLinks during the run: link 1 (6), link 3 (2)"
    assert "nvidia-smi nvlink" in links.remedy
    assert replays.verdict == PASS
    same, _ = judge_links(health(nvlinks=later), health(nvlinks=later))
    assert same.verdict == PASS


@pytest.mark.parametrize(
    ("crc", "replays", "ecc", "others", "verdict", "said"),
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
    crc: int, replays: int, ecc: int, others: int, verdict: str, said: str
) -> None:
    counts = {"crc_errors": crc, "replays": replays, "ecc_errors": ecc}
    counts["errors"] = sum(counts.values()) + others
    later = [{"link": i, "active": True, **counts} for i in range(2)]
    earlier = [{"link": i, "active": True, **dict.fromkeys(counts, 0)} for i in range(2)]
    links, _ = judge_links(health(nvlinks=earlier, time_s=5.0), health(nvlinks=later, time_s=15.0))
    assert links.verdict == verdict
    assert re.match(said, links.reason)


def test_crc_errors_of_looks_whose_time_is_not_known_are_told() -> None:
    later = [{"link": 0, "active": True, "errors": 1, "crc_errors": 1}]
    links, _ = judge_links(health(nvlinks=[{"link": 0, "active": True}]), health(nvlinks=later))
    assert links.verdict == INCONCLUSIVE


def test_a_card_without_nvlink_is_skipped() -> None:
    assert results(health(nvlinks=[]))["nvlinks"].reason == "the card has no NVLink"
    assert results(health(nvlinks=[{"link": 0}]))["nvlinks"].reason == "the driver does not say"


@pytest.mark.parametrize("telemetry", [{"pcie_generation": 4}, {"pcie_width": 8}])
def test_a_narrow_or_slow_link_under_load_fails(telemetry: Json) -> None:
    assert results(health(), None, measured(telemetry))["pcie_link"].verdict == FAIL
    both = results(health(), None, measured(telemetry), measured())
    assert both["pcie_link"].verdict == PASS, "the link at its fastest counts"


def test_an_idle_link_is_not_judged() -> None:
    context = GPU_CONTEXT["gpu"] | {"pcie_max_generation": 5, "pcie_max_width": 16}
    made = record("precision/matmul", {"n": 1}, [arm("a", 1e-3)])
    made["context"]["gpu"] = context
    made["telemetry"] |= {"pcie_generation": 1, "pcie_width": 16}
    found = results(health(), None, read_record(made))["pcie_link"]
    assert found.verdict == INCONCLUSIVE
    assert "no copy was measured" in found.reason


@pytest.mark.parametrize(
    ("reached", "verdict"), [(1.98e9, PASS), (1.79e9, PASS), (1.7e9, INCONCLUSIVE), (1.4e9, FAIL)]
)
def test_the_clock_of_burst_cases(reached: float, verdict: str) -> None:
    clock = {"sm_clock_hz": {"min": 1e9, "median": 1.2e9, "max": reached}}
    found = results(health(), None, measured(clock), measured(regime="sustained"))
    assert found["sm_clock"].verdict == verdict


def test_a_clock_that_was_set_is_named() -> None:
    clock = {"sm_clock_hz": {"min": 1e9, "median": 1.2e9, "max": 1.2e9}}
    found = results(health(clocks={"application_sm_hz": 1.2e9}), None, measured(clock))
    assert "application clocks are set to 1200 MHz" in found["sm_clock"].reason


@pytest.mark.parametrize(
    ("reasons", "verdict", "words"),
    [
        ([], PASS, "nothing held the clock down"),
        (["sw_power_cap"], PASS, "only sw_power_cap, which is normal"),
        (["sw_power_cap", "hw_slowdown"], FAIL, "hw_slowdown in ceiling/host_link"),
        (["hw_power_brake_slowdown"], FAIL, "hw_power_brake_slowdown"),
        (["sw_thermal_slowdown"], FAIL, "sw_thermal_slowdown"),
        (["applications_clocks_setting"], INCONCLUSIVE, "applications_clocks_setting"),
        (["other_0x200"], INCONCLUSIVE, "other_0x200"),
    ],
)
def test_throttle_reasons(reasons: list[str], verdict: str, words: str) -> None:
    found = results(health(), None, measured({"throttle": reasons}))["throttle"]
    assert found.verdict == verdict
    assert words in found.reason


def without_throttle() -> Record:
    """A record of a card whose driver does not say what holds its clock down."""
    made = copy.deepcopy(dict(measured().raw))
    del made["telemetry"]["throttle"]
    return read_record(made)


def test_throttling_that_the_driver_does_not_say_is_not_passed() -> None:
    found = results(health(), None, without_throttle(), without_throttle())["throttle"]
    assert (found.verdict, found.reason) == (SKIPPED, "the driver does not say")


@pytest.mark.parametrize(
    ("reasons", "verdict", "words"),
    [
        ([], PASS, "nothing held the clock down"),
        (["sw_power_cap"], PASS, "only sw_power_cap, which is normal under load"),
        (["hw_slowdown"], FAIL, "hw_slowdown in ceiling/host_link"),
        (["other_0x200"], INCONCLUSIVE, "the clock was held by other_0x200"),
    ],
)
def test_throttling_known_of_some_records_says_of_how_many(
    reasons: list[str], verdict: str, words: str
) -> None:
    known = measured({"throttle": reasons})
    found = results(health(), None, without_throttle(), known, without_throttle())["throttle"]
    assert found.verdict == verdict
    assert found.reason == f"{words} (the driver said it of 1 of 3 records)"


@pytest.mark.parametrize(("slope", "verdict"), [(0.01, PASS), (-0.5, PASS), (0.5, INCONCLUSIVE)])
def test_a_card_that_still_gets_hotter(slope: float, verdict: str) -> None:
    hot = {"temperature_slope_c_per_s": slope}
    found = results(health(), None, measured(hot, regime="sustained"), measured())["temperature"]
    assert found.verdict == verdict
    assert f"{slope:+.2f} °C/s in a sustained case" in found.reason
    burst = results(health(), None, measured(hot))["temperature"]
    assert (burst.verdict, "°C/s" in burst.reason) == (PASS, False)


@pytest.mark.parametrize(
    ("outcome", "verdict", "words"),
    [
        ("failed", FAIL, "silent corruption: bits differ"),
        ("error", INCONCLUSIVE, "error: bits differ"),
        ("skipped", SKIPPED, "skipped: bits differ"),
    ],
)
def test_integrity(outcome: str, verdict: str, words: str) -> None:
    bad = read_record(unmeasured("integrity/repeats", {"n": 1}, outcome, "bits differ"))
    good = read_record(record("integrity/repeats", {"n": 2}, [arm("a", 1e-3)]))
    assert results(health(), None, good)["integrity"].verdict == PASS
    found = results(health(), None, good, bad)["integrity"]
    assert (found.verdict, found.reason) == (verdict, words)


def test_one_failed_arm_is_silent_corruption() -> None:
    made = record("integrity/repeats", {"n": 1}, [arm("copy", 1e-3), arm("sum", 1e-3)])
    made["arms"][1] = {
        "name": "sum",
        "role": "technique",
        "outcome": "failed",
        "reason": "bits differ",
    }
    made["order"]["blocks"] = [[0, 0]] * 8
    found = results(health(), None, read_record(made))["integrity"]
    assert (found.verdict, found.reason) == (FAIL, "silent corruption: sum: bits differ")


def test_what_the_driver_does_not_say_is_skipped() -> None:
    made = judge_health(read_health(b"{}"), None, [])
    assert {one.id.removeprefix("health/") for one in made} == NAMES
    assert {one.verdict for one in made} == {SKIPPED}
    partly = results(read_health(b'{"ecc": {"corrected_volatile": 0}, "row_remapping": {}}'))
    assert partly["ecc"].reason == "the driver does not say"
    assert partly["corrected_errors"].verdict == PASS
    assert partly["row_remapping"].verdict == SKIPPED


def test_without_an_answer_records_tell_what_they_can() -> None:
    facts: Json = {"power_limit_w": 600.0, "default_power_limit_w": 700.0, "mig": False}
    found = results(None, None, measured(**facts))
    assert found["power_limit"].verdict == INCONCLUSIVE
    assert found["driver"].verdict == PASS
    assert found["ecc"].verdict == PASS
    assert found["uncorrected_errors"].verdict == SKIPPED


def test_without_a_gpu_there_is_one_row_with_the_remedy() -> None:
    answer = b'{"gpu_missing": "no NVIDIA driver", "gpu_remedy": "install it"}'
    gone, integrity = judge_health(read_health(answer), None, [])
    assert (gone.id, gone.verdict, gone.remedy) == ("health/gpu", SKIPPED, "install it")
    assert gone.reason == "no GPU: no NVIDIA driver"
    assert integrity.verdict == SKIPPED


def test_without_a_gpu_records_alone_pass_nothing() -> None:
    one = read_record(record("allocator/host_malloc", {"n": 1}, [arm("a", 1e-3)], 0, CPU_CONTEXT))
    assert {result.verdict for result in judge_health(None, None, [one])} == {SKIPPED}


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


def test_a_card_that_is_gone_after_the_run_fails() -> None:
    before = read_health(json.dumps(SOUND).encode())
    gone = read_health(b'{"gpu_missing": "no CUDA device"}')
    verdicts = {one.id: one.verdict for one in judge_health(before, gone)}
    assert verdicts["health/gpu"] == FAIL


def test_errors_of_nvlinks_that_grow_are_seen() -> None:
    later = copy.deepcopy(SOUND)
    later["nvlinks"][2]["errors"] = 5
    answers = [read_health(json.dumps(one).encode()) for one in (SOUND, later)]
    found = {one.id: one for one in judge_health(answers[0], answers[1])}["health/nvlinks"]
    assert found.verdict == INCONCLUSIVE
    assert "5 errors" in found.reason
    unchanged = {one.id: one.verdict for one in judge_health(answers[1], answers[1])}
    assert unchanged["health/nvlinks"] == PASS
