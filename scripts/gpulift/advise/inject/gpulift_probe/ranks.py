"""The ranks of a training on this host, which take every step at once and decide alike."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

WAIT_S = 300.0  # in which a rank comes along: compilers take long
HOSTS = "its ranks are on several hosts, of which advise follows those of one alone"
UNEVEN = "its ranks have {} batches an epoch: each needs as many, as of accelerate's even_batches"
NO_GROUP = "WORLD_SIZE is {}, and its first step was taken without a process group"


class Ranks:
    """One of so many, which meet in the store that the process group was made by."""

    def __init__(self, rank: int = 0, world: int = 1, store: Any = None) -> None:
        self.rank, self.world = rank, world
        self._store, self._met = store, 0

    def gather(self, value: Any) -> list[Any]:
        """What each of them has, once all came here. It waits for no device.

        Raises RuntimeError that names a rank which does not come."""
        if self.world == 1:
            return [value]
        self._met += 1
        self._store.set(f"{self._met}/{self.rank}", json.dumps(value))
        return [self._of(rank) for rank in range(self.world)]

    def first(self, value: Any) -> Any:
        """What rank 0 has, which decides."""
        return self.gather(value)[0]

    def _of(self, rank: int) -> Any:
        key = f"{self._met}/{rank}"
        try:
            self._store.wait([key], timedelta(seconds=WAIT_S))
        except RuntimeError:
            raise RuntimeError(f"rank {rank} did not come along in {WAIT_S:.0f} s") from None
        return json.loads(self._store.get(key))


def own_rank() -> int:
    """Of this process; 0 where it has no others."""
    return dist.get_rank() if _is_grouped() else 0


def of_job() -> Ranks:
    """Those of the process group that there is by now."""
    if not _is_grouped() or dist.get_world_size() == 1:
        return Ranks()
    from torch.distributed.distributed_c10d import _get_default_store

    store = dist.PrefixStore("gpulift_advise", _get_default_store())
    return Ranks(dist.get_rank(), dist.get_world_size(), store)


def refusal(ranks: Ranks, lengths: Iterable[int | None] = ()) -> str:
    """Why the ranks cannot be followed; empty where they can. `lengths`: batches of their epochs,
    where known: of fewer a rank would leave out a step that others take."""
    told = os.environ.get("WORLD_SIZE", "1")
    if ranks.world == 1:
        return "" if told in ("", "1") or _is_grouped() else NO_GROUP.format(told)
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local.isdecimal() and int(local) != ranks.world:
        return HOSTS
    if len(set(ranks.gather(socket.gethostname()))) > 1:
        return HOSTS
    several = dict.fromkeys(str(length) for length in lengths if length)
    return UNEVEN.format(" and ".join(several)) if len(several) > 1 else ""


def _is_grouped() -> bool:
    return bool(dist.is_available() and dist.is_initialized())
