"""Pairs of runs of a command: their order, what fails, what they leave behind."""

from __future__ import annotations

import errno
import math
import os
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.gate import instructions
from gpulift.gate.evidence import (
    BASE,
    CASES,
    COMMANDS,
    ERROR,
    HEAD,
    NO_BASE,
    NULL,
    PLANTED,
    Row,
    read_launches,
)
from gpulift.gate.jobs import Job, Jobs, JobSide, RunFailed, environment_of, run_once
from gpulift.gate.measure import Batch, Budget, BudgetOver
from gpulift.gate.metrics import Metric, NoNumberError, Reading, Untimed, read_all
from gpulift.gate.pairs import Pair, PairedLaunch, Run, read_launch, write_launch
from gpulift.ground.errors import GpuliftError, RecordError

ROW = Row("x", "", "loss")
METRICS = (Metric(r"stdout:loss (\S+)(?P<unit> .*)?"),)


def job(script: str, limit_s: float = 30.0, slowed: str = "") -> Job:
    """A shell script, which prints its number."""
    commands = [("sh", "-c", one) if one else () for one in (script, slowed)]
    return Job("x", commands[0], lambda run: read_all(METRICS, run), limit_s, commands[1])


def sides(folder: Path) -> tuple[JobSide, JobSide]:
    """Folders whose `speed` holds 1 and 2."""
    made = []
    for name, speed in ((BASE, "1.0"), (HEAD, "2.0")):
        (folder / name).mkdir()
        (folder / name / "speed").write_text(speed, "utf-8")
        made.append(JobSide(name, folder / name, {"PATH": os.environ["PATH"]}))
    return made[0], made[1]


def batch(folder: Path, series: str = CASES, launches: int = 2, stage: int = 1) -> Batch:
    who = {CASES: (BASE, HEAD), NULL: (BASE, BASE), PLANTED: (HEAD, HEAD)}[series]
    planted = 0.5 if series == PLANTED else 0.0
    return Batch(folder, series, stage, [ROW], range(launches), who, planted, 1, COMMANDS)


def launched(folder: Path, one: Job, pairs: int = 1, **more: Any) -> list[PairedLaunch]:
    jobs = Jobs(one, *sides(folder), lambda _: None, pairs)
    folders = jobs.take(batch(folder / "gate", **more), Budget(None, 1.0))
    return [launch for each in folders if (launch := read_launch(each))]


def taken(folder: Path, one: Job, **more: Any) -> list[Pair]:
    return [pair for launch in launched(folder, one, **more) for pair in launch.pairs]


SPEED = 'echo "loss $(cat speed)"'


def test_base_and_head_begin_in_turns_and_the_other_way_in_the_second_stage(tmp_path: Path) -> None:
    pairs = taken(tmp_path, job(SPEED), launches=4)
    assert [pair.order[0] for pair in pairs] == [BASE, HEAD, BASE, HEAD]
    (tmp_path / "more").mkdir()
    second = taken(tmp_path / "more", job(SPEED), launches=4, stage=2)
    assert [pair.order[0] for pair in second] == [pair.order[1] for pair in pairs]


def test_a_pair_says_how_much_worse_the_head_is(tmp_path: Path) -> None:
    (pair, _) = taken(tmp_path, job(SPEED))
    assert (pair.base.values["loss"].value, pair.head.values["loss"].value) == (1.0, 2.0)
    assert pair.log_ratio("loss") == pytest.approx(math.log(2))
    more = Pair(
        (BASE, HEAD),
        Run({"rate": Reading(1.0, higher=True)}),
        Run({"rate": Reading(2.0, higher=True)}),
    )
    assert more.log_ratio("rate") == pytest.approx(-math.log(2))


