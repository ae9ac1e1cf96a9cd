"""distributed/straggler: the late rank is named by its own times, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.distributed import Group, Replica  # noqa: E402
from technique_script import load, manifest  # noqa: E402
from testing.rank_group import RankGroup, altered  # noqa: E402

SCRIPT = Path(__file__).with_name("straggler.py")

straggler = load(__file__)
MANIFEST = manifest(__file__)
# So late that it shows on any machine.
SMALL = """
from gpulift_work import distributed

distributed.cores = lambda: 8
distributed.TIMED_GROUPS = technique.WATCHED_STEPS = 3
technique.SHARES = dict.fromkeys(technique.SHARES, 8)
"""
ALONE = Group(0, 1, torch.device("cpu"), 1)


@pytest.mark.parametrize(
    ("arm", "ranks"),
    [
        *((arm, 2) for arm in ("even", "one_slower_20_percent", "loader_on_one")),
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
    for prefix in ("", "forward_"):
        assert found[f"{prefix}slowest_own_s"] >= found[f"{prefix}fastest_own_s"] > 0
        if arm != "even":
            assert found[f"{prefix}slowest_rank"] == ranks - 1
            assert found[f"{prefix}last_over_others"] > 1.5
    if arm != "even":
        assert found["exposed_communication_s"] > found["step_without_exchange_s"], "rank 0 waits"


def test_the_last_rank_is_late_in_both_passes_by_the_share_of_its_arm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []
    monkeypatch.setattr(straggler, "products_on", lambda _: done.append)
    monkeypatch.setattr(straggler, "time_of_products", lambda *_: 0.2)  # a product is 1 ms
    replica = Replica("gpt_toy", ALONE, 7)
    straggler.slow_down(replica, 0.03)
    replica.step()
    assert done == [10, 20]
    shares = [straggler.SHARES[f"one_slower_{percent}_percent"] for percent in (2, 5, 20)]
    assert shares == [0.02, 0.05, 0.2]


def test_forward_passes_are_timed_apart_from_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter(float(place) for place in range(100))
    monkeypatch.setattr(straggler, "now", lambda _: next(places))
    replica = Replica("gpt_toy", ALONE, 7)
    assert straggler.forward_times(replica) == [1.0] * straggler.WATCHED_STEPS
    replica.step()
    assert next(places) == 2 * straggler.WATCHED_STEPS, "no later step is watched"


def test_names_the_slowest_of_many() -> None:
    found = straggler.slowest_of([1.0, 1.0, 1.05, 0.98, 1.0])
    assert found["slowest_rank"] == 2
    assert found["slowest_over_median"] == pytest.approx(1.05)
    assert (found["slowest_own_s"], found["fastest_own_s"]) == (1.05, 0.98)
    late = straggler.slowest_of([1.0, 1.02], "forward_")
    assert late["forward_last_over_others"] == pytest.approx(1.02)


def test_a_loop_keeps_a_processor_busy_as_long_as_it_should() -> None:
    begin_s = straggler.monotonic()
    straggler.keep_busy(0.02)
    assert straggler.monotonic() - begin_s >= 0.02
