"""monitor/overhead: what is watched trains as what is not, from start to stop of a window."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from gpulift_worker import Skip
from technique_script import load, manifest

overhead = load(__file__)
MANIFEST = manifest(__file__)


class FakePoller:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def open(self, gpu: str) -> None:
        """Says of which."""
        self.told.append(f"open {gpu}")

    def start(self) -> None:
        """A window."""
        self.told.append("start")

    def stop(self) -> None:
        """Its end."""
        self.told.append("stop")

    def metrics(self) -> dict[str, float]:
        """How often it was told."""
        return {"looks_count": float(len(self.told))}


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps in place of two hundred."""
    monkeypatch.setattr(overhead, "STEPS", {"launches": 3, "gpu": 3})


def make(arm: str) -> Any:
    """An arm on the processor."""
    return overhead.make(arm, {"bound": "launches"}, 7, None)


def window(arm: Any) -> float:
    """Of the arm, with the loss behind it."""
    arm.wake()
    arm.before()
    arm.step()
    arm.rest()
    loss: float = arm.value()
    return loss


def test_a_window_is_watched_from_end_to_end_and_trains_as_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poller = FakePoller()
    monkeypatch.setattr(overhead, "POLLERS", {"nvml_1hz": lambda: poller})
    watched, plain = make("nvml_1hz"), make("none")
    for _ in range(2):
        assert window(watched) == window(plain)
    assert poller.told == ["open ", *["start", "stop"] * 2]
    assert watched.metrics() == {"looks_count": 5}
    assert watched.items == 3 * 8 * 32


def test_without_a_gpu_nvml_is_a_reason() -> None:
    for name in overhead.POLLERS:
        with pytest.raises(Skip, match="NVML watches GPUs"):
            make(name)


SAYS = f"""#!{sys.executable}
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("#Entity   SMACT", "ID", sep="\\n", flush=True)
look = "GPU 0 0.97" if "dmon" in sys.argv else "97 %, 400 MiB, 700 W"
print(look, look, sep="\\n", flush=True)
signal.sigwait([signal.SIGINT])
"""


@pytest.mark.parametrize(
    ("arm", "name"), [("nvidia_smi_1hz", "nvidia-smi"), ("dcgm_10hz", "dcgmi")]
)
def test_programs_are_started_and_interrupted_or_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str, name: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skip, match=f"{name} is not installed") as skip:
        make(arm)
    assert skip.value.remedy
    (tmp_path / name).write_text(SAYS, encoding="ascii")
    (tmp_path / name).chmod(0o755)
    watched = make(arm)
    window(watched)
    assert watched.metrics() == {"looks_count": 1}


def test_every_arm_has_its_watcher() -> None:
    programs = ["nvidia_smi_1hz", "dcgm_10hz"]
    assert ["none", *overhead.POLLERS, *programs] == MANIFEST["arms"]
