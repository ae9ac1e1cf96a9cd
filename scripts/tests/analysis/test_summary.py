"""What a comparison knows besides its speedup: records, rate, clocks, energy."""

from __future__ import annotations

import pytest

from gpulift.analysis import arms as arms_of
from gpulift.analysis import facts
from gpulift.analysis.summary import Worth, work_of
from gpulift.records.model import Cost
from tests import sample
from tests.figures import summary


def with_energy(
    energy: list[list[float | None]], cost: sample.Json | None = None
) -> list[sample.Json]:
    """Launches whose second arm has these joules in the windows of its ten steps."""
    arms = [sample.arm("slow", 1e-3, cost=cost or {}), sample.arm("fast", 5e-4, cost=cost or {})]
    made = sample.launches(len(energy), "a/b", {"n": 1}, arms, blocks=2)
    for record, joules in zip(made, energy, strict=True):
        record["schema"] = "1.2"
        record["arms"][1]["windows"]["energy_j"] = joules
    return made


def worth(records: list[sample.Json]) -> Worth:
    (found,) = summary(records).worths
    return found


def test_joules_are_of_a_step_in_the_median_window_and_the_mean_launch() -> None:
    found = worth(with_energy([[10.0, 20.0, 90.0, 20.0], [40.0, 40.0, 40.0, 40.0]]))
    assert found.energy_j == pytest.approx((2.0 + 4.0) / 2)
    assert found.baseline_energy_j is None


def test_windows_that_the_counter_does_not_resolve_are_left_out() -> None:
    found = worth(with_energy([[None, 30.0, None, 50.0], [None] * 4]))
    assert found.energy_j == pytest.approx(4.0)


def test_the_energy_of_a_case_is_no_arms() -> None:
    made = with_energy([[None] * 4])
    for one in made:
        one["telemetry"]["energy_j"] = 500.0
        for arm in one["arms"]:
            arm["windows"].pop("energy_j", None)
    assert worth(made).energy_j is None


@pytest.mark.parametrize(
    ("hz", "said"), [(1.95e9, ()), (1.74e9, ("arms ran at 1.74 and 1.98 GHz",)), (0.0, ())]
)
def test_arms_that_ran_at_other_clocks_say_so(hz: float, said: tuple[str, ...]) -> None:
    made = with_energy([[None] * 4] * 2)
    for one in made:
        clocks = one["arms"][1]["windows"]["sm_clock_hz"]
        clocks[:] = [hz] * len(clocks)
    assert worth(made).remarks == said


def under_memory(rates: dict[str, float], regime: str = "burst") -> Worth:
    """A kernel of 2 TB/s held against arms of the ceiling of memory with these rates."""
    cost = {"bytes": 1e9, "roof": "device_memory"}
    ceiling = [sample.arm(name, 1e9 / rate, cost=cost) for name, rate in rates.items()]
    kernel = [sample.arm("old", 1e-3, cost=cost), sample.arm("new", 5e-4, cost=cost)]
    return worth(
        [
            *sample.launches(2, "ceiling/device_memory", {"regime": "burst"}, ceiling),
            *sample.launches(2, "a/b", {"regime": regime}, kernel),
        ]
    )


def test_the_roof_of_what_reads_and_writes_memory_is_the_rate_of_a_copy() -> None:
    rates = {"read": 4.5e12, "write": 5e12, "copy": 4e12}
    assert under_memory(rates).roof_fraction == pytest.approx(0.5, rel=0.01)
    del rates["copy"]
    assert under_memory(rates).roof_fraction == pytest.approx(0.4, rel=0.01)


def test_the_power_of_a_roof_is_the_highest_sample_of_any_launch() -> None:
    ceiling = [sample.arm("copy", 1e-3, cost={"bytes": 1e9, "roof": "device_memory"})]
    made = sample.launches(2, "ceiling/device_memory", {"n": 1}, ceiling)
    made[1]["telemetry"]["power_w"] = {"min": 90.0, "median": 188.0, "max": 703.4}
    (roof,) = summary(made).roofs
    assert roof.power == "peak 703 W"
    for one in made:
        one["telemetry"].pop("power_w")
    (roof,) = summary(made).roofs
    assert roof.power == ""


def test_impossible_cpu_seconds_are_refused() -> None:
    arms = [sample.arm(name, 1e-3, clock="host", cpu_cores=1.0) for name in ("slow", "fast")]
    made = sample.launches(2, "a/b", {"n": 1}, arms)
    made[1]["arms"][1]["windows"]["cpu_s"][0] = 100.0
    found = worth(made)
    assert (found.facts.cpu_s, found.cpu_ratio) == (None, None)
    assert facts.cpu(found.facts, found.baseline_facts) == "refused / 1.01 ms"
    record, arm = found.case.measured[1], found.case.arms["fast"][1]
    assert arms_of.cpu(record, arm) == arms_of.OVERBOOKED


