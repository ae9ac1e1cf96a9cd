"""Candidates that break: the judge survives, says which side it was, and has the other's number."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpulift.gate.evidence import BASE, HEAD
from gpulift.judge import side
from gpulift.judge.roofs import Roofs
from gpulift.judge.run import refusal
from gpulift.judge.side import Limits, RefusedError
from gpulift.judge.task import Source, Task, read_task
from gpulift.judge.trials import Trials

pytestmark = pytest.mark.world

TASK = """
import numpy as np
SHAPES = {"n": (1000, 2000)}
ROUNDING = "float32"
def inputs(rng, n): return rng.random(n, np.float32)
def outputs(n): return [("float32", (n,))]
def terms(n): return 1
def reference(x): return 2.0 * x.astype(np.float64)
def work(n): return 8 * n, n
"""
SOUND = "def run(x): return x + x"
CALL_S = 3.0
FAR = Roofs(1e18, 1e18)

OUTPUT = "__import__('sys')._getframe(1).f_locals['held'][1]"
BREAKS = {
    "hangs": ("while True: pass", "hangs"),
    "sleeps": ("import time; time.sleep(1e6)", "hangs"),
    "stops itself": ("import os, signal; os.kill(0, signal.SIGSTOP)", "PermissionError"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "crashed: SIGSEGV"),
    "aborts": ("import os; os.abort()", "ended|crashed"),
    "ends": ("import os; os._exit(0)", "ended with code 0"),
    "exits": ("import sys; sys.exit('done')", "SystemExit: done"),
    "raises": ("raise ValueError('no \\x1b[31mred')", r"ValueError: no \\x1b\[31mred"),
    "forks": ("import os; os.fork()", "PermissionError|BlockingIOError"),
    "eats memory": ("held = bytearray(1 << 40)", "MemoryError"),
    "eats memory in pieces": (
        "import mmap\n held = []\n while True: held.append(mmap.mmap(-1, 1 << 24))",
        "OSError: .*Cannot allocate memory",
    ),
    "fills the disk": (
        "file = open('/tmp/filled', 'wb')\n while True: file.write(b'1' * (1 << 22))",
        "OSError: .*No space left",
    ),
    "writes outside": ("open('/etc/judged', 'w')", "Read-only file system|Permission denied"),
    "writes where it was called": (f"open({str(Path.home() / 'judged')!r}, 'w')", "OSError|Perm"),
    "kills its parent": ("import os; os.kill(os.getppid(), 9)", "PermissionError"),
    "kills all": ("import os; os.kill(-1, 9)", "PermissionError"),
    "opens a socket": ("import socket; socket.socket()", "PermissionError"),
    "traces": (
        "import ctypes\n if ctypes.CDLL(None).ptrace(0, 0, 0, 0) < 0: raise OSError('none')",
        "OSError: none",
    ),
    "maps its output": (f"import mmap; mmap.mmap({OUTPUT}, 0)", "PermissionError"),
    "opens its output anew": (
        f"import os; os.open('/proc/self/fd/%d' % {OUTPUT}, os.O_RDWR)",
        "PermissionError",
    ),
    "takes a right to its output": (f"import os; os.fchmod({OUTPUT}, 0o777)", "PermissionError"),
    "keeps memory in a file of no folder": (
        "import os; os.memfd_create('kept')",
        "PermissionError",
    ),
    "keeps memory of System V": (
        "import ctypes\n if ctypes.CDLL(None).shmget(0, 4096, 0o600) < 0: raise OSError('none')",
        "OSError: none",
    ),
    "starts threads without end": (
        "import threading, time\n"
        " while True: threading.Thread(target=time.sleep, args=(99,)).start()",
        "can't start new thread|MemoryError|crashed|hangs",
    ),
    "becomes root": ("import os; os.setuid(0)\n open('/etc/shadow', 'a')", "Error"),
    "returns nothing": ("return None", "returns object"),
    "returns two": ("return x, x", "returns 2 outputs"),
    "returns another type": ("return (x + x).astype('float64')", "returns float64"),
    "changes its input": ("x += x\n return x", "read-only"),
}

START = "threading.Thread(target={}, daemon=True).start()"
ALL_THREADS = (
    "import threading\nthreading.stack_size(1 << 16)\ntry:\n"
    f" while True: {START.format('threading.Event().wait')}\nexcept RuntimeError: pass\n"
)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    file = tmp_path_factory.mktemp("task") / "double.py"
    file.write_text(TASK, encoding="utf-8")
    return read_task(file)


def trials(task: Task, head: str, base: str = SOUND, roofs: Roofs = FAR) -> Trials:
    sources = {BASE: Source(BASE, BASE, base.encode()), HEAD: Source(HEAD, HEAD, head.encode())}
    return Trials(task, sources, roofs, Limits(CALL_S))


def states(one: side.Side) -> list[str]:
    return [file.read_text().rpartition(") ")[2][0] for file in one._threads.glob("*/stat")]


def refused(found: Trials) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        found.launch()
    return caught.value


@pytest.mark.parametrize("name", BREAKS)
def test_a_head_that_breaks_is_named_and_the_base_stands(task: Task, name: str) -> None:
    body, reason = BREAKS[name]
    found = trials(task, f"def run(x):\n {body}")
    before = len(os.listdir("/proc/self/fd"))
    error = refused(found)
    said = refusal(found, error)
    assert error.side == HEAD
    assert re.search(reason, error.reason), error.reason
    assert said.exit_code == 1
    assert said.other == BASE
    assert 0 < (said.other_s or 0) < CALL_S
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_base_that_breaks_is_nothing_to_compare_with(task: Task) -> None:
    found = trials(task, SOUND, "def run(x): return x[:1]")
    said = refusal(found, refused(found))
    assert (said.side, said.other, said.exit_code) == (BASE, HEAD, 4)
    assert said.other_s


def test_two_that_break_leave_no_number(task: Task) -> None:
    found = trials(task, "import os; os._exit(3)", "raise ValueError")
    said = refusal(found, refused(found))
    assert said.other_s is None
    assert said.line.endswith("is refused, too")


def test_a_gigabyte_of_prints_is_its_own_time(task: Task) -> None:
    text = "for _ in range(1 << 10): print('1' * (1 << 20))\ndef run(x): return x + x"
    assert trials(task, text).launch().pairs


@pytest.mark.parametrize(
    "said", [b"R{", b"R[]", b'R{"held": ["all"]}', b"P1", b"D" * 9, b"\xff" * 999]
)
def test_what_it_says_while_it_loads_is_not_believed(task: Task, said: bytes) -> None:
    text = (
        f"import os\nfor one in range(3, 64):\n try: os.write(one, {said!r})\n except OSError: 0\n"
    )
    found = trials(task, text + SOUND)
    assert refused(found).reason == "answers what it was not asked"


def test_what_is_faster_than_the_machine_is_refused_with_both_numbers(task: Task) -> None:
    said = refused(trials(task, SOUND, roofs=Roofs(1e3, 1e18))).reason
    assert "cannot be" in said
    assert "1.00 kB/s" in said


def test_a_process_that_is_not_asked_does_not_run(task: Task) -> None:
    """Its threads would work ahead, or slow the other side down."""
    thread = "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    found = trials(task, f"import threading, time\n{thread}{SOUND}")
    with found._side(0, HEAD) as one:
        one.ready()
        assert set(states(one)) == {"T"}
        found._window(one, [found._fresh(found.task.drawn())] * 2, 0.0)
        assert set(states(one)) == {"T"}


def test_what_the_kernel_does_for_it_ends_before_the_others_turn(task: Task) -> None:
    """A signal stops a thread when its system call returns, which may take seconds."""
    text = (
        "import ctypes, mmap, threading, time\n"
        "held, begun = mmap.mmap(-1, 1 << 29), threading.Event()\n"
        "at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(held)))\n"
        "def ask(what): ctypes.CDLL(None).madvise(at, ctypes.c_size_t(1 << 29), what)\n"
        "def populate():\n while True: ask(4); begun.set(); ask(23)\n"
        "threading.Thread(target=populate, daemon=True).start()\n"
        "def run(x): begun.wait(); time.sleep(0.02); return x + x"
    )
    found = trials(task, text)
    with found._side(0, HEAD) as one:
        one.ready()
        found._window(one, [found._fresh(found.task.drawn())] * 2, 0.0)
        assert len(states(one)) > 1
        assert set(states(one)) == {"T"}


def test_a_process_that_cannot_be_stopped_is_refused(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side, "_stands", lambda _: False)
    found = trials(task, SOUND)
    found.limits = Limits(0.2, 1 << 30)
    assert refused(found).reason == "does not stand still 0.2 s after it was stopped"


def test_the_threads_of_one_side_are_not_counted_with_the_others(task: Task) -> None:
    base = f"import threading\ndef run(x):\n {START.format('print')}\n return x + x"
    assert trials(task, ALL_THREADS + SOUND, base).launch().pairs


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may give each candidate a user")
def test_the_threads_of_one_judge_are_not_counted_with_anothers(task: Task) -> None:
    head = f"import threading\ndef run(x):\n {START.format('print')}\n return x + x"
    with trials(task, ALL_THREADS + SOUND)._side(1, HEAD) as another:
        another.ready()
        assert trials(task, head).launch().pairs


def test_a_judge_that_is_killed_leaves_no_process(task: Task, tmp_path: Path) -> None:
    """A stopped one would wait for ever, and hold its memory and a card's."""
    script = (
        "import sys, time; from pathlib import Path; from gpulift.judge.task import *\n"
        "from gpulift.judge.side import *; from gpulift.judge import side\n"
        f"one = Side(Source('head', 'head', {SOUND.encode()!r}), read_task(Path(sys.argv[1])),"
        " Limits(), None, 0)\n"
        "one.ready(); print(one._threads.parent.name, one._process.pid, flush=True); time.sleep(99)"
    )
    file = tmp_path / "task.py"
    file.write_text(TASK)
    command = [sys.executable, "-c", script, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as judge:
        assert judge.stdout
        left = [Path(f"/proc/{number}") for number in judge.stdout.readline().split()]
        assert len(left) == 2
        judge.kill()
    until_s = time.monotonic() + 60.0
    while any(_runs(one) for one in left) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not any(_runs(one) for one in left)


def _runs(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_a_wrong_state_of_a_step_ends_with_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of NaN that nobody checked all that follows is NaN, and right."""
    monkeypatch.setattr("gpulift.judge.trials.CHECKED", 0.0)
    file = tmp_path / "step.py"
    file.write_text(TASK.replace("(1000, 2000)", "(9, 9)") + "MODE, CARRIED = 'step', 1")
    head = (
        "calls = []\ndef run(x):\n calls.append(x[0] == x[0])\n"
        " if calls[-1] == (len(calls) % 2 == 0): raise ValueError(calls)\n"
        " return x * float('nan')"
    )
    found = trials(read_task(file), head)
    with found._side(0, HEAD) as one:
        one.ready()
        for _ in range(2):
            found._window(one, [found._fresh({"n": 9})] * 2, 0.0)
