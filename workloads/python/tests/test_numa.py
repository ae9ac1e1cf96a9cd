"""Memory lies where libnuma was told to put it, and what it cannot tell or bind is a reason."""

from __future__ import annotations

import importlib
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

WHOLE = 0.99  # of the pages of a tensor that was touched


@pytest.fixture(name="numa")
def numa_module() -> Any:
    """The module that arms import, which loads its library anew."""
    module: Any = importlib.import_module("gpulift_work.numa")
    module.library.cache_clear()
    return module


@pytest.fixture(name="nodes")
def nodes_of_this_machine(numa: Any, worker: Any) -> Any:
    """Those that this process may use; without libnuma the test is skipped."""
    try:
        return numa.nodes_with_processors()
    except worker.Skip as skip:
        pytest.skip(str(skip))


@pytest.fixture(name="worker")
def worker_module() -> Any:
    """The module whose Skip the other raises."""
    return importlib.import_module("gpulift_worker")


def test_nodes_have_the_processors_of_this_process(nodes: Any) -> None:
    assert set().union(*nodes.values()) <= os.sched_getaffinity(0)
    assert all(nodes.values())


def test_nodes_whose_memory_may_not_be_used_are_none(
    numa: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleNamespace(
        numa_get_mems_allowed=lambda: {0, 1},
        numa_node_of_cpu={1: 0, 2: 1, 4: 3, 8: 0, 9: -1}.get,
        numa_bitmask_isbitset=lambda mask, node: node in mask,
    )
    monkeypatch.setattr(numa, "library", lambda: told)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 4, 8, 9})
    assert numa.nodes_with_processors() == {0: {1, 8}, 1: {2}}


def test_pages_of_this_machine_lie_on_its_nodes(numa: Any, nodes: Any) -> None:
    touched = torch.ones(1 << 20)
    assert sum(numa.share_on(touched, node) for node in nodes) > WHOLE
    assert numa.share_on(touched, 999) == 0


def test_memory_is_bound_in_a_process_of_its_own(numa: Any, nodes: Any, worker: Any) -> None:
    node = min(nodes)
    child = os.fork()
    if child == 0:  # the policy stays with whoever sets it
        try:
            numa.bind_memory(node)
        except worker.Skip:
            os._exit(7)
        touched = torch.frombuffer(bytearray(b"x") * (1 << 22), dtype=torch.uint8)  # by one thread
        os._exit(0 if numa.share_on(touched, node) > WHOLE else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 7:
        pytest.skip("this system does not let memory be bound")
    assert status == 0


def test_a_node_that_is_not_there_cannot_be_bound_to(numa: Any, nodes: Any, worker: Any) -> None:
    with pytest.raises(worker.Skip, match="memory cannot be bound"):
        numa.bind_memory(max(nodes) + 1)


@pytest.mark.parametrize(
    ("opens", "reason"),
    [
        (OSError("no such file"), r"libnuma.so.1 is not installed"),
        (SimpleNamespace(numa_available=lambda: -1), "does not tell its NUMA nodes"),
    ],
)
def test_a_library_that_is_missing_or_refused_is_a_reason(
    numa: Any, worker: Any, monkeypatch: pytest.MonkeyPatch, opens: Any, reason: str
) -> None:
    def load(*_: Any, **__: Any) -> Any:
        if isinstance(opens, OSError):
            raise opens
        return opens

    monkeypatch.setattr(numa.ctypes, "CDLL", load)
    with pytest.raises(worker.Skip, match=reason) as skip:
        numa.library()
    assert skip.value.remedy


# --- torchrun ---


def test_torchrun_binds_beside_gpus_and_needs_numactl(
    numa: Any, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(worker.Skip, match="binds ranks beside their GPUs"):
        numa.bind_as_torchrun(None, "node")
    monkeypatch.setattr(numa.shutil, "which", lambda _: None)
    with pytest.raises(worker.Skip, match="needs numactl") as skip:
        numa.bind_as_torchrun(0, "node")
    assert skip.value.remedy == "install numactl"


@pytest.mark.parametrize("named", ["gpu_index", "device_index"])  # by torch 2.11, and by 2.15
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, ""),
        (AttributeError("CORE_COMPLEX"), "does not bind by core-complex"),
        (RuntimeError("no node"), "cannot bind by core-complex here: no node"),
    ],
)
def test_torchruns_own_function_binds_or_says_why_not(
    numa: Any,
    worker: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    reason: str,
    named: str,
) -> None:
    asked: list[Any] = []

    def answer(**given: Any) -> None:
        asked.append(given)
        if error is not None:
            raise error

    def of_2_11(*, gpu_index: int, numa_options: str) -> None:
        answer(gpu_index=gpu_index, numa_options=numa_options)

    def of_2_15(*, device_index: int, numa_options: str) -> None:
        answer(device_index=device_index, numa_options=numa_options)

    binding = SimpleNamespace(
        NumaOptions=lambda affinity_mode: affinity_mode,
        AffinityMode=str,
        _maybe_apply_numa_binding_to_current_process=of_2_11 if named == "gpu_index" else of_2_15,
    )
    monkeypatch.setitem(sys.modules, "torch.numa.binding", binding)
    monkeypatch.setattr(numa.shutil, "which", lambda _: "numactl")
    if error is None:
        numa.bind_as_torchrun(3, "core-complex")
    else:
        with pytest.raises(worker.Skip, match=reason):
            numa.bind_as_torchrun(3, "core-complex")
    assert asked == [{named: 3, "numa_options": "core-complex"}]


def test_this_torch_has_what_torchrun_binds_with(
    numa: Any, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numa.shutil, "which", lambda _: "numactl")
    binding = pytest.importorskip("torch.numa.binding")
    assert {"node", "core-complex"} <= {one.value for one in binding.AffinityMode}
    with pytest.raises(worker.Skip, match="torchrun cannot bind by node here"):
        numa.bind_as_torchrun(99, "node")  # it finds no such GPU