def test_joules_of_an_arm_beside_idle_gpus_are_withheld() -> None:
    made = with_energy([[40.0] * 4] * 2)
    for one in made:
        one["schema"] = "1.9"  # later ones count the cards of an arm's own ranks
        one["arms"][0]["windows"]["energy_j"] = [20.0] * 4
        one["arms"][1]["ranks"] = 2
        one["context"] = {**one["context"], "gpus": [one["context"]["gpu"]] * 2}
    found = worth(made)
    assert found.energy_j == pytest.approx(4.0)
    assert found.baseline_energy_j is None
    assert found.energy_ratio is None
    record, arm = found.case.measured[0], found.case.arms["slow"][0]
    assert arms_of.energy(record, arm) == f"withheld: {arms_of.IDLE_GPUS}"


def test_no_share_is_of_a_roof_of_another_regime() -> None:
    assert under_memory({"copy": 4e12}, "sustained").roof_fraction is None


def test_a_comparison_cites_the_launches_that_have_both_arms() -> None:
    made = with_energy([[1.0] * 4] * 3)
    made[1]["arms"][1] |= {"outcome": "skipped", "reason": "out of memory", "windows": {}}
    made[1]["order"]["blocks"] = [[0] * len(made[1]["arms"][0]["windows"]["device_s"])]
    full = summary(made)
    (found,) = full.worths
    first, _, last = full.run.records
    assert found.record_ids == (first.citation, last.citation)
    assert found.speedup.launches == 2


def test_a_comparison_knows_its_clock_and_what_held_it_down() -> None:
    found = worth(with_energy([[1.0] * 4]))
    assert (found.clock, found.throttle) == ("device", ("sw_power_cap",))
    assert found.sm_clock_hz == pytest.approx(1.98e9)
    assert found.prediction.startswith("From the bytes moved")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ([None, None], ("throttle not read",)),
        ([["sw_power_cap"], None], ("sw_power_cap", "throttle not read in 1 of 2 launches")),
        ([[], None], ("throttle not read in 1 of 2 launches",)),
        ([[], []], ()),
    ],
)
def test_a_comparison_says_what_is_not_known_of_its_throttling(
    said: list[list[str] | None], shown: tuple[str, ...]
) -> None:
    made = with_energy([[1.0] * 4] * 2)
    for one, reasons in zip(made, said, strict=True):
        del one["telemetry"]["throttle"]
        one["telemetry"] |= {} if reasons is None else {"throttle": reasons}
    assert worth(made).throttle == shown


def test_a_comparison_without_telemetry_has_no_throttling() -> None:
    made = with_energy([[1.0] * 4])
    del made[0]["telemetry"]
    made[0]["telemetry_missing"] = "no NVML"
    assert worth(made).throttle == ()


def test_a_rate_is_of_the_work_that_the_roof_counts() -> None:
    found = worth(with_energy([[1.0] * 4], {"bytes": 5e5, "flops": 7.0, "roof": "device_memory"}))
    assert found.rate is not None
    assert found.rate.value == pytest.approx(1e9, rel=0.02)
    assert found.rate_unit == "B/s"


@pytest.mark.parametrize(
    ("cost", "work"),
    [
        (None, (0.0, "")),
        (Cost(), (0.0, "")),
        (Cost(items=3.0), (3.0, "items/s")),
        (Cost(bytes=2.0, items=3.0), (2.0, "B/s")),
        (Cost(bytes=2.0, flops=1.0), (1.0, "FLOP/s")),
        (Cost(bytes=2.0, flops=1.0, roof="host_memory"), (2.0, "B/s")),
        (Cost(bytes=2.0, flops=1.0, roof="gemm/fp32"), (1.0, "FLOP/s")),
    ],
)
def test_the_work_of_a_cost(cost: Cost | None, work: tuple[float, str]) -> None:
    assert work_of(cost) == work


def test_worths_are_found_by_technique() -> None:
    full = summary(with_energy([[1.0] * 4]))
    assert full.worths_of("a/b") == full.worths
    assert full.worths_of("a/c") == ()


def test_a_comparison_knows_cpu_seconds_and_joules_with_their_ratios() -> None:
    arms = [
        sample.arm("slow", 2e-3, clock="host", cpu_cores=1.0, power_w=100.0),
        sample.arm("fast", 1e-3, clock="host", cpu_cores=1.5, power_w=400.0),
    ]
    found = worth(sample.launches(3, "a/b", {"n": 1}, arms))
    assert found.facts.cpu_s == pytest.approx(1.5e-3, rel=0.02)
    assert found.baseline_facts.cpu_s == pytest.approx(2e-3, rel=0.02)
    assert found.cpu_ratio is not None
    assert found.cpu_ratio.value == pytest.approx(0.75, rel=0.01)
    assert found.energy_ratio is not None
    assert found.energy_ratio.value == pytest.approx(2.0, rel=0.01)


def test_a_comparison_without_cpu_seconds_has_neither_them_nor_their_ratio() -> None:
    found = worth(with_energy([[1.0] * 4]))
    assert (found.facts.cpu_s, found.baseline_facts.cpu_s, found.cpu_ratio) == (None, None, None)
    assert found.energy_ratio is None, "the baseline has no joules"


@pytest.mark.parametrize("checked", [True, False])
def test_a_comparison_knows_whether_its_result_was_checked(checked: bool) -> None:
    made = with_energy([[1.0] * 4] * 2)
    made[1]["arms"][1]["checked"] = checked
    assert worth(made).checked is checked
