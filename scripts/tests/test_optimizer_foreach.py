"""What is particular to the script of optimizer/foreach: it finds a wrong result."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTING = """
import torch
from foreach import adamw, device_of, make, relative_error
start = torch.randn(64, generator=torch.Generator().manual_seed(1))
parameter = start.clone().requires_grad_()
parameter.grad = torch.randn(64, generator=torch.Generator().manual_seed(2))
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def printed(code: str) -> str:
    """What the code prints in a process of its own, where torch belongs."""
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("core/python", "benches/optimizer"))
    return subprocess.run(
        [sys.executable, "-c", SETTING + code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_three_steps_of_any_arm_are_right_and_none_two_or_another_rate_are_wrong() -> None:
    code = """
for arm, rate, steps in (
    ("loop", 1e-3, 3), ("foreach", 1e-3, 3), ("fused", 1e-3, 3),
    ("loop", 1e-3, 0), ("loop", 1e-3, 2), ("fused", 2e-3, 3),
):
    parameter.data.copy_(start)
    optimizer = adamw([parameter], arm)
    optimizer.param_groups[0]["lr"] = rate
    for _ in range(steps):
        optimizer.step()
    print(relative_error(start, parameter))
"""
    errors = [float(line) for line in printed(code).split()]
    assert all(error < 1e-3 for error in errors[:3])
    assert errors[3] == pytest.approx(1.0)
    assert errors[4] == pytest.approx(1 / 3, rel=0.1)
    assert errors[5] == pytest.approx(1.0, rel=0.1)


def test_without_a_gpu_it_runs_on_the_cpu_and_with_one_it_never_does() -> None:
    code = """
torch.cuda.is_available = lambda: False
print(device_of(None))
try:
    device_of(0)
except Exception as skip:
    print(type(skip).__name__, skip)
"""
    assert printed(code).splitlines() == ["cpu", "Skip torch cannot use the GPU"]


def test_notes_its_device_and_its_threads() -> None:
    code = 'print(dict(make("fused", {"tensors": "many"}, 1, None).notes))'
    threads = max(1, len(os.sched_getaffinity(0)) - 1)
    assert printed(code).strip() == str({"device": "cpu", "torch_threads": str(threads)})
