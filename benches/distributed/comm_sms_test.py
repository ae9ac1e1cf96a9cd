"""distributed/comm_sms: each arm has its own environment, and what is wrong is counted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402
from testing.rank_group import RankGroup  # noqa: E402

SCRIPT = Path(__file__).with_name("comm_sms.py")

comm_sms = load(__file__)
MANIFEST = manifest(__file__)
pytestmark = pytest.mark.usefixtures("no_settings")
NVLINK: dict[str, int | str] = {"link": "nvlink"}
HAS_TWO_GPUS = torch.cuda.is_available() and torch.cuda.device_count() > 1


def test_an_arm_of_so_many_channels_has_neither_fewer_nor_more() -> None:
    for arm, variables in MANIFEST["environment"].items():
        if arm.startswith("channels_"):
            channels = arm.removeprefix("channels_")
            assert variables == {"NCCL_MIN_CTAS": channels, "NCCL_MAX_CTAS": channels}


def test_an_arm_without_its_variable_fails_and_one_with_that_of_another_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(RuntimeError, match="started without NCCL_MAX_CTAS=4"):
        comm_sms.make("channels_4", NVLINK, 7, 0)
    monkeypatch.setenv("NCCL_MAX_CTAS", "8")
    with pytest.raises(Skip, match="NCCL_MAX_CTAS is set") as skip:
        comm_sms.make("default", NVLINK, 7, 0)
    assert skip.value.remedy == "unset NCCL_MAX_CTAS"


@pytest.mark.parametrize("arm", comm_sms.ALLOCATED)
def test_peers_memory_is_not_reached_through_the_host(
    arm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MANIFEST["environment"][arm].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Skip, match="over NVLink"):
        comm_sms.make(arm, {"link": "host"}, 7, 0)


def test_both_ranks_say_that_they_need_a_gpu_each() -> None:
    with RankGroup(SCRIPT) as group:
        said = group.hello("default", NVLINK)
        assert group.exit_codes() == [0, 0]
    assert [one["skipped"] for one in said] == ["its ranks need a GPU each"] * 2


def test_counts_every_wrong_element_and_takes_what_was_not_written_for_wrong() -> None:
    expected = torch.arange(8.0)
    assert comm_sms.wrong(expected.clone(), expected) == 0
    found = expected.clone()
    found[3], found[5] = 7, math.nan
    assert comm_sms.wrong(found, expected) == 2


@pytest.mark.parametrize(("work_s", "other_s"), [(1.6e-3, 0.54e-3), (1.6e-3, 5.2e-3), (1.0, 1.0)])
def test_the_other_runs_as_long_as_the_work_does_at_a_third_of_its_speed(
    work_s: float, other_s: float
) -> None:
    assert comm_sms.repeats_that_outlast(work_s, other_s) * other_s >= 3 * work_s


@pytest.mark.skipif(not HAS_TWO_GPUS, reason="there are no two GPUs")
@pytest.mark.parametrize("arm", MANIFEST["arms"])
def test_both_results_are_exact_on_two_gpus(arm: str) -> None:
    with RankGroup(SCRIPT, variables=MANIFEST["environment"].get(arm, {})) as group:
        said = group.hello(arm, NVLINK, on_gpus=True)
        assert group.exit_codes() == [0, 0]
    for one in said:
        assert one["check_error"] == 0
        assert one["metrics"]["product_alone_s"] > 0
        assert one["metrics"]["gather_alone_s"] > 0
