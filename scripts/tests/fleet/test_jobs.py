"""Jobs end by themselves, at their limit, or with the call that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpulift.fleet import jobs
from gpulift.fleet.jobs import IN_OWN, IN_SHARED, Answer, Job
from gpulift.fleet.logs import MOST_LETTERS
from gpulift.ground.errors import INTERRUPTED, GpuliftError
from gpulift.ground.signals import Signals
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

LONG_S = 600.0
INTERRUPTED_CALL = """
import sys
from pathlib import Path
from gpulift.fleet.jobs import Job, run_all
from gpulift.ground.entry import call, make_app
app = make_app()
@app.command()
def work(folder: Path) -> None:
    command = ["sh", "-c", f"echo $$ > {folder}/pid; sleep 600"]
    run_all([Job("n1", folder, [], [command])], 1, 600, print)
sys.exit(call(app, sys.argv[1:]))
"""


def answers(folder: Path, *scripts: Sequence[str], limit_s: float = LONG_S) -> list[Answer]:
    """Of jobs, each of several programs, in the order in which they end."""
    made = [
        Job(str(number), folder / str(number), [], [["sh", "-c", one] for one in programs])
        for number, programs in enumerate(scripts)
    ]
    told: list[Answer] = []
    jobs.run_all(made, 2, limit_s, lambda job, answer: told.append(answer))
    return told


@pytest.mark.parametrize(
    ("programs", "answer"),
    [
        (["echo gpulift: exit code 0 >&2"], Answer(0)),
        (["echo gpulift: exit code 5 >&2; exit 5"], Answer(5)),
        (["echo gpulift: exit code 0", "echo gpulift: exit code 1"], Answer(1)),
        # a rank that was killed says nothing
        (["echo gpulift: exit code 0; exit 137"], Answer(137)),
        (["exit 0"], Answer(None, "nothing was said")),
        (["printf 'gpulift: exit code %05000d' 1"], Answer(None, "0" * MOST_LETTERS)),
        (["echo queued; echo 'srun: no such node'; exit 1"], Answer(None, "srun: no such node")),
        (["echo gpulift: error: cannot; echo srun: error: n1"], Answer(None, "cannot")),
        (["echo gpulift: on; echo srun: error: n1; echo ended"], Answer(None, "srun: error: n1")),
        (["head -c 9999 /dev/zero | tr '\\0' x"], Answer(None, "x" * MOST_LETTERS)),
    ],
)
def test_what_a_command_ended_with(tmp_path: Path, programs: Sequence[str], answer: Answer) -> None:
    assert answers(tmp_path, programs) == [answer]


def test_two_run_at_once_and_not_three(tmp_path: Path) -> None:
    # each of two waits for the other; the third begins when one of them has ended
    meets = "touch {0}; while [ ! -e {1} ]; do sleep 0.01; done; echo gpulift: exit code 0"
    first, second = tmp_path / "first", tmp_path / "second"
    last = f"[ -e {first} ] && echo gpulift: exit code 0"
    told = answers(tmp_path, [meets.format(first, second)], [meets.format(second, first)], [last])
    assert told == [Answer(0)] * 3


def test_a_job_that_never_answers_is_ended_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ENDED_WITHIN_S", 0.2)
    monkeypatch.setattr(jobs, "LOOK_S", 0.05)
    deaf = "trap '' TERM; echo queued; echo $$ > pid; while :; do sleep 0.1; done"
    (answer,) = answers(tmp_path, [f"cd {tmp_path}; {deaf}"], limit_s=3.0)  # to become deaf
    assert answer == Answer(None, "has not answered within 3 s: queued")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text("utf-8")), 0)


def test_what_ended_before_it_was_looked_at_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(pid := tmp_path / "pid")  # of any child there may be one of an earlier test, too

    def until_ended(signals: Signals, limit_s: float) -> None:
        os.waitid(os.P_PID, int(pid.read_text("utf-8")), os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(Signals, "wait", until_ended)
    script = f"echo $$ > {pid}; echo gpulift: exit code 0"
    assert answers(tmp_path, [script], limit_s=1e-6) == [Answer(0)]


def test_what_cannot_be_kept_ends_all(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    other = f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600"
    first = f"while [ ! -e {pid} ]; do sleep 0.01; done"
    made = [Job(one, tmp_path / one[:4], [], [["sh", "-c", one]]) for one in (first, other)]

    def full(job: Job, answer: Answer) -> None:
        raise GpuliftError("no space left")

    with pytest.raises(GpuliftError, match="no space left"):
        jobs.run_all(made, 2, LONG_S, full)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text("utf-8")), 0)


def test_an_interrupt_ends_all(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_CALL, tmp_path],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "scripts")},
        text=True,
    ) as process:
        pid = int((tmp_path / "pid").read_text("utf-8"))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == INTERRUPTED
    assert "what is measured is kept" in said
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_folder_that_the_node_lacks_is_named(tmp_path: Path) -> None:
    command = ["sh", "-c", IN_SHARED, str(tmp_path / "nowhere"), "true"]
    told: list[Answer] = []
    job = Job("n1", tmp_path / "here", [], [command])
    jobs.run_all([job], 1, LONG_S, lambda job, answer: told.append(answer))
    assert told[0].code is None
    assert "nowhere is not on this node" in told[0].why


@pytest.mark.parametrize("script", [IN_SHARED, IN_OWN])
def test_an_exit_code_is_told_behind_a_line_that_did_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = ["sh", "-c", script, str(tmp_path), "sh", "-c", "printf half >&2; exit 5"]
    told: list[Answer] = []
    job = Job("n1", tmp_path / "n1", [], [command])
    jobs.run_all([job], 1, LONG_S, lambda job, answer: told.append(answer))
    assert told == [Answer(5, own=told[0].own)]


def test_the_first_rank_alone_keeps_its_results_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    ranks = [["env", f"RANK={rank}", "sh", "-c", IN_OWN, "sh", "true"] for rank in range(2)]
    told: list[Answer] = []
    job = Job("n1", tmp_path / "n1", [], ranks)
    jobs.run_all([job], 1, LONG_S, lambda job, answer: told.append(answer))
    (answer,) = told
    assert [str(kept) for kept in (tmp_path / "own").iterdir()] == [answer.own]
    assert Path(answer.own).stat().st_mode & 0o77 == 0, "nobody else's"


@pytest.mark.parametrize("name", ["log.txt", "verdicts.txt"])
def test_a_log_that_became_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    other = tmp_path / "profile"
    other.write_text("of the operator\n", encoding="utf-8")
    folder = tmp_path / "n1"
    folder.mkdir()
    (folder / name).symlink_to(other)
    job = Job("n1", folder, [], [["sh", "-c", "echo planted; echo planted >&2"]], "verdicts.txt")
    with pytest.raises(GpuliftError, match="n1: cannot be written"):
        jobs.run_all([job], 1, LONG_S, lambda job, answer: None)
    assert other.read_text("utf-8") == "of the operator\n"


def test_what_a_node_runs_ends_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    begun = tmp_path / "begun"
    command = ["sh", "-c", IN_OWN, "sh", "sh", "-c", f"touch {begun}; sleep 600"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        while not begun.exists():
            time.sleep(0.01)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == -signal.SIGTERM
    assert not list((tmp_path / "own").iterdir())


def test_a_folder_that_cannot_be_written_ends_all(tmp_path: Path) -> None:
    (tmp_path / "0").touch()
    with pytest.raises(GpuliftError, match="cannot be written"):
        answers(tmp_path, ["exit 0"])