def test_base_meets_itself_and_a_slow_down_is_planted_in_the_numbers(tmp_path: Path) -> None:
    null = taken(tmp_path, job(SPEED), series=NULL)
    assert {pair.head.values["loss"].value for pair in null} == {1.0}
    (tmp_path / "p").mkdir()
    planted = launched(tmp_path / "p", job(SPEED), series=PLANTED)
    assert {one.pairs[0].head.values["loss"].value for one in planted} == {3.0}
    assert {one.planted for one in planted} == {0.5}


def test_a_slow_down_is_planted_in_the_work_where_a_command_does_that(tmp_path: Path) -> None:
    planted = launched(tmp_path, job(SPEED, slowed="echo loss 9"), series=PLANTED)
    assert {one.pairs[0].head.values["loss"].value for one in planted} == {9.0}
    assert {one.planted for one in planted} == {None}


def test_a_launch_of_several_pairs_is_their_median(tmp_path: Path) -> None:
    # The third run of the head is disturbed.
    counted = 'echo x >> log; if [ "$(wc -l < log)" = 3 ]; then echo loss 90; exit; fi'
    script = f"if [ $PWD = {tmp_path}/head ]; then {counted}; fi; {SPEED}"
    (launch,) = launched(tmp_path, job(script), pairs=5, launches=1)
    assert [pair.order[0] for pair in launch.pairs] == [BASE, HEAD, BASE, HEAD, BASE]
    assert max(pair.head.values["loss"].value for pair in launch.pairs) == 90.0
    assert launch.log_ratio("loss") == pytest.approx(math.log(2))


def test_a_pair_that_fails_once_is_taken_again_and_said(tmp_path: Path) -> None:
    once = f"if [ ! -e ok ]; then touch ok; echo broke >&2; exit 3; fi; {SPEED}"
    script = f"if [ $PWD = {tmp_path}/head ]; then {once}; else {SPEED}; fi"
    launches = launched(tmp_path, job(script))
    (dropped,) = [one for launch in launches for one in launch.dropped]
    assert (dropped.side, dropped.reason) == (HEAD, "ended with code 3: broke")
    assert all(launch.log_ratio("loss") > 0 for launch in launches)
    assert [len(launch.pairs) for launch in launches] == [1, 1]


SPIN = f"'{sys.executable}' -c 'import time\nwhile time.process_time() < 0.2: pass; '"


@pytest.mark.parametrize(
    ("script", "least_s", "most_s"),
    [
        (SPIN, 0.2, math.inf),
        (f"{SPIN} & {SPIN} & wait", 0.4, math.inf),
        (f"setsid sh -c \"({SPIN}; touch done) &\"; while [ ! -e done ]; do sleep 0.01; done",
         0.2, math.inf),
        ("sleep 0.5", 0.0, 0.4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("source", ["cpu", "instructions"])
def test_cpu_time_and_instructions_are_of_all_that_a_run_starts_and_of_no_waiting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    script: str,
    least_s: float,
    most_s: float,
) -> None:
    counted = source == "instructions"
    # What a kernel counts without a counter of the processor, in virtual machines, too: ns of CPU.
    monkeypatch.setattr(instructions, "HARDWARE", 1)
    monkeypatch.setattr(instructions, "INSTRUCTIONS_RETIRED", 1)
    if counted:
        require_counter()
    command = ("sh", "-c", script)
    metrics = (Metric(source),)
    asked = Job("x", command, lambda run: read_all(metrics, run), 30.0, counted=counted)
    one = run_once(asked, sides(tmp_path)[0], tmp_path / "out", math.inf).values[source]
    assert least_s <= one.value / (1e9 if counted else 1) <= most_s
    assert one.unit == {"cpu": "CPU s", "instructions": "instructions"}[source]


def require_counter() -> None:
    """Skips where this kernel or container forbids all counters, and says what forbids it."""
    try:
        with instructions.counting():
            pass
    except GpuliftError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("error", "paranoid", "said"),
    [
        (errno.EACCES, "4", "(kernel.perf_event_paranoid is 4): sudo sysctl"),
        (errno.EPERM, "2", "this container forbids it: --cap-add PERFMON allows it; or take"),
        (errno.EPERM, None, "this container forbids it"),
        (errno.ENOENT, "2", "this machine has no counter of them, as most virtual ones; or take"),
        (errno.ENOSYS, None, "this machine has no counter of them"),
    ],
)
def test_instructions_that_cannot_be_counted_are_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, paranoid: str | None, said: str
) -> None:
    monkeypatch.setattr(instructions, "PARANOID", tmp_path / "paranoid")
    if paranoid:
        (tmp_path / "paranoid").write_text(f"{paranoid}\n", "ascii")
    with pytest.raises(GpuliftError, match=r"^--metric instructions: ") as refused:
        raise instructions.refusal(error)
    assert said in str(refused.value)
    assert str(refused.value).endswith("--metric cpu")


