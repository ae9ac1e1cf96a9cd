"""`run --ranks given`: the process that a launcher started for a rank measures, or serves."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpulift.engine import machine
from gpulift.engine.measuring import Options
from gpulift.ground.errors import FAILED, INTERRUPTED, USAGE, GpuliftError
from gpulift.ground.whole import temporary_folder, write_whole
from gpulift.ranks import cases, facts, key, relay
from gpulift.ranks.hub import Hub
from gpulift.ranks.launched import LOOPBACK, Launched, launched
from gpulift.ranks.server import Here, serve
from gpulift.ranks.store import LOG_LEVEL, MEETING_S, Forged, Lost, Store, meet

Json = dict[str, Any]
Say = Callable[[str], None]
Measure = Callable[[Options], int]

WORD = "given"  # what --ranks takes
VERDICT = "verdict"
NONCE = "nonce"  # in what a rank tells first
SILENT = USAGE  # of ranks whose refusal rank 0 has told
NAMED = 5  # techniques in a line
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
# Of this process, and of no worker: an arm of one rank is alone.
PLACE = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "TORCHELASTIC_USE_AGENT_STORE",
)


def run(options: Options, measure: Measure, say: Say) -> int:
    """The exit code, the same on all ranks. Throws GpuliftError."""
    place = launched(os.environ)
    alike = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE", "")
    on_one_host = alike or place.address in (LOOPBACK, "localhost")
    secret = key.key_of(os.environ, on_one_host=on_one_host)
    for name in (*PLACE, key.VARIABLE):
        os.environ.pop(name, None)
    bench = machine.find_bench()
    store = meet(place, secret)
    try:
        if place.rank == 0:
            return _lead(place, bench, options, store, measure, say)
        return _follow(place, bench, options, store)
    except Lost:
        raise GpuliftError(
            f"--ranks given: rank {place.rank} no longer hears of the others", FAILED
        ) from None


def require_given(word: str, options: Options) -> None:
    """Throws GpuliftError for another word, and where GPUs are named: the launcher says which."""
    if word != WORD:
        raise GpuliftError(f"--ranks {word}: takes {WORD} alone, for ranks that a launcher started")
    if options.gpus or options.gpu is not None:
        raise GpuliftError("--ranks given: each rank has the GPU of its number; leave --gpus out")


def _module_folders(bench: Path, options: Options) -> tuple[Path, ...]:
    return (bench.parent / "modules", *options.more_modules)


def _follow(place: Launched, bench: Path, options: Options, store: Store) -> int:
    """Another rank: tells what it is, hears what all of them are, and serves."""
    python = facts.python_of(options.python)
    try:
        here = facts.facts_here(bench, python, place)
    except GpuliftError as error:
        store.put(f"facts/{place.rank}", {"error": str(error)})
        raise
    nonce = secrets.token_hex()
    store.put(f"facts/{place.rank}", {**here, NONCE: nonce})
    try:
        verdict = store.get(VERDICT, 2 * MEETING_S)
    except Forged:
        raise _other_key(place.rank, 0) from None
    if verdict is None:
        raise Lost
    if "refused" in verdict:
        store.put(f"{place.rank}/left", {})
        return SILENT
    if verdict["nonces"][place.rank : place.rank + 1] != [nonce]:
        raise Lost  # it is of another run
    store.bind(verdict["nonces"])
    environment = {"GPULIFT_CORES": str(here["cores"])} | _variables(here["here"])
    modules = _module_folders(bench, options)
    return serve(store, Here(place.rank, bench, python, modules, here["gpu"], environment))


def _lead(
    place: Launched, bench: Path, options: Options, store: Store, measure: Measure, say: Say
) -> int:
    """Rank 0: looks whether all are there and alike, then measures."""
    try:
        own = facts.facts_here(bench, facts.python_of(options.python), place)
        everyone = [own, *_gathered(store, place.ranks)]
        facts.require_alike(everyone)
    except GpuliftError as error:
        _refuse(store, place.ranks, str(error))
        raise
    nodes = facts.nodes_of(everyone)
    with temporary_folder() as folder:
        nonces = [secrets.token_hex(), *(one[NONCE] for one in everyone[1:])]
        store.put(VERDICT, {"nonces": nonces})
        store.bind(nonces)
        hub = Hub(store, folder, nodes)
        code = FAILED
        try:
            described = _described(place, everyone, hub.path)
            say(_told(place, described["facts"]))
            code = measure(_with_ranks(options, bench, described, folder, say))
        except GpuliftError as error:
            code = error.exit_code
            raise
        except KeyboardInterrupt:
            code = INTERRUPTED
            raise
        finally:
            hub.close(code)
    return code


def _gathered(store: Store, ranks: int) -> list[Json]:
    """What each other rank told. Throws GpuliftError where some did not come or failed."""
    until_s = time.monotonic() + MEETING_S
    told: list[Json | None] = []
    for rank in range(1, ranks):
        try:
            told.append(store.get(f"facts/{rank}", max(0.1, until_s - time.monotonic())))
        except Forged:
            raise _other_key(0, rank) from None
    missing = [str(rank) for rank, one in enumerate(told, 1) if one is None]
    if missing:
        raise GpuliftError(
            f"--ranks given: rank {', '.join(missing)} of {ranks} did not come within"
            f" {MEETING_S:.0f} s"
        )
    for rank, one in enumerate(told, 1):
        if one and "error" in one:
            raise GpuliftError(f"--ranks given: rank {rank}: {one['error']}")
    return [one for one in told if one is not None]


def _other_key(rank: int, other: int) -> GpuliftError:
    """Of what a rank hears of another."""
    return GpuliftError(
        f"--ranks given: what rank {rank} hears of rank {other} is not signed by its own key: give"
        f" all ranks one {key.VARIABLE}, or hosts a home that they share, with"
        f" {key.file_of(os.environ)}"
    )


def _refuse(store: Store, ranks: int, why: str) -> None:
    """Lets the others end, and waits until those that are there have heard it."""
    with suppress(Lost):
        store.put(VERDICT, {"refused": why})
        there = [rank for rank in range(1, ranks) if store.wait(f"facts/{rank}", 0.1)]
        until_s = time.monotonic() + 5
        for rank in there:
            store.wait(f"{rank}/left", max(0.1, until_s - time.monotonic()))


def _described(place: Launched, everyone: Sequence[Json], hub: Path) -> Json:
    """The ranks as gpulift-bench reads them."""
    nodes = facts.nodes_of(everyone)
    # As a rank on another node knows it: on its own host a name may mean the loopback.
    far = next((rank for rank, node in enumerate(nodes) if node > 0), None)
    address = LOOPBACK if far is None else everyone[far]["there"]
    return {
        "relay": [sys.executable, "-I", "-S", relay.__file__, str(hub)],
        "address": address,
        "environment": _variables(address),
        "places": facts.places_of(everyone),
        "facts": facts.for_records(everyone, place.launcher),
    }


def _variables(address: str) -> dict[str, str]:
    """Of this host's workers, but for what the user chose: the interface that Gloo takes, which
    would else look for this host's name, and that torch does not warn of hosts without one."""
    interface = facts.interface_of(address)
    wanted = {**({GLOO_INTERFACE: interface} if interface else {}), LOG_LEVEL: "ERROR"}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _with_ranks(options: Options, bench: Path, described: Json, folder: Path, say: Say) -> Options:
    ranks, nodes = described["facts"]["ranks"], described["facts"]["nodes"]
    modules = folder / f"given_{ranks}_on_{nodes}"
    cases.write_modules(modules, _module_folders(bench, options), ranks, nodes)
    file = folder / "given.json"
    write_whole(json.dumps(described), file, lasting=False)
    _tell_left_out(machine.select(machine.catalogue(bench, (), modules), options.filter), say)
    gpus = dict.fromkeys(one["gpu"] for one in described["places"] if one["node"] == 0)
    own = tuple(gpu for gpu in gpus if gpu is not None)
    return replace(
        options,
        gpu=own[0] if len(own) == 1 else None,
        gpus=own if len(own) > 1 else (),
        modules=modules,
        more_modules=(),
        given_ranks=file,
    )


def _tell_left_out(chosen: Sequence[machine.TechniqueInfo], say: Say) -> None:
    """Of techniques that the filter names and given ranks cannot measure, why."""
    by_reason: dict[str, list[str]] = {}
    for info in chosen:
        if info.unavailable:
            by_reason.setdefault(info.unavailable, []).append(info.id)
    for reason, names in by_reason.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        say(f"skipped, {reason}: {', '.join(names[:NAMED])}{more}")


def _told(place: Launched, about: Json) -> str:
    nodes = "1 node" if about["nodes"] == 1 else f"{about['nodes']} nodes"
    return f"{about['ranks']} ranks on {nodes}, started by {place.launcher}"
