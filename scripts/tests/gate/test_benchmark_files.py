"""Benchmarks of other tools, from the files that they wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpulift.gate.benchmark_files import Benchmarks, read_gbench, read_nvbench, read_pytest
from gpulift.gate.metrics import NoNumberError, Reading, Untimed
from tests.conftest import DATA

FILES = DATA / "benchmark_files"
NVBENCH = FILES / "nvbench.json"
Json = dict[str, Any]


def changed(file: Path, folder: Path, change: Callable[[Json], object]) -> Path:
    """A copy of a file with something changed in it."""
    document = json.loads(file.read_bytes())
    change(document)
    copy = folder / file.name
    copy.write_text(json.dumps(document), encoding="utf-8")
    return copy


def entry(name: str, **values: object) -> Json:
    """A repetition of a benchmark, of 1 ms."""
    made = {"name": name, "run_type": "iteration", "real_time": 1.0, "time_unit": "ms"}
    return {**made, **values}


def gbench(folder: Path, *entries: Json) -> Benchmarks:
    file = folder / "gbench.json"
    file.write_text(json.dumps({"context": {}, "benchmarks": entries}), encoding="utf-8")
    return read_gbench(file)


def test_a_benchmark_has_the_median_of_its_repetitions(tmp_path: Path) -> None:
    times = [
        entry("a", real_time=time, repetition_index=index) for index, time in enumerate((3, 1, 2))
    ]
    whole = entry("a", run_type="aggregate", aggregate_name="median", real_time=9)
    found = gbench(tmp_path, *times, whole)
    assert found.seconds == {"a": pytest.approx(2e-3)}
    assert found.untimed == {}


def test_without_repetitions_it_has_the_median_else_the_mean(tmp_path: Path) -> None:
    mean, middle, deviation = (
        entry(f"a_{name}", run_name="a", run_type="aggregate", aggregate_name=name, real_time=time)
        for name, time in (("mean", 3), ("median", 2), ("stddev", 1))
    )
    assert gbench(tmp_path, mean, middle, deviation).seconds == {"a": pytest.approx(2e-3)}
    assert gbench(tmp_path, mean, deviation).seconds == {"a": pytest.approx(3e-3)}
    alone = gbench(tmp_path, deviation)
    assert (alone.seconds, alone.untimed) == ({}, {"a": Untimed("the file has only its stddev")})


def test_what_google_benchmark_1_9_wrote() -> None:
    found = read_gbench(FILES / "gbench_of_1.9.5.json")
    assert list(found.seconds) == ["fill/1024", "fill/4096", "touch", "touch #2"]
    assert found.seconds["fill/1024"] == pytest.approx(16.74e-9, rel=1e-3)
    assert list(found.untimed) == ["stopped/iterations:10/manual_time"], "whose time is NaN"


def test_an_error_is_said_in_the_tools_words() -> None:
    found = read_gbench(FILES / "gbench_1.json")
    assert set(found.seconds) == {"copy/4096/real_time", "copy/65536/real_time"}
    assert found.untimed == {"broken": Untimed('no such device, "x"')}


def test_two_of_a_name_that_nothing_tells_apart_are_left_out() -> None:
    found = read_gbench(FILES / "gbench_of_1.5.0.json")
    assert "touch" not in found.seconds
    why = "nothing in the file tells several benchmarks of this name apart"
    assert found.untimed["touch"] == Untimed(why)
    assert "fill/1024" in found.seconds


def test_a_file_that_mixes_statistics_with_rows_is_refused() -> None:
    with pytest.raises(NoNumberError, match=r"no run_type, as of a Google Benchmark before 1\.5"):
        read_gbench(FILES / "gbench_of_1.4.1.json")


@pytest.mark.parametrize(
    ("values", "words", "skipped"),
    [
        ({"real_time": 0}, "real_time", False),
        ({"real_time": "fast"}, "real_time", False),
        ({"real_time": float("nan")}, "real_time", False),
        ({"skipped": True, "skip_message": "no\nGPU"}, "no GPU", True),
        ({"error_occurred": True}, "without a reason", False),
    ],
)
def test_one_without_a_time_is_named_and_the_rest_is_read(
    values: Json, words: str, skipped: bool, tmp_path: Path
) -> None:
    found = gbench(tmp_path, entry("a", **values), entry("b"))
    assert found.rows["b"] == Reading(1e-3, "s")
    (untimed,) = found.untimed.values()
    assert words in untimed.reason
    assert untimed.skipped == skipped


def test_one_that_failed_keeps_its_place_among_those_of_its_name(tmp_path: Path) -> None:
    broken, whole = entry("a", error_occurred=True), entry("a", family_index=1)
    found = gbench(tmp_path, broken, whole)
    assert (list(found.untimed), list(found.seconds)) == (["a"], ["a #2"])


def test_a_list_without_benchmarks_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NoNumberError, match="no benchmark was run"):
        _ = gbench(tmp_path).rows


def of_pytest(folder: Path, *rows: tuple[str, object]) -> Benchmarks:
    file = folder / "pytest.json"
    made = [{"fullname": name, "stats": {"median": time}} for name, time in rows]
    file.write_text(json.dumps({"benchmarks": made}), encoding="utf-8")
    return read_pytest(file)


def test_tests_of_one_name_and_times_that_are_none_are_named(tmp_path: Path) -> None:
    found = of_pytest(tmp_path, ("a", 1.0), ("b", 1.0), ("b", 2.0), ("\x1bc", float("nan")))
    assert found.rows == {
        "a": Reading(1.0, "s"),
        "b": Untimed("several tests have this name"),
        "\\x1bc": Untimed("nan is no time above 0"),
    }


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "x.py:44: PytestBenchmarkWarning: disabled, since xdist is active\n1 passed\n",
            "disabled,",
        ),
        ("no tests ran\n", "no tests ran"),
        ("", "it says nothing"),
    ],
)
def test_pytest_says_itself_why_it_wrote_no_report(tmp_path: Path, said: str, reason: str) -> None:
    with pytest.raises(NoNumberError, match=f"no report of benchmarks: {reason}"):
        read_pytest(tmp_path / "out.json", said)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no JSON"),
        ('{"benchmarks": [', "is no JSON"),
        ("[]", "holds list in place of an object"),
        ("{}", "has no list of benchmarks"),
        ('{"benchmarks": [1]}', "holds int in place of an object"),
        ('{"benchmarks": [{"run_type": "iteration"}]}', "name is missing"),
        ('{"benchmarks": [{"run_type": "x", "name": "a"}]}', "run_type must be one of"),
        ('{"benchmarks": [{"run_type": "iteration", "name": "a", "time_unit": "h"}]}', "time_unit"),
    ],
)
def test_a_file_that_is_none_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "gbench.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(NoNumberError, match=r"gbench\.json: ") as refused:
        read_gbench(file)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_was_not_written_is_a_run_without_its_numbers(tmp_path: Path) -> None:
    for read in (read_gbench, read_nvbench):
        with pytest.raises(NoNumberError, match=r"out\.json: No such file"):
            read(tmp_path / "out.json")


def test_states_of_nvbench_are_named_by_axes_and_by_device_where_there_are_several() -> None:
    found = read_nvbench(NVBENCH)
    assert found.seconds == {
        "benchmark:copy/BlockSize:256/T:F32/device:0": 0.002,
        "benchmark:copy/BlockSize:512/T:F32/device:0": 0.001,
        "benchmark:copy/BlockSize:256/T:F32/device:1": 0.003,
        "benchmark:host only/device:0": 0.004,
    }
    assert found.untimed == {"benchmark:skips/device:0": Untimed("Not enough memory.", True)}


def test_one_device_is_not_named(tmp_path: Path) -> None:
    def keep(document: Json) -> None:
        for benchmark in document["benchmarks"]:
            benchmark["states"] = [one for one in benchmark["states"] if one["device"] == 0]

    names = read_nvbench(changed(NVBENCH, tmp_path, keep)).seconds
    assert "benchmark:copy/BlockSize:256/T:F32" in names
    assert not any("device" in name for name in names)


def of_copy(tag: str, value: str) -> Callable[[Json], None]:
    """One more figure of the first state, ahead of the others."""

    def add(document: Json) -> None:
        datum = {"name": "value", "type": "float64", "value": value}
        summaries = document["benchmarks"][0]["states"][0]["summaries"]
        summaries.append({"tag": tag, "name": "x", "data": [datum]})

    return add


def test_nvbench_has_its_median_before_its_mean(tmp_path: Path) -> None:
    file = changed(NVBENCH, tmp_path, of_copy("nv/cold/time/gpu/median", "0.0019"))
    assert read_nvbench(file).seconds["benchmark:copy/BlockSize:256/T:F32/device:0"] == 0.0019


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document["meta"]["version"]["json"].update(major=2), "of no version"),
        (lambda document: document.pop("meta"), "of no version"),
        (lambda document: document["benchmarks"][0]["states"][0].pop("device"), "device is missi"),
    ],
)
def test_what_is_no_file_of_nvbench_is_refused(
    change: Callable[[Json], object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(NoNumberError, match=words):
        read_nvbench(changed(NVBENCH, tmp_path, change))


def test_a_state_of_nvbench_whose_time_is_none_is_named(tmp_path: Path) -> None:
    file = changed(NVBENCH, tmp_path, of_copy("nv/cold/time/gpu/median", "fast"))
    untimed = read_nvbench(file).untimed["benchmark:copy/BlockSize:256/T:F32/device:0"]
    assert untimed == Untimed("'fast' is no time above 0")


def test_a_benchmark_of_nvbench_without_states_is_none(tmp_path: Path) -> None:
    def empty(document: Json) -> None:
        document["benchmarks"] = [{"name": "none", "states": None}]

    assert read_nvbench(changed(NVBENCH, tmp_path, empty)) == Benchmarks()
