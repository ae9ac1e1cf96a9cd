"""monitor/profiler: what is profiled trains as what is not, and a window has whole profiles."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

profiler = load(__file__)
MANIFEST = manifest(__file__)
CYCLE = profiler.WAIT + profiler.WARM_UP + profiler.ACTIVE


@pytest.fixture(autouse=True)
def two_cycles(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the schedule in a window."""
    monkeypatch.setattr(profiler, "STEPS", {"launches": 2 * CYCLE, "gpu": 2 * CYCLE})


def window(arm: Any) -> float:
    """Of the arm, with the loss behind it."""
    arm.wake()
    arm.before()
    arm.step()
    arm.rest()
    loss: float = arm.value()
    return loss


def make(name: str) -> Any:
    """An arm on the processor."""
    return profiler.make(name, {"bound": "launches"}, 7, None)


@pytest.mark.parametrize(("name", "traces"), [("scheduled", 2), ("every_step", 1), ("stacks", 1)])
def test_what_is_profiled_has_exactly_the_loss_of_what_is_not(name: str, traces: int) -> None:
    profiled = make(name)
    assert window(profiled) == window(make("none"))
    window(profiled)
    assert profiled.metrics()["traces_count"] == traces
    assert profiled.metrics()["traces_bytes"] > 1000
    assert profiled.tolerance == 0
    assert profiled.items == 2 * CYCLE * 8 * 32


def test_a_window_has_whole_cycles_of_the_schedule() -> None:
    steps = load(__file__).STEPS
    assert steps.keys() == profiler.MODELS.keys()
    assert all(count >= 2 * CYCLE and count % CYCLE == 0 for count in steps.values())


def test_gpt2_needs_a_gpu() -> None:
    with pytest.raises(Skip, match="takes seconds on a processor"):
        profiler.make("none", {"bound": "gpu"}, 7, None)


# --- py-spy ---

# No shell, which cannot trap what its parent ignores, as one behind & in a script does.
SAYS = f"""#!{sys.executable}
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("py-spy> Sampling process 100 times a second. Press Control-C to exit.", flush=True)
signal.sigwait([signal.SIGINT])
print("py-spy> Wrote raw flamegraph data. Samples: 12 Errors: 1")
"""
REFUSES = """#!/bin/sh
echo "Error: Permission Denied"
echo
exit 1
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """A program of this name, and no other one."""
    program = folder / name
    program.write_text(script, encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("gpulift_work.watchers.sys.executable", str(folder / "python"))


def test_py_spy_watches_a_window_and_says_how_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "py-spy", SAYS)
    arm = make("py_spy_100hz")
    assert arm.metrics() == {}
    assert window(arm) == window(make("none"))
    assert arm.metrics() == {"looks_count": 12, "errors_count": 1}


def test_py_spy_that_may_not_watch_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "py-spy", REFUSES)
    with pytest.raises(Skip, match="py-spy cannot watch: Error: Permission Denied") as skip:
        make("py_spy_100hz").before()
    assert skip.value.remedy == "allow it SYS_PTRACE"


# --- nsys ---

STARTS = f"""#!{sys.executable}
import os, sys
print("Collecting data...", flush=True)
at = sys.argv.index({sys.executable!r})
assert "--trace=cuda,nvtx" in sys.argv[:at]
os.execv(sys.argv[at], sys.argv[at:])
"""
ENDS = "#!/bin/sh\necho 'unrecognised option'\n"


def test_nsys_starts_a_training_that_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nsys").write_text(STARTS, encoding="ascii")
    (tmp_path / "nsys").chmod(0o755)
    monkeypatch.setattr(profiler, "STEPS", {"launches": 3})
    monkeypatch.setattr(profiler.shutil, "which", lambda name: str(tmp_path / name))
    arm, plain = make("nsys"), make("none")
    for _ in range(2):
        assert window(arm) == window(plain)


def test_nsys_that_starts_nothing_or_is_not_there_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skip, match="nsys is not installed") as skip:
        make("nsys")
    assert skip.value.remedy
    (tmp_path / "nsys").write_text(ENDS, encoding="ascii")
    (tmp_path / "nsys").chmod(0o755)
    with pytest.raises(Skip, match="nsys does not start a training: "):
        make("nsys")
