"""Which cases given ranks have, and why others have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpulift.ranks import cases

Json = dict[str, Any]


def manifest(sweep: list[Json], ranks: Json, *, spans_hosts: bool = True) -> Json:
    listed = [
        {"id": "/".join(f"{k}:{v}" for k, v in point.items()), "point": point, "quick": index == 0}
        for index, point in enumerate(sweep)
    ]
    said = {"id": "theme/name", "question": "?", "predict": [{"arm": "x"}], "cases": listed}
    return {**said, "ranks": ranks, "spans_hosts": spans_hosts}


def ids(made: Json) -> list[str]:
    return [case["id"] for case in made["cases"]]


LINKS = [{"ranks": ranks, "link": link} for ranks in (2, 4) for link in ("nvlink", "host", "gloo")]
OVERLAP = manifest(LINKS, {"base": "ranks", "other": "ranks"})


def test_one_host_has_its_cases_as_ever() -> None:
    made = cases.rewritten(OVERLAP, 4, 1)
    assert ids(made) == ["ranks:4/link:nvlink", "ranks:4/link:host", "ranks:4/link:gloo"]
    assert [case["quick"] for case in made["cases"]] == [True, False, False]
    assert made["predict"] == OVERLAP["predict"]


def test_several_have_the_fabric_between_gpus() -> None:
    made = cases.rewritten(OVERLAP, 16, 2)
    assert ids(made) == ["ranks:16/link:fabric/nodes:2", "ranks:16/link:gloo/nodes:2"]
    assert made["cases"][0]["point"] == {"ranks": 16, "link": "fabric", "nodes": 2}
    assert made["cases"][0]["quick"], "one that became it is"
    assert made["predict"] == [], "that was of one host"


def test_a_baseline_of_one_rank_is_no_hindrance() -> None:
    made = cases.rewritten(manifest([{"gpus": 2}], {"ddp": "gpus"}), 16, 2)
    assert ids(made) == ["gpus:16/nodes:2"]


def test_a_module_has_the_axis_of_its_gpus() -> None:
    module = manifest([{"gpus": 2, "link": "nvlink", "bytes": 8}], {})
    assert ids(cases.rewritten(module, 4, 2)) == ["gpus:4/link:fabric/bytes:8/nodes:2"]


@pytest.mark.parametrize(
    ("made", "ranks", "nodes", "why"),
    [
        (manifest([{}], {"a": 2}), 4, 1, "it has 2 ranks, and 4 were given"),
        (manifest([{}], {}, spans_hosts=False), 2, 1, "it has no ranks"),
        (manifest([{}], {"a": 1}, spans_hosts=False), 2, 1, "it has no ranks"),
        (manifest(LINKS, {"a": "ranks"}, spans_hosts=False), 2, 2, "its ranks are all on one host"),
    ],
)
def test_what_has_none_says_why(made: Json, ranks: int, nodes: int, why: str) -> None:
    assert cases.rewritten(made, ranks, nodes)["unavailable"] == why


def test_as_many_ranks_as_it_always_has_fit() -> None:
    made = cases.rewritten(manifest([{"link": "host"}], {"a": 2, "b": 2}), 2, 2)
    assert ids(made) == ["link:fabric/nodes:2"]


def test_modules_are_linked_beside_their_manifests(tmp_path: Path) -> None:
    build, own = tmp_path / "build", tmp_path / "own"
    for folder, name in ((build, "a.b"), (own, "c.d")):
        folder.mkdir()
        (folder / f"{name}.json").write_text(json.dumps(OVERLAP))
        (folder / f"{name}.py").write_text(name)
        (folder / "gpulift_worker.py").write_text("worker")
    cases.write_modules(tmp_path / "made", [build, own], 2, 2)
    made = sorted(file.name for file in (tmp_path / "made").iterdir())
    assert made == ["a.b.json", "a.b.py", "c.d.json", "c.d.py", "gpulift_worker.py"]
    assert (tmp_path / "made" / "c.d.py").read_text() == "c.d"
    told = json.loads((tmp_path / "made" / "c.d.json").read_text())
    assert ids(told) == ["ranks:2/link:fabric/nodes:2", "ranks:2/link:gloo/nodes:2"]
