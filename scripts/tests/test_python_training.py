"""What is particular to the Python arms that train: sizes as in C++, checks that find errors."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETTING = """
import json, torch
import gpulift_training as training
from gpulift_worker import Skip
host = training.device_of(None)
training.set_up(host)
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def printed(code: str, setting: str = SETTING, **environment: str) -> Any:
    """The JSON that the code prints in a process of its own, where torch belongs."""
    folders = ("core/python", "benches/compile", "benches/framework")
    paths = os.pathsep.join(str(ROOT / folder) for folder in folders)
    done = subprocess.run(
        [sys.executable, "-c", setting + code],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_trains_at_the_sizes_of_the_cpp_arms() -> None:
    rows = re.findall(
        r'\{"(\w+)",\s*\{\.batch_size = (\d+), \.precision = Precision::k(\w+)(.*?)\}',
        (ROOT / "workloads" / "torch" / "twin.cpp").read_text(encoding="utf-8"),
    )
    in_cpp = {
        name: [int(batch), precision == "Bf16", "channels_last = true" in rest]
        for name, batch, precision, rest in rows
    }
    in_python = printed(
        "print(json.dumps({name: [one.batch, one.bf16, one.channels_last]"
        " for name, one in training.TWINS.items()}))"
    )
    assert in_python == in_cpp


def test_gpt2_has_as_many_parameters_as_in_cpp() -> None:
    code = """
with torch.device("meta"):
    model = training.make_model("gpt2")
print(sum(one.numel() for one in model.parameters()))
"""
    assert printed(code) == 124_439_808


def test_the_check_finds_steps_that_learn_otherwise() -> None:
    code = """
expected = training.reference_losses("gpt_toy", host, 1)
def error(change):
    found = training.Training("gpt_toy", host, 1)
    change(found)
    found.train_until(training.CHECKED_STEPS)
    return training.largest_deviation(found.losses, expected)
def other_rate(one): one.optimizer.param_groups[0]["lr"] *= 1.1
def frozen(one): one.optimizer.param_groups[0]["lr"] = 0
print(json.dumps([error(lambda one: None), error(other_rate), error(frozen)]))
"""
    right, other_rate, frozen = printed(code)
    assert right <= 1e-6
    assert other_rate > 0.01
    assert frozen > 0.5


def test_losses_that_are_no_numbers_deviate_by_no_number() -> None:
    code = "print(json.dumps(str(training.largest_deviation([float('nan')], [1.0]))))"
    assert printed(code) == "nan"


def test_an_eager_arm_passes_its_own_check_and_says_where_it_ran() -> None:
    code = """
from torch_compile import make
arm = make("eager", {"model": "gpt_toy"}, 1, None)
arm.step()
print(json.dumps([arm.error(), dict(arm.metrics()), arm.notes["device"]]))
"""
    assert printed(code) == [0.0, {}, "cpu"]


def test_the_softmax_of_a_loss_is_in_fp32_on_a_gpu_too() -> None:
    # Fake tensors go through CUDA's own rules of autocast without a GPU; the host's are others.
    code = """
from torch._subclasses.fake_tensor import FakeTensorMode
def types_through(loss):
    found, node = [], loss.grad_fn
    while node is not None:
        found.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return found
with FakeTensorMode(allow_non_fake_inputs=True):
    logits = torch.empty(8, 4, 100, device="cuda", dtype=torch.bfloat16).requires_grad_()
    target = torch.empty(8, 4, device="cuda", dtype=torch.int64)
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    ours = training.Loss(torch.nn.Identity())(logits, target)
    plain = torch.nn.functional.cross_entropy(logits.reshape(-1, 100), target.reshape(-1))
    torch.set_autocast_enabled("cuda", False)
print(json.dumps([types_through(ours), types_through(plain)]))
"""
    ours, plain = printed(code)
    softmax = ours.index("LogSoftmaxBackward0")
    assert ours[softmax + 1] == "ToCopyBackward0"
    assert "ToCopyBackward0" not in plain[plain.index("LogSoftmaxBackward0") :]


def test_what_replayed_graphs_use_counts_as_allocated() -> None:
    code = """
segments = [
    {"segment_pool_id": (0, 0), "total_size": 100, "allocated_size": 60},
    {"segment_pool_id": (0, 1), "total_size": 50, "allocated_size": 20},
    {"segment_pool_id": (0, 2), "total_size": 8, "allocated_size": 8},
]
print(training.bytes_of_replays(segments))
"""
    assert printed(code) == 30


def test_what_compiling_cost_is_paid_by_the_steps_that_it_saved() -> None:
    code = """
print(json.dumps([training.compilation(10.0, 0.003, 0.001), training.compilation(10.0, 1.0, 2.0)]))
"""
    faster, slower = printed(code)
    assert faster["break_even_steps"] == pytest.approx(5000)
    assert "break_even_steps" not in slower
    assert slower == {"cold_start_s": 10.0, "graph_breaks": 0.0, "recompiles": 0.0}


def test_without_a_compiler_it_is_skipped_with_a_remedy() -> None:
    code = """
try:
    training.require_compiler(host)
except Skip as skip:
    print(json.dumps([str(skip), skip.remedy]))
"""
    reason, remedy = printed(code, CXX="no-such-compiler")
    assert reason == "torch.compile finds no compiler called no-such-compiler"
    assert "CXX" in remedy


def test_a_framework_that_is_missing_skips_its_arms_alone() -> None:
    code = """
import json, sys
sys.modules["jax"] = None
from choice import make
from gpulift_worker import Skip
try:
    make("jax_jit", {"model": "gpt_toy"}, 1, None)
except Skip as skip:
    print(json.dumps([str(skip), skip.remedy]))
"""
    reason, remedy = printed(code, setting="")
    assert reason == "the Python package jax is not installed"
    assert remedy == "install jax, or name another interpreter with --python"
