"""distributed/straggler: the late rank is named by its own times, and only then."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.distributed import Group  # noqa: E402
from technique_script import load, manifest  # noqa: E402
from testing.rank_group import RankGroup, altered  # noqa: E402

SCRIPT = Path(__file__).with_name("straggler.py")

straggler = load(__file__)
MANIFEST = manifest(__file__)
# So late that it shows on any machine.
SMALL = """
from gpulift_work import distributed

distributed.cores = lambda: 8
technique.MODELS = {"gloo": "gpt_toy"}
technique.SLOWER_SHARE = technique.LOADER_SHARE = 5
technique.WATCHED_STEPS = 5
"""


def waits_of(monkeypatch: pytest.MonkeyPatch, arm: str, rank: int, steps: int) -> list[float]:
    """How long a rank keeps its processor busy in each of so many steps of a second."""
    busy: list[float] = []
    monkeypatch.setattr(straggler, "keep_busy", busy.append)
    wait = straggler.WAITS[arm](Group(rank, 2, torch.device("cpu"), 1), 1.0)
    sums = []
    for _ in range(steps):
        busy.clear()
        wait()
        sums.append(sum(busy))
    return sums


@pytest.mark.parametrize(
    ("arm", "ranks"),
    [
        *((arm, 2) for arm in MANIFEST["arms"]),
        *(
            pytest.param("one_slower_5_percent", ranks, marks=pytest.mark.many_ranks)
            for ranks in (4, 8)
        ),
    ],
)
def test_ranks_hold_the_same_gradients_and_the_late_one_is_named(
    arm: str, ranks: int, tmp_path: Path
) -> None:
    with RankGroup(altered(tmp_path, SCRIPT, SMALL), ranks=ranks) as group:
        hellos = group.hello(arm, {"ranks": ranks, "link": "gloo"})
        windows = group.window(2)
        assert group.exit_codes() == [0] * ranks
    assert all(one["check_error"] <= MANIFEST["check"]["tolerance"] for one in hellos)
    assert all(one["host_s"] > 0 for one in windows)
    found = hellos[0]["metrics"]
    assert found["slowest_own_s"] >= found["fastest_own_s"] > 0
    if arm in ("one_slower_5_percent", "loader_on_one"):
        assert found["slowest_rank"] == ranks - 1
        assert found["slowest_over_median"] > 1.3
        assert found["exposed_communication_s"] > found["step_without_exchange_s"], "rank 0 waits"


def test_an_even_rank_waits_the_same_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 1):
        assert waits_of(monkeypatch, "even", rank, 2) == [0.15, 0.15]


def test_the_last_rank_alone_is_later_by_5_percent_of_the_even_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert waits_of(monkeypatch, "one_slower_5_percent", 0, 1) == [0.15]
    (late,) = waits_of(monkeypatch, "one_slower_5_percent", 1, 1)
    assert 1 + late == pytest.approx(1.05 * 1.15)
    assert waits_of(monkeypatch, "loader_on_one", 0, 1) == [0.15]
    (loading,) = waits_of(monkeypatch, "loader_on_one", 1, 1)
    assert 1 + loading == pytest.approx(1.2 * 1.15)


def test_jitter_is_the_ranks_own_and_costs_what_the_larger_of_two_draws_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = (waits_of(monkeypatch, "jitter", rank, 20_000) for rank in (0, 1))
    assert min(one) >= 0
    spread = 0.05 * 1.15
    for draws in (one, other):
        assert statistics.mean(draws) == pytest.approx(0.15, rel=0.02)
        assert statistics.stdev(draws) == pytest.approx(spread, rel=0.03)
    larger = statistics.mean(map(max, one, other))
    assert larger - 0.15 == pytest.approx(spread / math.sqrt(math.pi), rel=0.05)
    assert waits_of(monkeypatch, "jitter", 0, 5) == one[:5], "the same in every launch"


def test_names_the_slowest_of_many() -> None:
    found = straggler.slowest_of([1.0, 1.0, 1.05, 0.98, 1.0])
    assert found["slowest_rank"] == 2
    assert found["slowest_over_median"] == pytest.approx(1.05)
    assert (found["slowest_own_s"], found["fastest_own_s"]) == (1.05, 0.98)


def test_a_loop_keeps_a_processor_busy_as_long_as_it_should() -> None:
    begin_s = straggler.monotonic()
    straggler.spinner(torch.device("cpu"))(0.02)
    assert straggler.monotonic() - begin_s >= 0.02
