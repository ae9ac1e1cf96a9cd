"""Hosts that vary, steps that the host paces, and how much time all of it may take."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as changed
from rich.console import Console

torch = pytest.importorskip("torch")

from gpulift_probe import windows  # noqa: E402

from gpulift.advise import noise, process, rounds  # noqa: E402
from gpulift.advise.judge import advise  # noqa: E402
from gpulift.advise.plan import require_known  # noqa: E402
from gpulift.advise.process import Command, Ran  # noqa: E402
from gpulift.advise.progress import Progress  # noqa: E402
from gpulift.advise.rounds import Asked  # noqa: E402
from gpulift.advise.table import print_advice  # noqa: E402
from tests.advise import made  # noqa: E402
from tests.advise.test_windows import Arm, Windowed  # noqa: E402

JOB = Command(("train",), {}, 60.0)
NOISY = ({"compile": 1.0, "fused": 1.3}, {"compile": 1.69, "fused": 0.8})


def shown(replays: Any, launch_s: float | None = 30.0) -> list[str]:
    """What the terminal has."""
    file = io.StringIO()
    answer = advise(replays, [], [], [], launch_s=launch_s)
    print_advice(answer, Console(file=file, width=200, highlight=False))
    return file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("logs", "more"),
    [((0.0, 0.5), 9), ((0.1, 0.5, 0.3), 2), ((0.3, 0.31), 1), ((0.0,), None)],
)
def test_how_many_more_launches(logs: tuple[float, ...], more: int | None) -> None:
    found = noise.wide(logs)
    if len(logs) < 2:
        assert found is None
        return
    assert found is not None
    assert found.more == more
    spread, mean = torch.tensor(logs).std().item(), sum(logs) / len(logs)
    assert noise.half_width(spread, len(logs) + found.more) <= mean


def test_a_host_that_varies_is_told_in_one_line() -> None:
    lines = shown([made.replay(gains) for gains in NOISY])
    told = [line for line in lines if "varies" in line]
    assert len(told) == 1
    assert told[0].startswith("this host varies by 4")
    assert "compile measured 1.30×, needs 9 more launches, about 4 min" in told[0]
    assert told[0].endswith("; likewise fused 1.02×")
    assert not any("undecided" in line for line in lines)
    assert lines[-1] == "do: nothing is shown to help"
    assert "min" not in " ".join(shown([made.replay(gains) for gains in NOISY], None)[-3:])


@pytest.mark.parametrize(("issued", "told"), [(0.97, True), (0.9, False)])
def test_a_step_that_the_host_paces(issued: float, told: bool) -> None:
    facts = changed(made.FACTS, issued=1234)
    lines = shown([made.replay({"fused": 1.2}, issued=issued, facts=facts)] * 2)
    pace = [line for line in lines if "sets the pace" in line]
    assert bool(pace) is told
    if told:
        assert "97 % of the step, 1,234 operators of torch" in pace[0]
        assert pace[0].endswith("what needs fewer launches: fused 1.20×")
        assert lines.index(pace[0]) < lines.index(next(one for one in lines if "step 1" in one))
    alone = made.replay({}, issued=1.0, device="cpu")
    assert not any("sets the pace" in line for line in shown([alone]))


def test_a_host_that_varies_gets_more_windows(clock: SimpleNamespace) -> None:
    own = Windowed(clock, windows_s=1000.0)
    for taken, _ in enumerate(own.windows([Arm("a", own.log)])):
        clock.now_s += 0.1 * (1 + 0.5 * (taken % 7 == 0))
    assert len(own.told_messages.of("window")) == 4 * windows.MOST_BLOCKS


class Started:
    """In place of processes: each takes 20 s, of which windows take 6."""

    def __init__(self) -> None:
        self.modes: list[str] = []

    def __call__(self, _: Any, setting: Any, number: int, plan: Mapping[str, Any], *__: Any) -> Ran:
        self.modes.append(plan["mode"])
        if plan["mode"] == "turn":
            return Ran(made.turn(setting.name, number, 0.1), 14.0, 0)
        windows_s = sum(one.seconds for one in made.replay({"fused": 1.25}).windows)
        said = replace(made.replay({"fused": 1.25}, wait_share=0.3), turn=number)
        return Ran(said, 14.0 + windows_s, 0)


@pytest.mark.parametrize(
    ("within_s", "only", "replays", "turns"),
    [
        (1.0, "fused", 2, 0),  # an interval needs two
        (200.0, "fused", 7, 2),  # and the rest for what helps, together
        (400.0, "fused,workers", 7, 16),
        (100.0, "fused,workers", 2, 2),
    ],
)
def test_processes_until_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    within_s: float,
    only: str,
    replays: int,
    turns: int,
) -> None:
    started = Started()
    monkeypatch.setattr(process, "run", started)
    asked = Asked(JOB, only=tuple(only.split(",")), within_s=within_s)
    found = rounds.measure(asked, Progress(shows_output=True))
    assert (started.modes.count("replay"), started.modes.count("turn")) == (replays, turns)
    assert found.seconds <= max(within_s, 2 * 23.0)
    err = capsys.readouterr().err
    assert "so far, process 1: input: an infinitely fast loader" in err
    assert "fused 1.25×" in err
    left_out = [one.name for one in found.settings if one.why_not == rounds.NO_TIME]
    assert left_out == (["workers_8"] if within_s == 100.0 else [])


def test_names_of_what_ranks_have() -> None:
    require_known(["exchange", "no_sync", "reshard", "bucket", "bf16_gradients", "static_graph"])
