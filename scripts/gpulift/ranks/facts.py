"""What a rank tells the first one of its host before anything is measured."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from gpulift.engine import machine, runs
from gpulift.engine.measuring import BOOT_ID
from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import finished
from gpulift.ranks.launched import Launched
from gpulift.records.model import Context

Json = dict[str, Any]

ANSWER_S = 50
VERSIONS = """
import importlib.metadata, json
named = {str(d.metadata["Name"]).lower(): d.version for d in importlib.metadata.distributions()}
wanted = {n: v for n, v in named.items() if n == "torch" or n.startswith("nvidia-nccl")}
print(json.dumps(wanted))
"""
KINDS = {
    1: "ethernet",
    32: "infiniband",
    772: "loopback",
}  # of /sys/class/net/*/type: <net/if_arp.h>
NET = Path("/sys/class/net")
INFINIBAND = Path("/sys/class/infiniband")


def python_of(named: Path | None) -> Path:
    """The interpreter of Python arms."""
    return named or Path(os.environ.get("GPULIFT_SETUP_PYTHON") or sys.executable)


def facts_here(bench: Path, python: Path, place: Launched) -> Json:
    """Of this rank's host and its own GPU: `alike` has what all ranks must have in common."""
    context = machine.describe(bench)
    gpu = None
    if context.gpu is not None:
        gpu = own_gpu(machine.gpus_named(bench, "all"), place)
        context = machine.describe_asked(bench, gpu)
    here, there = ends_towards(place)
    return {
        "node": node_here(),
        "gpu": gpu,
        "cores": context.facts["host"].get("cores", 0),
        "alike": {"gpulift": build_of(context, bench), **versions_of(python)}
        | {"GPU": context.gpu.name if context.gpu else "none"},
        "about": {
            key: context.facts[key] for key in ("host", "gpu", "driver") if key in context.facts
        },
        "here": here,
        "there": there,
        "fabric": fabric_of(interface_of(here)),
    }


def node_here() -> str:
    """This host and its network. Nodes that boot one image may have one machine-id."""
    return f"{BOOT_ID.read_text().strip()} {os.readlink('/proc/self/ns/net')}"


def own_gpu(visible: Sequence[int], place: Launched) -> int:
    """That of its number on the host, or the only one where the launcher hides the others. Throws
    GpuliftError where there are too few."""
    if place.local_rank < len(visible):
        return visible[place.local_rank]
    if len(visible) == 1:
        return visible[0]
    raise GpuliftError(
        f"--ranks given: rank {place.rank} is number {place.local_rank} on its host, which has"
        f" {len(visible)} GPUs: start as many ranks there"
    )


def build_of(context: Context, bench: Path) -> str:
    """The commit of the build, and where that does not say what was built, a hash of it."""
    commit = context.build.commit[: runs.COMMIT_DIGITS]
    return f"{commit} ({runs.fingerprint(bench)})" if context.build.doubt else commit


def versions_of(python: Path) -> dict[str, str]:
    """Of torch and NCCL, as this interpreter would import them."""
    try:
        done = finished([python, "-c", VERSIONS], ANSWER_S)
        found = dict(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise GpuliftError(f"--ranks given: {python} does not tell its packages") from None
    nccl = sorted(version for name, version in found.items() if name != "torch")
    return {"torch": found.get("torch", "none"), "NCCL": ", ".join(nccl) or "none"}


def ends_towards(place: Launched) -> tuple[str, str]:
    """Our address on the way to rank 0's host, and its own as this host knows it."""
    with suppress(OSError):
        family, kind, protocol, _, address = socket.getaddrinfo(
            place.address, place.port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as way:
            way.connect(address)  # nothing is sent
            return str(way.getsockname()[0]), str(address[0])
    return "", ""


def interface_of(address: str) -> str:
    """The interface that has the address; empty where none does."""
    found = psutil.net_if_addrs().items()
    return next((name for name, ends in found if address in (end.address for end in ends)), "")


def fabric_of(interface: str) -> Json:
    """What the host has to reach others by: the interface's link and every active port of
    InfiniBand or RoCE, with their rates as they tell them."""
    fabric: Json = {}
    stats = psutil.net_if_stats().get(interface)
    if stats is not None:
        kind = NET / interface / "type"
        number = int(kind.read_text()) if kind.is_file() else 0
        fabric["link"] = KINDS.get(number, "other")
        fabric["virtual"] = not (NET / interface / "device").exists()
        if stats.speed > 0:
            fabric["rate_bits_per_s"] = stats.speed * 1e6
    ports = Counter(filter(None, map(_port, sorted(INFINIBAND.glob("*/ports/*")))))
    if ports:
        fabric["rdma"] = [{"port": port, "count": count} for port, count in ports.items()]
    return fabric


def _port(folder: Path) -> str:
    """`InfiniBand, 400 Gb/sec (4X NDR)`; empty where it is down."""
    with suppress(OSError):
        state, layer, rate = (
            (folder / name).read_text().strip() for name in ("state", "link_layer", "rate")
        )
        return f"{layer}, {rate}" if "ACTIVE" in state else ""
    return ""


def nodes_of(facts: Sequence[Json]) -> list[int]:
    """The number of each rank's host, in the order of their first ranks."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(rank["node"], len(numbers)) for rank in facts]


def require_alike(facts: Sequence[Json]) -> None:
    """Throws GpuliftError, which names rank and node, where one has another version or GPU."""
    nodes = nodes_of(facts)
    for rank, (theirs, node) in enumerate(zip(facts, nodes, strict=True)):
        for name, first in facts[0]["alike"].items():
            found = theirs["alike"].get(name, "none")
            if found != first:
                raise GpuliftError(
                    f"--ranks given: rank {rank} (node {node}) has {name} {found}, and rank 0"
                    f" {first}: all have to be alike"
                )


def places_of(facts: Sequence[Json]) -> list[Json]:
    """Of each rank its node, its number there, how many are there, and its GPU."""
    nodes = nodes_of(facts)
    return [
        {
            "node": node,
            "local_rank": nodes[:rank].count(node),
            "local_ranks": nodes.count(node),
            "gpu": facts[rank]["gpu"],
        }
        for rank, node in enumerate(nodes)
    ]


def for_records(facts: Sequence[Json], launcher: str) -> Json:
    """Who started the ranks, and of each host what it is and how it reaches the others."""
    nodes = nodes_of(facts)
    firsts = [nodes.index(node) for node in range(max(nodes) + 1)]
    return {
        "launcher": launcher,
        "ranks": len(facts),
        "nodes": len(firsts),
        "hosts": [
            {
                **facts[first]["about"],
                "ranks": nodes.count(node),
                "fabric": facts[first]["fabric"],
            }
            for node, first in enumerate(firsts)
        ],
    }
