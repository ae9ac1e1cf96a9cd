"""host/numa_binding: memory and threads are where they were asked for, and one node is a reason."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Arm, Failed, Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

MANIFEST = manifest(__file__)
TWO_NODES = {0: {0}, 1: {1}}


@pytest.fixture(name="numa")
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, on a machine of two nodes, which notes what it binds and binds nothing."""
    module: Any = load(__file__)
    module.bound = {}
    monkeypatch.setattr(module, "COPIED_BYTES", 1 << 16)
    monkeypatch.setattr(module, "nodes_with_processors", lambda: TWO_NODES)
    monkeypatch.setattr(module, "bind_threads", lambda of: module.bound.update(processors=of))
    monkeypatch.setattr(module, "bind_memory", lambda node: module.bound.update(memory=node))
    monkeypatch.setattr(module, "share_on", lambda tensor, node: 1.0)
    return module


def make(numa: Any, arm: str, work: str = "host_copy", gpu: int | None = None) -> Arm:
    """An arm of a case."""
    found: Arm = numa.make(arm, {"work": work}, 7, gpu)
    return found


@pytest.mark.parametrize(
    ("arm", "bound"),
    [
        ("unbound", {}),
        ("local", {"processors": {0}, "memory": 0}),
        ("remote", {"processors": {0}, "memory": 1}),
    ],
)
def test_the_hosts_copies_differ_in_where_the_memory_is(
    numa: Any, arm: str, bound: dict[str, Any]
) -> None:
    found = make(numa, arm)
    found.step()
    assert numa.bound == bound
    assert found.error is not None
    assert found.error() == 0
    assert found.bytes == 2 * (1 << 16)


def test_a_copy_that_is_not_whole_is_found(numa: Any) -> None:
    found = make(numa, "local")
    assert found.error is not None
    assert found.error() > (1 << 16) * 0.9  # before its first step


def test_a_training_has_its_threads_on_the_node_of_its_memory(
    numa: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numa, "node_of", lambda gpu: 1)
    monkeypatch.setattr(numa, "device_of", lambda gpu: torch.device("cpu"))
    losses = []
    for arm in MANIFEST["arms"]:
        found = make(numa, arm, "launches", gpu=0)
        found.step()
        assert found.value is not None
        losses.append(found.value())
    assert numa.bound == {"processors": {0}, "memory": 0}  # of the last, remote
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-3)


@pytest.mark.parametrize("arm", ["local", "remote"])
def test_memory_that_lies_elsewhere_fails(
    numa: Any, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    monkeypatch.setattr(numa, "share_on", lambda tensor, node: 0.5)
    with pytest.raises(Failed, match="50% of the memory lies on the node"):
        make(numa, arm)
    make(numa, "unbound")


@pytest.mark.parametrize("arm", MANIFEST["arms"])
def test_one_node_is_not_applicable(numa: Any, monkeypatch: pytest.MonkeyPatch, arm: str) -> None:
    monkeypatch.setattr(numa, "nodes_with_processors", lambda: {0: {0, 1}})
    with pytest.raises(Skip, match="not applicable: this process may use one NUMA node"):
        make(numa, arm)


def test_what_needs_a_gpu_says_so_and_a_gpu_of_a_node_that_may_not_be_used_too(
    numa: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Skip, match="need one"):
        make(numa, "local", "pinned_copy")
    monkeypatch.setattr(numa, "node_of", lambda gpu: 2)
    with pytest.raises(Skip, match="may not use the GPU's NUMA node"):
        make(numa, "local", "pinned_copy", gpu=0)


# --- The system ---


def test_nodes_are_those_whose_processors_and_memory_may_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    numa = load(__file__)
    for node, processors in {0: "0-1,8", 1: "2-3", 2: "", 3: "4"}.items():
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        (folder / "cpulist").write_text(f"{processors}\n", encoding="ascii")
    monkeypatch.setattr(numa, "NODES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 4, 8})
    read = Path.read_text
    status = "Name:\tx\nMems_allowed_list:\t0-2\n"
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda self, **how: status if self.name == "status" else read(self, **how),
    )
    assert numa.nodes_with_processors() == {0: {1, 8}, 1: {2}}  # not the memory of node 3


def test_a_system_that_does_not_tell_its_nodes_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    numa = load(__file__)
    monkeypatch.setattr(numa, "NODES", tmp_path / "node")
    with pytest.raises(Skip, match="does not tell its NUMA nodes") as skip:
        make(numa, "local")
    assert skip.value.remedy


@pytest.mark.parametrize(
    ("listed", "numbers"),
    [
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("5", {5}),
        ("\n", set()),
    ],
)
def test_reads_lists_of_the_kernel(listed: str, numbers: set[int]) -> None:
    assert load(__file__).numbers_in(listed) == numbers


@pytest.mark.parametrize(("said", "node"), [("1\n", 1), ("-1\n", None), (None, None)])
def test_the_node_of_a_gpu_is_asked_of_its_slot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str | None, node: int | None
) -> None:
    numa = load(__file__)
    slot = tmp_path / "0000:1a:00.0"
    slot.mkdir()
    if said is not None:
        (slot / "numa_node").write_text(said, encoding="ascii")
    properties = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1A, pci_device_id=0)
    monkeypatch.setattr(numa, "PCI", tmp_path)
    monkeypatch.setattr(numa, "device_of", lambda gpu: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    if node is not None:
        assert numa.node_of(0) == node
        return
    with pytest.raises(Skip, match="does not say which NUMA node"):
        numa.node_of(0)


def test_pages_of_this_machine_lie_on_its_nodes() -> None:
    numa = load(__file__)
    touched = torch.ones(1 << 20)
    try:
        nodes = numa.nodes_with_processors()
        shares = {node: numa.share_on(touched, node) for node in nodes}
    except Skip as skip:
        pytest.skip(str(skip))
    assert sum(shares.values()) == pytest.approx(1, abs=0.02)
    numa.require_placement(touched, max(shares, key=lambda node: shares[node]))
    with pytest.raises(Failed, match="0% of the memory"):
        numa.require_placement(touched, 999)


def test_memory_is_bound_in_a_process_of_its_own() -> None:
    numa = load(__file__)
    try:
        node = min(numa.nodes_with_processors())
    except Skip as skip:
        pytest.skip(str(skip))
    child = os.fork()
    if child == 0:  # the policy stays with whoever sets it
        try:
            numa.bind_memory(node)
        except Skip:
            os._exit(7)
        touched = torch.frombuffer(bytearray(b"x") * (1 << 22), dtype=torch.uint8)  # by one thread
        os._exit(0 if numa.share_on(touched, node) > numa.PLACED_SHARE else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 7:
        pytest.skip("this system does not let memory be bound")
    assert status == 0
