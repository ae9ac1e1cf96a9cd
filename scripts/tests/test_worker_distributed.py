"""Ranks of Python arms when something goes wrong in their group, with Gloo on processors."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LIBRARY = Path(__file__).parents[2] / "core" / "python"
HAS_TORCH = importlib.util.find_spec("torch") is not None

pytestmark = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

SCRIPT = """
import os, signal
import gpulift_distributed
import torch
import torch.distributed as dist
from gpulift_worker import Arm

gpulift_distributed.RENDEZVOUS_S = 5


def make(arm, point, seed, gpu):
    group = gpulift_distributed.join("gloo", gpu)
    steps = []

    def step():
        steps.append(1)
        if arm == "killed" and group.rank == 1 and len(steps) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(4))

    return Arm(step=step, error=float)
"""
TOO_SMALL = """

def refuse(*_, **__):
    raise dist.DistBackendError(
        "NCCL error in: NCCLUtils.cpp:94, unhandled system error\\nLast error:\\nError while "
        "creating shared memory segment /dev/shm/nccl-aBcDeF (size 9637888), error: No space left "
        "on device (28)"
    )

dist.init_process_group = refuse
"""


def load() -> ModuleType:
    """The module, which lies with the worker and not in the package."""
    file = LIBRARY / "testing" / "rank_group.py"
    spec = importlib.util.spec_from_file_location("rank_group", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rank_group = load()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Ranks that meet, and exchange in each step."""
    file = tmp_path / "theme.name.py"
    file.write_text(SCRIPT)
    return file


def is_one_line(said: dict[str, Any]) -> bool:
    """Whether the answer is a reason that fits into one line, without a path."""
    (reason,) = said.values()
    return len(reason.splitlines()) == 1 and "/tmp" not in reason


def test_ranks_that_all_start_exchange_and_end(script: Path) -> None:
    with rank_group.RankGroup(script) as group:
        assert [one["check_error"] for one in group.hello("fine", {})] == [0, 0]
        assert all(one["host_s"] > 0 for one in group.window(2))
        assert group.exit_codes() == [0, 0]


def test_a_rank_that_never_starts_is_not_waited_for_without_end(script: Path) -> None:
    with rank_group.RankGroup(script, started=1) as group:
        (said,) = group.hello("fine", {})
        assert group.exit_codes() == [1]
    assert set(said) == {"error"}
    assert is_one_line(said)
    assert "1/2 clients joined" in said["error"]


def test_a_rank_that_is_killed_in_a_step_ends_the_other(script: Path) -> None:
    with rank_group.RankGroup(script) as group:
        group.hello("killed", {})
        other, killed = group.window(2)
        assert group.exit_codes() == [1, -9]
    assert killed == {}
    assert set(other) == {"error"}
    assert is_one_line(other)
    assert "onnection" in other["error"]  # closed or reset by its peer


def test_a_port_that_is_taken_is_said(script: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with rank_group.RankGroup(script, started=1, port=port) as group:
            (said,) = group.hello("fine", {})
            assert group.exit_codes() == [1]
    assert is_one_line(said)
    assert "EADDRINUSE" in said["error"]
    assert str(port) in said["error"]


def test_a_dev_shm_that_is_too_small_says_what_to_raise(script: Path) -> None:
    script.write_text(SCRIPT + TOO_SMALL)
    with rank_group.RankGroup(script) as group:
        said = group.hello("fine", {})
        assert group.exit_codes() == [0, 0]
    remedy = "give the container more: --shm-size 1g, or an emptyDir with medium Memory"
    assert said == [{"skipped": "/dev/shm is too small for NCCL", "remedy": remedy}] * 2


def test_another_error_of_the_backend_is_no_skip(script: Path) -> None:
    script.write_text(SCRIPT + TOO_SMALL.replace("shared memory segment", "a ring"))
    with rank_group.RankGroup(script) as group:
        said = group.hello("fine", {})
        assert group.exit_codes() == [1, 1]
    assert all(one["error"].startswith("DistBackendError: NCCL error") for one in said)