def test_a_processor_whose_call_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "CALLS", {})
    with pytest.raises(GpuliftError, match="not known how to count"), instructions.counting():
        raise AssertionError


def test_a_count_of_a_part_of_a_run_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "counter").write_bytes(struct.pack("QQQ", 70, 1000, 250))
    counter = os.open(tmp_path / "counter", os.O_RDONLY)
    with pytest.raises(NoNumberError, match="counted for 25 % of the run"):
        instructions.read(counter)
    os.close(counter)


@pytest.mark.parametrize(("broken", "outcome"), [(BASE, NO_BASE), (HEAD, ERROR)])
def test_a_side_that_goes_on_failing_has_no_value(
    tmp_path: Path, broken: str, outcome: str
) -> None:
    script = f"if [ $PWD = {tmp_path}/{broken} ]; then exit 3; fi; {SPEED}"
    jobs = Jobs(job(script), *sides(tmp_path), lambda _: None)
    folders = jobs.take(batch(tmp_path / "gate"), Budget(None, 1.0))
    (launch,) = read_launches(folders[-1], COMMANDS, [ROW])[ROW]
    assert (launch.value, launch.outcome) == (None, outcome)
    assert launch.reason == f"{broken}: ended with code 3"


def test_numbers_of_different_units_are_not_compared(tmp_path: Path) -> None:
    script = f'echo "loss 1 $([ $PWD = {tmp_path}/head ] && echo ms || echo s)"'
    jobs = Jobs(job(script), *sides(tmp_path), lambda _: None)
    folders = jobs.take(batch(tmp_path / "gate"), Budget(None, 1.0))
    (launch,) = read_launches(folders[0], COMMANDS, [ROW])[ROW]
    assert (launch.outcome, launch.reason) == (ERROR, "its unit is  ms and  s")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -9 $$", "ended with signal 9"),
        ("echo no >&2; exit 1", "ended with code 1: no"),
        ("echo why; echo no >&2; exit 1", "ended with code 1: why no"),
        ("echo nothing", "loss: "),
        ("echo loss 0", "loss: 0 is no number above 0"),
        ("echo loss nan", "loss: nan is no number above 0"),
        ("echo loss 1e400", "loss: inf is no number above 0"),
        ("sleep 60", "has not ended in 0.3 s (--timeout)"),
    ],
)
def test_a_run_that_fails_says_why(tmp_path: Path, script: str, said: str) -> None:
    base, _ = sides(tmp_path)
    with pytest.raises(RunFailed) as failed:
        run_once(job(script, 0.3 if script == "sleep 60" else 30), base, tmp_path / "out", math.inf)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("no-such-program", "is not on PATH"),
        ("./no-such-program", "No such file or directory"),
        ("python", "is not on PATH, where python3 is: name that"),
        ("speed", "is not on PATH, and ./speed is here: name that"),
        ("./folder", "is a folder"),
        ("./plain", "may not be executed: chmod +x ./plain"),
        ("./lost", "what its first line names behind #! is not there"),
        ("./text", "is no program: its first line has to begin with #! and an interpreter"),
    ],
)
def test_a_program_that_cannot_be_started_is_refused(
    tmp_path: Path, program: str, said: str
) -> None:
    base, _ = sides(tmp_path)
    (base.folder / "folder").mkdir()
    for name, text, mode in (
        ("plain", "#!/bin/sh\n", 0o644),
        ("lost", "#!/no/such/sh\n", 0o755),
        ("text", "echo 1\n", 0o755),
    ):
        (base.folder / name).write_text(text, "utf-8")
        (base.folder / name).chmod(mode)
    absent = Job("x", (program,), lambda _: {}, 1.0)
    path = f"{tmp_path}/bin:{os.environ['PATH']}" if program != "python" else f"{tmp_path}/bin"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    with pytest.raises(GpuliftError) as refused:
        run_once(absent, replace(base, environment={"PATH": path}), tmp_path / "out", math.inf)
    assert str(refused.value) == f"{program}: cannot be started: {said}"


