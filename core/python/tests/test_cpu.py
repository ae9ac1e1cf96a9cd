"""Processor time of an arm's processes, with fakes in place of the kernel."""

from __future__ import annotations

import time

import gpulift_cpu
import pytest
from gpulift_cpu import CpuMeter


class Machine:
    """Its processes, by the number of each: what they used so far, and their ended children."""

    def __init__(self) -> None:
        self.own_s = 5.0
        self.ended_s = 2.0
        self.clocks_s = {11: 3.0, 12: 1.0}
        self.waited_s = {11: 0.5, 12: 0.0}
        self.looks = 0

    def descendants(self) -> list[int]:
        """A look takes milliseconds."""
        self.looks += 1
        return list(self.clocks_s)

    def end(self, process: int) -> None:
        """As of a child that is waited for."""
        self.ended_s += self.clocks_s.pop(process) + self.waited_s.pop(process)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(time, "process_time", lambda: made.own_s)
    monkeypatch.setattr(gpulift_cpu, "_descendants", made.descendants)
    monkeypatch.setattr(gpulift_cpu, "_has_children", lambda: bool(made.clocks_s))
    monkeypatch.setattr(gpulift_cpu, "_ended_s", lambda: made.ended_s)
    monkeypatch.setattr(gpulift_cpu, "_clock_s", lambda process: made.clocks_s.get(process))
    monkeypatch.setattr(gpulift_cpu, "_waited_s", lambda process: made.waited_s.get(process, 0.0))
    return made


def test_a_restart_looks_for_nothing_and_counts_from_there(machine: Machine) -> None:
    meter = CpuMeter()
    machine.own_s += 1.0
    machine.clocks_s[11] += 10.0
    meter.restart()
    assert machine.looks == 1
    machine.own_s += 0.25
    machine.clocks_s[11] += 4.0
    machine.clocks_s[12] += 8.0
    machine.waited_s[12] += 0.5
    assert meter.used_s() == 12.75


def test_a_restart_looks_again_where_a_process_has_ended(machine: Machine) -> None:
    meter = CpuMeter()
    machine.end(11)
    machine.clocks_s[13], machine.waited_s[13] = 7.0, 0.0
    meter.restart()
    assert machine.looks == 2
    machine.clocks_s[13] += 1.0
    assert meter.used_s() == 1.0


def test_what_has_begun_since_the_last_look_counts_whole(machine: Machine) -> None:
    meter = CpuMeter()
    machine.clocks_s[13], machine.waited_s[13] = 7.0, 0.0
    meter.restart()
    assert meter.used_s() == 7.0


def test_one_that_ends_in_the_window_counts_with_what_it_did_there(machine: Machine) -> None:
    meter = CpuMeter()
    meter.restart()
    machine.clocks_s[11] += 1.0
    machine.end(11)
    assert meter.used_s() == 1.0
    del machine.clocks_s[12], machine.waited_s[12]  # nobody waited for it: its past goes along
    assert meter.used_s() == 0.0


def test_without_children_there_is_the_process_alone(machine: Machine) -> None:
    machine.clocks_s.clear()
    meter = CpuMeter()
    machine.own_s += 1.0
    meter.restart()
    machine.own_s += 0.5
    assert meter.used_s() == 0.5
    assert machine.looks == 0
