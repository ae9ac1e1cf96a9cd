"""Ranks of Python arms when something goes wrong in their group, with Gloo on processors."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None

pytestmark = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

SCRIPT = """
import os, signal
from gpulift_work import distributed
import torch
import torch.distributed as dist
from gpulift_worker import Arm

distributed.RENDEZVOUS_S = 10


def make(arm, point, seed, gpu):
    group = distributed.join("gloo", gpu)
    steps = []

    def step():
        steps.append(1)
        if group.rank == 1 and len(steps) == 3:
            if arm == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if arm == "silent":
                return
        dist.all_reduce(torch.ones(4))

    return Arm(step=step, error=float)
"""
IMPATIENT = "\ndistributed.RENDEZVOUS_S = 1\n"
TOO_SMALL = """

def refuse(*_, **__):
    raise dist.DistBackendError(
        "NCCL error in: NCCLUtils.cpp:94, unhandled system error\\nLast error:\\nError while "
        "creating shared memory segment /dev/shm/nccl-aBcDeF (size 9637888), error: No space left "
        "on device (28)"
    )

dist.init_process_group = refuse
"""


LISTENING = """
import sys
sys.path.insert(0, {folder!r})
from listening import ports_open_to_others


def local_join(*given):
    group = join(*given)
    open_ports = ports_open_to_others("self")
    assert not open_ports, open_ports
    return group


join = distributed.join
distributed.join = local_join
"""
MADE = """
def noted_join(*given):
    group = join(*given)
    open({file!r}, "w").close()
    return group

distributed.join = noted_join
"""
# Ranks that have GPUs by what they say of themselves, and nothing else.
GPUS = """
import ctypes, os
from types import SimpleNamespace

device = SimpleNamespace(index=int(os.environ["RANK"]))
distributed.model_of = lambda device: "Card " + "{cards}"[device.index]


def no_atomics(value, kind, one, other):
    value.value = 0


def require(*given):
    group = join(*given)
    distributed.require_equal_gpus(device)
    ctypes.CDLL = lambda name: SimpleNamespace(cuDeviceGetP2PAttribute=no_atomics)
    ctypes.byref = lambda value: value
    distributed.require_nvlink(device)
    return group