def test_rows_without_a_number_and_processes_left_are_kept(tmp_path: Path) -> None:
    base, _ = sides(tmp_path)
    reads = Job(
        "x",
        ("sh", "-c", "sleep 60 &"),
        lambda _: {"a": Reading(1.0), "b": Untimed("broke", True)},
        9.0,
    )
    run = run_once(reads, base, tmp_path / "out", math.inf)
    assert run.untimed == {"b": Untimed("broke", True)}
    assert run.left in (("sleep",), ("sh",))  # of which it is the fork first
    launch = PairedLaunch((Pair((BASE, HEAD), run, run),))
    write_launch(tmp_path, launch)
    assert read_launch(tmp_path) == launch
    assert launch.failed("b") == (BASE, "broke")
    assert launch.failed("c") == (BASE, "did not say c")


def test_a_run_writes_to_a_file_that_is_new(tmp_path: Path) -> None:
    base, _ = sides(tmp_path)
    out = tmp_path / "out"
    out.write_text("old", "utf-8")
    writes = Job(
        "x",
        ("sh", "-c", "test ! -e {out} && echo new > {out}"),
        lambda run: {"row": Reading(float(len(run.out.read_text("utf-8"))))},
        9.0,
    )
    assert run_once(writes, base, out, math.inf).values["row"].value == 4.0


def test_the_budget_ends_a_run(tmp_path: Path) -> None:
    base, _ = sides(tmp_path)
    with pytest.raises(BudgetOver):
        run_once(job("sleep 60"), base, tmp_path / "out", 0.1)


def test_a_pair_that_was_broken_off_is_none(tmp_path: Path) -> None:
    assert read_launch(tmp_path) is None
    assert read_launches(tmp_path, COMMANDS, [ROW]) == {}


def test_a_launch_is_kept_whole_and_a_broken_file_is_refused(tmp_path: Path) -> None:
    pair = Pair((HEAD, BASE), Run({"a": Reading(1.5, "s")}, 2.0), Run(reason="broke"))
    launch = PairedLaunch((pair,), 1.0)  # the most that is planted
    write_launch(tmp_path, launch)
    assert read_launch(tmp_path) == launch
    for text, said in (
        ('{"pairs": [{"order": [], "base": {"seconds": -1}, "head": {}}]}', r"base\.seconds"),
        ('{"pairs": []}', "pairs is empty"),
        ("{", "launch.json"),
    ):
        (tmp_path / "launch.json").write_text(text, "utf-8")
        with pytest.raises(RecordError, match=said):
            read_launch(tmp_path)


def test_a_side_of_another_python_finds_it_first() -> None:
    made = environment_of(Path("/v/bin/python"), {"PATH": "/usr/bin", "PYTHONHOME": "/x"})
    assert made == {"PATH": "/v/bin:/usr/bin", "VIRTUAL_ENV": "/v"}
    assert environment_of(None, {"A": "b"}) == {"A": "b"}
