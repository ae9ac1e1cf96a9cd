"""What NCCL is told in the environment of an arm's ranks, what it then takes, and memory of its own
that all ranks map."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpulift_worker import Skip

RING_OR_TREE = r"Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}"
OF_SYMMETRIC = r"Kernel (\w+) nchannels (\d+)"
VIA = r" via (\w+(?:/[A-Za-z]\w*)*)"  # NET/Socket/0, NET/IB/0/GDRDMA, P2P/CUMEM/read
COPY_ENGINES = "Init CE"  # what NCCL says when a call takes them for the first time


def require_settings(arm: str, settings: Mapping[str, Mapping[str, str]]) -> None:
    """Of variables by arm. Throws RuntimeError where the arm was started without its own, Skip
    where it has one of NCCL's that is another arm's."""
    own = settings.get(arm, {})
    for name in sorted({name for of_arm in settings.values() for name in of_arm}):
        value = os.environ.get(name)
        if name in own and value != own[name]:
            raise RuntimeError(f"{arm} was started without {name}={own[name]}")
        if name not in own and value is not None and name.startswith("NCCL_"):
            raise Skip(f"{name} is set: {arm} cannot be seen without it", f"unset {name}")


def require_peer_memory(link: str) -> None:
    """Throws Skip where GPUs exchange through the host: none maps the other's memory there."""
    if link == "host":
        raise Skip("GPUs map each other's memory over NVLink", "take the case link:nvlink")


def log_choices() -> Path:
    """The file to which NCCL writes what it takes for each call. To be called before it starts."""
    return _log("INIT,TUNING")


def log_transport() -> Path:
    """The file to which NCCL writes by what each channel goes. To be called before it starts."""
    return _log("INIT,NET")


def transport_in(log: Path) -> str:
    """By what this rank's channels go, as NCCL calls it: "NET/IB, P2P/CUMEM"."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return ", ".join(sorted(set(re.findall(VIA, text)))) or "not told"


def _log(subsystems: str) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="gpulift-nccl-")
    atexit.register(folder.cleanup)
    log = Path(folder.name) / "log"
    os.environ["NCCL_DEBUG"], os.environ["NCCL_DEBUG_SUBSYS"] = "INFO", subsystems
    os.environ["NCCL_DEBUG_FILE"] = str(log)
    return log


def choice_in(log: Path, call: str) -> str:
    """What NCCL took for the last such call, AllReduce say: algorithm, protocol and channels. It
    tells it on rank 0 alone."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if COPY_ENGINES in text:  # of a single call it says nothing then
        return "copy engines"
    taken = "not told"
    for line in text.splitlines():
        if f" {call}" not in line:
            continue
        if found := re.search(RING_OR_TREE, line):
            algorithm, protocol, first, last = found.groups()
            taken = f"{algorithm} {protocol}, {int(last) - int(first) + 1} channels"
        elif found := re.search(OF_SYMMETRIC, line):
            taken = f"{found[1]}, {found[2]} channels"
    return taken


def mapped_empty(
    numbers: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.cuda.MemPool]:
    """So many numbers in memory of NCCL's own that all ranks register together, which lets it take
    kernels and copies that reach into it. The pool lives as long as the tensor. Throws Skip where
    NCCL has none."""
    backend: Any = dist.group.WORLD._get_backend(device)
    try:
        pool = torch.cuda.MemPool(backend.mem_allocator)
    except RuntimeError as error:
        raise Skip(f"NCCL gives no memory of its own: {error}", "use GPUs with NVSwitch") from error
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.empty(numbers, dtype=dtype, device=device)
    backend.register_mem_pool(pool, symm=True)
    return tensor, pool
