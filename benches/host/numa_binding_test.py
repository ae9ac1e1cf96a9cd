"""host/numa_binding: memory and threads are where they were asked for, and one node is a reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Arm, Failed, Skip  # noqa: E402
from technique_script import error_of, load, manifest  # noqa: E402

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
    monkeypatch.setattr(
        module, "bind_as_torchrun", lambda *given: module.bound.update(torchrun=given)
    )
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
    assert error_of(found) == 0
    assert found.bytes == 2 * (1 << 16)


def test_a_copy_that_is_not_whole_is_found(numa: Any) -> None:
    found = make(numa, "local")
    assert error_of(found) > (1 << 16) * 0.9  # before its first step


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
    assert numa.bound == {"torchrun": (0, "node"), "processors": {0}, "memory": 0}  # last, remote
    assert losses[1:] == pytest.approx([losses[0]] * 3, rel=1e-3)


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
