"""What techniques are today, where nothing is built."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.today import DIGITS, FILE, UNKNOWN, Today, read_today
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from tests import sample
from tools.today import made

KERNEL = b"of several"
SOURCE = {"copy.cpp": "0" * 64, "kernels/copy.cu": sha256(KERNEL).hexdigest()}


def manifest(**changes: Any) -> dict[str, Any]:
    """Of a technique with two axes, as a build has it."""
    points = [{"n": n, "regime": regime} for n in (1, 2) for regime in ("burst", "sustained")]
    whole = {
        "id": "a/b",
        "arms": ["base", "new"],
        "controls": ["new"],
        "cases": [{"id": "", "point": point} for point in points],
        "source": SOURCE,
    }
    return whole | changes


def today(folder: Path, *manifests: dict[str, Any]) -> Today:
    """As a checkout with these manifests and one kernel has it."""
    modules, results = folder / "modules", folder / "results"
    for made_here in (modules, results, folder / "kernels" / "testing"):
        made_here.mkdir(exist_ok=True, parents=True)
    for name in ("copy.cu", "copy_test.cpp", "testing/reference.cpp", "README.md"):
        (folder / "kernels" / name).write_bytes(KERNEL)
    for old in modules.glob("*.json"):
        old.unlink()
    for one in manifests:
        (modules / f"{one['id'].replace('/', '.')}.json").write_text(json.dumps(one), "utf-8")
    (results / FILE).write_text(made(results, modules), "utf-8")
    return read_today(results)


def record(case: dict[str, Any], technique: str = "a/b", **top: Any) -> Record:
    return read_record(sample.record(technique, case, [sample.arm("base", 1e-3)], **top))


def test_a_technique_is_as_its_manifest_says(tmp_path: Path) -> None:
    known = today(tmp_path, manifest())
    found = known.declared("a/b")
    assert found is not None
    assert (found.arms, found.controls) == (("base", "new"), ("new",))
    assert found.sweep == {"n": (1, 2), "regime": ("burst", "sustained")}
    assert found.files == {"copy.cpp": "0" * DIGITS}
    assert known.files == {"kernels/copy.cu": SOURCE["kernels/copy.cu"][:DIGITS]}


def test_what_a_build_lacks_stays_and_what_has_no_manifest_is_gone(tmp_path: Path) -> None:
    today(tmp_path, manifest(), manifest(id="a/c"), manifest(id="a/d"))
    later = today(tmp_path, {"id": "a/b", "unavailable": "no LibTorch"}, manifest(id="a/c"))
    assert later.declared("a/b") is not None
    assert later.gone(record({"n": 1}, "a/d")) == "technique"
    assert later.gone(record({"n": 1}, "a/c")) == ""


def test_what_is_not_built_but_has_a_file_stays(tmp_path: Path) -> None:
    today(tmp_path, manifest(), manifest(id="a/d"))
    source = tmp_path / "benches" / "a" / "d.py"
    source.parent.mkdir(parents=True)
    source.touch()
    assert today(tmp_path, manifest()).gone(record({"n": 1}, "a/d")) == ""


def test_a_technique_that_is_no_product_of_its_axes_is_refused(tmp_path: Path) -> None:
    cases = manifest()["cases"][:3]
    with pytest.raises(GpuliftError, match="a/b: its cases are not all of its axes' values"):
        today(tmp_path, manifest(cases=cases))


def test_what_is_gone_is_named(tmp_path: Path) -> None:
    known = today(tmp_path, manifest())
    whole = record({"n": 1, "regime": "burst"})
    assert known.gone(whole, ("new",), "base") == ""
    assert known.gone(whole, ("old",), "base") == "arm"
    assert known.gone(whole, ("new",), "old") == "baseline"
    assert known.gone(record({"n": 3, "regime": "burst"})) == "case"
    assert known.gone(record({"n": 1, "further": 1})) == "case"


def test_a_case_that_lacks_an_axis_is_that_of_its_first_value(tmp_path: Path) -> None:
    known = today(tmp_path, manifest())
    assert known.gone(record({"n": 2})) == ""
    assert known.case_id(record({"n": 2})) == "n:2/regime:burst"
    assert known.case_id(record({"n": 3})) == "n:3"


def test_a_text_is_todays_where_all_its_files_are(tmp_path: Path) -> None:
    known = today(tmp_path, manifest())
    assert known.text(record({"n": 1}, source=SOURCE)) == "today's"
    part = {"copy.cpp": SOURCE["copy.cpp"]}  # a build without that kernel
    assert known.text(record({"n": 1}, source=part)) == "today's"
    earlier = record({"n": 1}, source=part, schema="1.9")  # when no record told its kernels
    assert known.text(earlier).startswith("before")
    other = record({"n": 1}, source=SOURCE | {"copy.cpp": "2" * 64})
    assert known.text(other) == f"before ({other.began_at[:10]})"
    assert known.text(record({"n": 1})).startswith("before")


def test_nothing_is_known_of_a_users_own_technique(tmp_path: Path) -> None:
    known = today(tmp_path, manifest())
    own = record({"n": 9}, "own/step")
    assert (known.gone(own, ("x",), "y"), known.text(own)) == ("", "")
    assert known.case_id(own) == "n:9"


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert read_today(tmp_path) == UNKNOWN


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"techniques": {"a/b": "else"}}', '{"further": 1}']
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content, "utf-8")
    with pytest.raises(GpuliftError, match=r"today\.json"):
        read_today(tmp_path)