join = distributed.join
distributed.join = require
"""

rank_group = importlib.import_module("rank_group")  # lies with the worker and not in the package


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


def test_ranks_meet_before_their_turn_and_make_nothing_until_then(
    script: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    script.write_text(SCRIPT + "\njoin = distributed.join\n" + MADE.format(file=str(made)))
    with rank_group.RankGroup(script) as group:
        assert group.start("fine", {}) == [{"ready": True}] * 2
        assert not made.exists()
        assert [one["check_error"] for one in group.check()] == [0, 0]
        assert made.exists()


def test_ranks_whose_turn_never_comes_end(script: Path) -> None:
    with rank_group.RankGroup(script) as group:
        assert group.start("fine", {}) == [{"ready": True}] * 2
        assert group.exit_codes() == [1, 1]


def test_ranks_that_meet_without_join_wait_once_their_arm_is_made(script: Path) -> None:
    script.write_text("from gpulift_worker import Arm\ndef make(*_):\n    return Arm(int, float)\n")
    with rank_group.RankGroup(script) as group:
        assert group.start("fine", {}) == [{"ready": True}] * 2
        assert [one["check_error"] for one in group.check()] == [0, 0]


@pytest.mark.parametrize(
    ("rank", "reason"),
    [
        (0, "1/2 clients joined"),  # the other never starts
        (1, "timed out"),  # the rendezvous cannot be reached, as behind a firewall
    ],
)
def test_a_rank_that_is_alone_does_not_wait_without_end(
    script: Path, rank: int, reason: str
) -> None:
    script.write_text(SCRIPT + IMPATIENT)
    with rank_group.RankGroup(script, started=1, first=rank) as group:
        (said,) = group.hello("fine", {})
        assert group.exit_codes() == [1]
    assert set(said) == {"error"}
    assert is_one_line(said)
    assert reason in said["error"]


def test_a_rank_that_takes_no_part_in_an_exchange_is_not_waited_for_without_end(
    script: Path,
) -> None:
    script.write_text(SCRIPT + IMPATIENT.replace("1", "5"))
    with rank_group.RankGroup(script) as group:
        group.hello("silent", {})
        other, silent = group.window(2)
        assert group.exit_codes() == [1, 0]
    assert silent["host_s"] > 0
    assert is_one_line(other)
    assert "imed out" in other["error"]


def test_between_nodes_a_rank_that_takes_no_part_is_waited_for_a_shorter_time(script: Path) -> None:
    script.write_text(SCRIPT + "\ndistributed.LATE_S = 5\n")
    with rank_group.RankGroup(script, variables={"GPULIFT_NODES": "2"}) as group:
        group.hello("silent", {})
        other, _ = group.window(2)
        assert group.exit_codes() == [1, 0]
    assert "Timed out waiting 5000ms" in other["error"]


def test_ranks_on_several_nodes_need_the_cores_of_their_own(script: Path) -> None:
    here = {"GPULIFT_CORES": "1", "GPULIFT_NODES": "2", "LOCAL_WORLD_SIZE": "1"}
    with rank_group.RankGroup(script, ranks=3, variables=here) as group:
        assert [one.get("check_error") for one in group.hello("fine", {})] == [0, 0, 0]
    with rank_group.RankGroup(script, ranks=3, variables={"GPULIFT_CORES": "1"}) as group:
        said = group.hello("fine", {})
    assert said[0]["skipped"] == "its 3 ranks need a core each, and there are 1"


@pytest.mark.parametrize("link", ["nvlink", "host", "any", "fabric"])
def test_gpus_of_several_nodes_have_the_fabric_between_them(
    link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = importlib.import_module("gpulift_work.distributed")
    monkeypatch.setenv("GPULIFT_NODES", "2")
    monkeypatch.delenv("NCCL_DEBUG_SUBSYS", raising=False)
    for name in ("NCCL_P2P_DISABLE", "NCCL_DEBUG", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(distributed, "device_of", lambda gpu: distributed.torch.device("cuda", gpu))
    monkeypatch.setattr(distributed, "set_up", lambda device: None)
    monkeypatch.setattr(distributed, "require_nvlink", None)
    group = distributed.join(link, 0)  # a rank that is alone meets nobody
    assert os.environ["NCCL_P2P_DISABLE"] == "0"
    assert os.environ["NCCL_DEBUG_SUBSYS"] == "INIT,NET"
    assert group.transport == "not told"


def test_a_rank_that_is_terminated_ends_the_other(script: Path) -> None:
    with rank_group.RankGroup(script) as group:
        group.hello("fine", {})
        group.ranks[1].process.terminate()
        group.ranks[1].process.join()
        other, ended = group.window(2)
        assert group.exit_codes() == [1, -15]
    assert ended == {}
    assert is_one_line(other)
    assert "onnection" in other["error"]


def test_ctrl_c_is_left_to_the_engine(script: Path) -> None:
    with rank_group.RankGroup(script) as group:
        group.hello("fine", {})
        for one in group.ranks:
            os.kill(one.process.pid, signal.SIGINT)
        assert all(one["host_s"] > 0 for one in group.window(2))
        assert group.exit_codes() == [0, 0]


def test_a_rank_that_is_killed_in_a_step_ends_the_other(script: Path) -> None:
    with rank_group.RankGroup(script) as group:
        group.hello("killed", {})
        start_s = monotonic()
        other, killed = group.window(2)
        assert group.exit_codes() == [1, -9]
        assert monotonic() - start_s < 10
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
    assert "already in use" in said["error"]
    assert str(port) in said["error"]


def test_ranks_listen_to_this_machine_alone(script: Path) -> None:
    folder = str(rank_group.LIBRARY / "testing")
    script.write_text(SCRIPT + LISTENING.format(folder=folder))
    with rank_group.RankGroup(script) as group:
        assert [one.get("check_error") for one in group.hello("fine", {})] == [0, 0]


def test_between_nodes_ranks_listen_by_ipv4_and_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulift_work import distributed

    if not socket.has_dualstack_ipv6():
        pytest.skip("there is no IPv6 here")
    monkeypatch.setenv("GPULIFT_NODES", "2")
    with distributed.listening("192.0.2.1", 0) as held:
        assert held.getsockname()[0] == "::"
        socket.create_connection(("127.0.0.1", held.getsockname()[1]), 10).close()


def test_a_dev_shm_that_is_too_small_says_what_to_raise(script: Path) -> None:
    script.write_text(SCRIPT + TOO_SMALL)
    with rank_group.RankGroup(script) as group:
        said = group.hello("fine", {})
        assert group.exit_codes() == [0, 0]
    remedy = "give the container more: --shm-size 1g, or an emptyDir with medium Memory"
    assert said == [{"skipped": "/dev/shm is too small for NCCL", "remedy": remedy}] * 2


@pytest.mark.parametrize(
    ("cards", "reason", "remedy"),
    [
        ("AB", "the GPUs of its ranks differ: Card A, Card B", "name equal ones: --gpus"),
        (
            "AA",
            "there is no NVLink between the GPUs, or they may not use it",
            "name GPUs that have it: nvidia-smi topo -m shows NV between them",
        ),
    ],
)
def test_gpus_that_do_not_go_together_are_skipped(
    script: Path, cards: str, reason: str, remedy: str
) -> None:
    script.write_text(SCRIPT + GPUS.format(cards=cards))
    with rank_group.RankGroup(script) as group:
        said = group.hello("fine", {})
        assert group.exit_codes() == [0, 0]
    assert said == [{"skipped": reason, "remedy": remedy}] * 2


def test_another_error_of_the_backend_is_no_skip(script: Path) -> None:
    script.write_text(SCRIPT + TOO_SMALL.replace("shared memory segment", "a ring"))
    with rank_group.RankGroup(script) as group:
        said = group.hello("fine", {})
        assert group.exit_codes() == [1, 1]
    assert all(one["error"].startswith("DistBackendError: NCCL error") for one in said)
    assert all(map(is_one_line, said))
