"""host/numa_binding: threads and memory of a process beside its GPU, or on another node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gpulift_work.numa import bind_as_torchrun, bind_memory, nodes_with_processors, share_on
from gpulift_work.training import Training, device_of, leave_a_core_free, mark_on, set_up
from gpulift_worker import Arm, Failed, Skip

TECHNIQUE = {
    "question": "What is it worth to bind a process to the NUMA node of its GPU?",
    "expectation": (
        "Two sockets. Pinned memory of the far node crosses the link between them on its way to "
        "the GPU: PCIe 5.0 at 55 GB/s is slower than that link, which other traffic shares, so "
        "that 64 MiB take 1.2 ms from either: local 1.0 to 1.1 of unbound, remote 0.8 to 1.0. A "
        "step that its launches set the pace of reads and writes the GPU's queue and its own data "
        "for each of them: local 1.1, remote 0.9; unbound runs where the scheduler put it, which "
        "is one or the other. local is as numactl --cpunodebind --membind; torchrun_node, as "
        "torchrun --numa-binding=node, binds threads alone, which touch their memory first: the "
        "same as local. The host's own copies at 200 GB/s near and 120 far: remote 0.6. On a "
        "machine of one node nothing is far."
    ),
    "predict": [
        "work:pinned_copy: unbound 1.08-1.32 ms, local 1-1.1, torchrun_node 1-1.1, remote 0.8-1",
        "work:launches: local 0.99-1.21, torchrun_node 0.99-1.21, remote 0.81-0.99",
        "work:host_copy: remote 0.54-0.66",
    ],
    "claims": ["numa-binding-faster"],
    "arms": ["unbound", "local", "torchrun_node", "remote"],
    "controls": ["remote"],
    "l2": "warm",
    "page_cache": "none",
    "sweep": {"work": ["host_copy", "pinned_copy", "launches"]},
    "check": {
        "meaning": "bytes that differ; of training the loss after five steps, relative",
        "tolerance": 1e-3,
    },
}
COPIED_BYTES = 64 << 20
CHECKED_STEPS = 5
PLACED_SHARE = 0.99  # of the pages, that must lie where they were asked for
PCI = Path("/sys/bus/pci/devices")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Binds this process first: memory lies where it is touched first."""
    work = str(point["work"])
    if work != "host_copy" and gpu is None:
        raise Skip("copies to a GPU and launches need one", "use a machine with a GPU")
    nodes = nodes_with_processors()
    if len(nodes) < 2:
        raise Skip(
            "not applicable: this process may use one NUMA node, on which all memory is local",
            "use a machine of several nodes, and a container that may use more than one of them",
        )
    near = min(nodes) if work == "host_copy" else node_of(gpu)
    if near not in nodes:
        raise Skip("this process may not use the GPU's NUMA node", "allow the container its CPUs")
    far = next(node for node in nodes if node != near)
    if arm == "torchrun_node":
        bind_as_torchrun(gpu if work != "host_copy" else None, "node")
    memory = {"local": near, "remote": far}.get(arm)
    if memory is not None:
        # The host's copies have the same processors in both: what differs is where the memory is.
        bind_threads(nodes[near if work == "host_copy" else memory])
        bind_memory(memory)
    notes = {"nodes": str(len(nodes))}
    if work == "launches":
        return launches(seed, gpu, notes)
    return copies(gpu if work == "pinned_copy" else None, memory, near, notes)


def copies(gpu: int | None, memory: int | None, near: int, notes: Mapping[str, str]) -> Arm:
    """Of a block that lies on the node, to the GPU or to another block there."""
    device = device_of(gpu)
    leave_a_core_free()
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, pin_memory=gpu is not None)
    source.random_(0, 256)
    target = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=device)
    if memory is not None:
        require_placement(source, memory)

    def synchronize() -> None:
        if gpu is not None:
            torch.cuda.synchronize(device)

    return Arm(
        step=lambda: target.copy_(source, non_blocking=True),
        error=lambda: float((target.cpu() != source).sum()),
        synchronize=synchronize,
        mark=None if gpu is None else lambda: mark_on(device),
        metrics=lambda: {"local_share": share_on(source, near)},
        bytes=COPIED_BYTES * (1 if gpu is not None else 2),
        roof="host_memory" if gpu is None else "host_link/h2d",
        notes=notes,
    )


def launches(seed: int, gpu: int | None, notes: Mapping[str, str]) -> Arm:
    """Training steps of a toy, whose pace the host sets."""
    device = device_of(gpu)
    set_up(device)
    training = Training("gpt_toy", device, seed)

    def loss() -> float:
        training.record()
        training.train_until(CHECKED_STEPS)
        return training.losses[-1]

    return Arm(
        step=training.step,
        value=loss,
        synchronize=training.synchronize,
        items=training.input.numel(),
        item="token",
        notes=notes,
    )


# --- Where things are ---


def node_of(gpu: int | None) -> int:
    """Beside which the GPU is. Raises Skip where the system does not say."""
    of: Any = torch.cuda.get_device_properties(device_of(gpu))
    place = f"{of.pci_domain_id:04x}:{of.pci_bus_id:02x}:{of.pci_device_id:02x}.0"
    try:
        node = int((PCI / place / "numa_node").read_text(encoding="ascii"))
    except OSError:
        node = -1
    if node < 0:
        raise Skip("the system does not say which NUMA node the GPU is beside", "ask on the host")
    return node


def bind_threads(processors: set[int]) -> None:
    """Of this thread, and of all that it starts. Raises Failed where they run elsewhere."""
    os.sched_setaffinity(0, processors)
    if os.sched_getaffinity(0) != processors:
        raise Failed("the process does not run on the processors that it was bound to")


def require_placement(tensor: torch.Tensor, node: int) -> None:
    """Raises Failed where its pages lie elsewhere, whatever was asked for."""
    share = share_on(tensor, node)
    if share < PLACED_SHARE:
        raise Failed(f"{share:.0%} of the memory lies on the node that it was bound to")
