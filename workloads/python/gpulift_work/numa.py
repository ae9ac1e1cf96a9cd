"""Where threads run and pages lie, by the libraries that launchers bind with: libnuma, which is
numactl's, and torchrun's own module."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import mmap
import os
import shutil
from functools import cache
from typing import Any

import torch
from gpulift_worker import Skip

LIBRARY = "libnuma.so.1"
ALLOW = "allow the container SYS_NICE"


@cache
def library() -> Any:
    """libnuma. Raises Skip where there is none, or the system does not let it work."""
    try:
        numa = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        raise Skip(f"{LIBRARY} is not installed", "install libnuma1") from error
    if numa.numa_available() < 0:
        raise Skip("the system does not tell its NUMA nodes", ALLOW)
    for name in ("numa_get_mems_allowed", "numa_get_membind", "numa_allocate_nodemask"):
        getattr(numa, name).restype = ctypes.c_void_p
    for name in ("numa_bitmask_isbitset", "numa_bitmask_setbit"):
        getattr(numa, name).argtypes = (ctypes.c_void_p, ctypes.c_uint)
    numa.numa_set_membind.argtypes = (ctypes.c_void_p,)
    numa.numa_bitmask_equal.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    numa.numa_move_pages.argtypes = (
        ctypes.c_int,
        ctypes.c_ulong,
        *[ctypes.c_void_p] * 3,
        ctypes.c_int,
    )
    return numa


def nodes_with_processors() -> dict[int, set[int]]:
    """The processors by nodes whose memory this process may use, too."""
    numa = library()
    memories = numa.numa_get_mems_allowed()
    nodes: dict[int, set[int]] = {}
    for processor in sorted(os.sched_getaffinity(0)):
        node = numa.numa_node_of_cpu(processor)
        if node >= 0 and numa.numa_bitmask_isbitset(memories, node):
            nodes.setdefault(node, set()).add(processor)
    return dict(sorted(nodes.items()))


def bind_memory(node: int) -> None:
    """New pages lie on this node alone. Raises Skip where the system does not allow it."""
    numa = library()
    mask = numa.numa_allocate_nodemask()
    numa.numa_bitmask_setbit(mask, node)
    numa.numa_set_membind(mask)
    if not numa.numa_bitmask_equal(numa.numa_get_membind(), mask):
        raise Skip("memory cannot be bound to a node", ALLOW)


def share_on(tensor: torch.Tensor, node: int) -> float:
    """Of the pages of a tensor on the host that were touched. Raises Skip where the system does not
    tell."""
    start = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    places = range(start, tensor.data_ptr() + tensor.nbytes, mmap.PAGESIZE)
    pages = (ctypes.c_void_p * len(places))(*places)
    nodes = (ctypes.c_int * len(places))()
    if library().numa_move_pages(0, len(places), pages, None, nodes, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise Skip(f"the system does not tell on which node memory lies: {reason}", ALLOW)
    return sum(one == node for one in nodes) / len(places)


def bind_as_torchrun(gpu: int | None, mode: str) -> None:
    """This process, as `torchrun --numa-binding` binds a rank. Raises Skip where it cannot."""
    if gpu is None:
        raise Skip("torchrun binds ranks beside their GPUs", "use a machine with a GPU")
    if shutil.which("numactl") is None:
        raise Skip("torchrun's binding needs numactl, which is not installed", "install numactl")
    try:
        binding: Any = importlib.import_module("torch.numa.binding")
        options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
        bind = binding._maybe_apply_numa_binding_to_current_process
        device, *_ = inspect.signature(bind).parameters  # gpu_index, from 2.14 on device_index
        bind(**{device: gpu}, numa_options=options)
    except (ImportError, AttributeError) as error:
        raise Skip(f"this torch does not bind by {mode}", "install torch 2.9") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise Skip(f"torchrun cannot bind by {mode} here: {error}") from error
