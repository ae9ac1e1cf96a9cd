"""What techniques are today, where nothing is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.today import FILE, TEXTS, UNKNOWN, Today, digest_of, read_today
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from tests import sample
from tools.today import made

SOURCE = {"copy.cpp": "0" * 64, "kernels/copy.cu": "1" * 64}
COMMIT = "c" * 40


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
    """As a checkout with these manifests has it."""
    modules, results = folder / "modules", folder / "results"
    for made_here in (modules, results):
        made_here.mkdir(exist_ok=True, parents=True)
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
    assert found.text == digest_of(SOURCE)


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

    def text(source: dict[str, str], **top: Any) -> str:
        return known.text(record({"n": 1}, source=source, **{"schema": "1.14", **top}))

    assert text(SOURCE) == "today's"
    assert text(dict(reversed(SOURCE.items()))) == "today's"
    before = f"before ({record({'n': 1}).began_at[:10]})"
    assert text({"copy.cpp": SOURCE["copy.cpp"]}) == before
    assert text(SOURCE | {"copy.cpp": "2" * 64}) == before
    assert text({}) == before
    assert text(SOURCE, schema="1.13") == before  # when hashes were of whole files


def with_texts(folder: Path, texts: dict[str, dict[str, str]]) -> Today:
    """What is known where texts.json says this."""
    today(folder, manifest())
    (folder / "results" / TEXTS).write_text(json.dumps(texts), "utf-8")
    return read_today(folder / "results")


def earlier(*, dirty: bool = False, commit: str = COMMIT, **top: Any) -> Record:
    """A record that hashes whole files."""
    context = sample.gpu_context(build={"commit": commit, "dirty": dirty})
    return record({"n": 1}, context=context, **{"schema": "1.13", **top})


def test_of_an_earlier_record_its_commit_says_the_text(tmp_path: Path) -> None:
    known = with_texts(tmp_path, {COMMIT: {"a/b": digest_of(SOURCE)}})
    assert known.text(earlier()) == "today's"
    assert known.text(earlier(schema="1.0")) == "today's"
    assert known.text(earlier(dirty=True)).startswith("before")
    assert known.text(earlier(commit="d" * 40)).startswith("before")
    assert known.text(earlier(schema="1.14")).startswith("before")  # it would say so itself
    other = with_texts(tmp_path, {COMMIT: {"a/b": "another"}})
    assert other.text(earlier()).startswith("before")


def test_records_of_two_schemas_may_be_of_one_text(tmp_path: Path) -> None:
    known = with_texts(tmp_path, {COMMIT: {"a/b": digest_of(SOURCE)}})
    later = record({"n": 1}, schema="1.14", source=SOURCE)
    files = {"copy.cpp": "9" * 64}
    assert known.same_text(earlier(source=files), later)
    assert known.text_key(earlier(source=files)) == known.text_key(later)
    changed = record({"n": 1}, schema="1.14", source=SOURCE | {"copy.cpp": "2" * 64})
    assert not known.same_text(earlier(source=files), changed)
    assert known.text_key(changed) != known.text_key(later)


def test_of_what_is_not_known_the_hashes_themselves_are_compared() -> None:
    one, other = (earlier(source={"a.py": digit * 64}) for digit in "12")
    assert UNKNOWN.same_text(one, one)
    assert not UNKNOWN.same_text(one, other)
    assert UNKNOWN.text_key(one) != UNKNOWN.text_key(other)
    assert UNKNOWN.text_key(earlier()) == COMMIT


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match=r"texts\.json"):
        with_texts(tmp_path, {COMMIT: {"a/b": 3}})  # type: ignore[dict-item]


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
