"""Ranks on two hosts, which are network namespaces of this one: times, clocks, faults."""

from __future__ import annotations

import subprocess
import time
from statistics import median

import pytest

from gpulift.records.model import Arm, Record
from gpulift.records.read import read_results
from tests.ranks.conftest import BUILD, Host, Ranks, ended

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(
        not (BUILD / "gpulift-bench").is_file(), reason="gpulift-bench is not built"
    ),
]
pytest.importorskip("torch")

FINE = "does:fine"
BYTES = 1_000_000  # that each of two ranks sends in an all-reduce of as many
A_MINUTE_AHEAD = ("unshare", "-T", "--monotonic", "60", "--fork")


def record_of(ranks: Ranks, does: str = "fine") -> Record:
    (run,) = read_results([ranks.folder / "out"])
    (record,) = (one for one in run.records if one.case["does"] == does)
    return record


def arm_of(record: Record, name: str) -> Arm:
    assert record.outcome == "ok", record.reason
    (arm,) = (arm for arm in record.arms if arm.name == name)
    return arm


def step_s(arm: Arm) -> float:
    assert arm.windows is not None
    return median(arm.windows.host_s) / arm.steps_per_window


def shape(hosts: tuple[Host, Host], *words: str) -> None:
    """What leaves each of the two; skips where this kernel shapes nothing."""
    for host in hosts:
        command = [*host.entering, "tc", "qdisc", "replace", "dev", "ends", "root", *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            pytest.skip("there is no program `tc` to shape links with")
        if done.returncode != 0:
            pytest.skip(f"no link can be shaped here: {done.stderr.strip()}")


def require_facts(ranks: Ranks, record: Record) -> None:
    """Of hosts and fabric, and nothing that is private."""
    assert record.case_id == "ranks:2/does:fine/nodes:2"
    given = record.context.ranks
    assert given is not None
    assert (given.ranks, given.nodes, given.launcher) == (2, 2, "environment")
    assert [host["fabric"]["virtual"] for host in given.hosts] == [True, True]
    assert [host["ranks"] for host in given.hosts] == [1, 1]
    text = next((ranks.folder / "out").glob("*.jsonl")).read_text()
    assert not any(private in text for private in (ranks.address, str(ranks.folder)))


def test_what_ranks_lose_follows_the_link(two_hosts: Ranks, hosts: tuple[Host, Host]) -> None:
    found_s = {}
    for rate in (50, 200):
        shape(hosts, "tbf", "rate", f"{rate}mbit", "burst", "64kb", "latency", "400ms")
        run = Ranks(two_hosts.folder / str(rate), hosts, two_hosts.address)
        run.folder.mkdir()
        (run.folder / "works").symlink_to(two_hosts.folder / "works")
        first, other = run.run(FINE, variables={"TEST_BYTES": str(BYTES)})
        assert (first.code, other.code) == (0, 0), first.said + other.said
        record = record_of(run)
        require_facts(run, record)
        found_s[rate] = step_s(arm_of(record, "pair")) - step_s(arm_of(record, "alone"))
        assert 0.9 < found_s[rate] / (8 * BYTES / (rate * 1e6)) < 2, "of what the link needs"
    assert 2.5 < found_s[50] / found_s[200] < 5


def test_long_ways_make_windows_longer(two_hosts: Ranks, hosts: tuple[Host, Host]) -> None:
    shape(hosts, "netem", "delay", "1ms")
    first, _ = two_hosts.run(FINE)
    assert first.code == 0, first.said
    arm = arm_of(record_of(two_hosts), "pair")
    assert arm.windows is not None
    assert arm.metrics["clock_error_s"] > 1e-3, "half of the round trip"
    assert min(arm.windows.host_s) > 100 * arm.metrics["clock_error_s"]


def test_a_clock_that_is_off_by_a_minute_is_told(two_hosts: Ranks) -> None:
    if subprocess.run([*A_MINUTE_AHEAD, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespace can be made here")
    begun_s = time.monotonic()
    ahead = two_hosts.start(1, FINE, wrapper=A_MINUTE_AHEAD)
    first, _ = ended(two_hosts.start(0, FINE)), ended(ahead)
    assert first.code == 0, first.said
    arm = arm_of(record_of(two_hosts), "pair")
    assert arm.windows is not None
    assert max(arm.windows.host_s) < 30
    assert all(begun_s < start_s < time.monotonic() for start_s in arm.windows.start_s)


def reasons(ranks: Ranks, said: str) -> dict[str, Record]:
    (run,) = read_results([ranks.folder / "out"])
    assert run.records, said
    return {str(one.case["does"]): one for one in run.records}


def test_a_rank_that_is_lost_ends_its_case_and_no_other(two_hosts: Ranks) -> None:
    first, other = two_hosts.run("does:(ends|fine)")
    assert (first.code, other.code) == (1, 1), first.said + other.said
    by_manner = reasons(two_hosts, first.said)
    assert by_manner["fine"].outcome == "ok", first.said
    assert by_manner["ends"].outcome == "error"
    assert "rank 1 (node 1) of arm pair ended with signal 9" in by_manner["ends"].reason


def test_a_rank_that_hangs_is_not_waited_for(two_hosts: Ranks) -> None:
    first, other = two_hosts.run("does:hangs")
    told_within_s = time.time() - float((two_hosts.folder / "lost_at").read_text())
    assert (first.code, other.code) == (1, 1), first.said + other.said
    assert "nothing came from rank 1 (node 1) of arm pair" in first.said
    assert told_within_s < 30


def test_a_host_that_is_lost_is_named_in_all_further_cases(two_hosts: Ranks) -> None:
    first, other = two_hosts.run("does:(dies|fine)", "--seed", "2")  # which begins with dies
    assert (first.code, other.code) == (1, -9), first.said
    by_manner = reasons(two_hosts, first.said)
    for record in by_manner.values():
        assert "rank 1 (node 1) of arm pair" in record.reason
    assert "no longer answers" in by_manner["fine"].reason
