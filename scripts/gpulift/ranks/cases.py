"""Techniques as given ranks can measure them: with cases of as many ranks, on as many nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpulift.ground.whole import write_whole

Json = dict[str, Any]

LINK, GPUS, NODES = "link", "gpus", "nodes"  # axes
FABRIC = "fabric"  # the link between GPUs of several nodes
GLOO = "gloo"  # that of ranks on processors, wherever they are
KEPT = ("id", "question")  # of what cannot be measured
REMEDY = "run it without --ranks given"


def write_modules(folder: Path, of: Iterable[Path], ranks: int, nodes: int) -> None:
    """A folder of modules with the manifests of these, rewritten; all else is linked."""
    folder.mkdir()
    for file in (file for modules in of for file in sorted(modules.iterdir())):
        link = folder / file.name
        if file.suffix == ".json":
            manifest = rewritten(json.loads(file.read_bytes()), ranks, nodes)
            write_whole(json.dumps(manifest) + "\n", link, lasting=False)
        elif not link.exists():
            link.symlink_to(file.absolute())


def rewritten(manifest: Json, ranks: int, nodes: int) -> Json:
    """With the cases that so many ranks can measure, or why there are none."""
    if manifest.get("unavailable"):
        return manifest
    cases, reason = cases_of(manifest, ranks, nodes)
    if reason:
        kept: Json = {key: value for key, value in manifest.items() if key in KEPT}
        return {**kept, "unavailable": reason, "remedy": REMEDY}
    # What was predicted is of one host.
    return {**manifest, "cases": cases, **({"predict": []} if nodes > 1 else {})}


def cases_of(manifest: Json, ranks: int, nodes: int) -> tuple[list[Json], str]:
    """The cases, or else why there are none."""
    if nodes > 1 and not manifest.get("spans_hosts", False):
        return [], "its ranks are all on one host"
    wanted = set(manifest.get("ranks", {}).values())
    if not wanted and manifest.get("spans_hosts", False):
        wanted = {GPUS}  # a module's axis
    axes = {axis for axis in wanted if isinstance(axis, str)}
    fixed = {number for number in wanted if isinstance(number, int)} - {1, ranks}
    if not axes and not wanted - {1}:
        return [], "it has no ranks"
    if fixed:
        return [], f"it has {max(fixed)} ranks, and {ranks} were given"
    found: dict[str, Json] = {}
    for case in manifest["cases"]:
        point = point_of(case["point"], axes, ranks, nodes)
        identity = "/".join(f"{axis}:{value}" for axis, value in point.items())
        quick = case["quick"] or found.get(identity, {}).get("quick", False)
        found[identity] = {**case, "id": identity, "point": point, "quick": quick}
    return list(found.values()), ""


def point_of(point: Json, axes: set[str], ranks: int, nodes: int) -> Json:
    """With so many ranks; across nodes with their number, and the link that is between them."""
    point = {**point, **{axis: ranks for axis in axes if axis in point}}
    if nodes == 1:
        return point
    if point.get(LINK, GLOO) != GLOO:
        point[LINK] = FABRIC
    return {**point, NODES: nodes}
