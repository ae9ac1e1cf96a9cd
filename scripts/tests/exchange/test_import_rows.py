"""`gpulift import`: rows that are bad, alike, or statistics, in files as other tools write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.exchange import imported
from gpulift.exchange.gbench_in import read_gbench
from gpulift.exchange.gbench_out import gbench_text
from gpulift.exchange.nvbench_in import read_nvbench
from gpulift.ground.errors import FAILED, OK, USAGE, GpuliftError
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import read_run
from gpulift.verdicts import stats
from tests.exchange.test_import import FILES, GBENCH, NVBENCH, changed, put

NEW = FILES / "gbench_of_1.9.5.json"
OF_1_5_0 = FILES / "gbench_of_1.5.0.json"
OF_1_4_1 = FILES / "gbench_of_1.4.1.json"
AGGREGATES = FILES / "gbench_aggregates.json"
STOPPED = "name:stopped/iterations:10/manual_time"
TAG = "nv/cold/time/gpu/"
STATE: list[str | int] = ["benchmarks", 0, "states", 1]  # of NVBench: copy, BlockSize 512

Json = dict[str, Any]


def by_case(found: imported.Imported) -> dict[str, Record]:
    """Each record by its case."""
    records = {one.case_id: one for one in map(read_record, found.records)}
    assert len(records) == len(found.records)
    return records


def times_s(file: Path, key: str, values: set[object]) -> list[float]:
    """Of the repetitions with these values in a file of Google Benchmark."""
    entries = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    return [
        one["real_time"] * 1e-9
        for one in entries
        if one["run_type"] == "iteration" and one[key] in values
    ]


# --- Benchmarks of one name ---


def test_two_benchmarks_of_one_name_are_two_rows() -> None:
    made = by_case(read_gbench([NEW]))
    for case_id, family in (("name:touch", 1), ("name:touch/again:2", 2)):
        (arm,) = made[case_id].arms
        wanted = times_s(NEW, "family_index", {family})
        assert list(stats.step_times(arm)) == pytest.approx(wanted)
        said = made[case_id].raw["imported"]["benchmarks"]
        assert {one["family_index"] for one in said} == {family}


def test_the_order_in_which_they_ran_does_not_exchange_them(tmp_path: Path) -> None:
    def reverse(document: Json) -> None:
        document["benchmarks"].reverse()  # as --benchmark_enable_random_interleaving may do

    first, then = (by_case(read_gbench([file])) for file in (NEW, changed(NEW, tmp_path, reverse)))
    for case_id in ("name:touch", "name:touch/again:2"):
        there, here = (stats.step_times(made[case_id].arms[0]) for made in (first, then))
        assert sorted(here) == pytest.approx(sorted(there))


@pytest.mark.parametrize(
    ("key", "value", "cases"),
    [
        ("threads", 4, ["name:fill/1024/threads:1", "name:fill/1024/threads:4"]),
        ("repetitions", 9, ["name:fill/1024/repetitions:3", "name:fill/1024/repetitions:9"]),
        ("per_family_instance_index", 7, ["name:fill/1024", "name:fill/1024/again:2"]),
    ],
)
def test_rows_are_told_apart_by_parameters_and_instances(
    key: str, value: int, cases: list[str], tmp_path: Path
) -> None:
    def repeat(document: Json) -> None:
        entries = document["benchmarks"]
        entries += [one | {key: value} for one in entries if one["run_name"] == "fill/1024"]

    found = read_gbench([changed(NEW, tmp_path, repeat)])
    assert [one for one in by_case(found) if "fill/1024" in one] == cases


@pytest.mark.parametrize("part", ["iteration", "aggregate"])
def test_what_nothing_tells_apart_is_listed_and_not_mixed(part: str, tmp_path: Path) -> None:
    def keep(document: Json) -> None:
        entries = document["benchmarks"]
        document["benchmarks"] = [one for one in entries if one["run_type"] == part]

    found = read_gbench([changed(OF_1_5_0, tmp_path, keep)])  # which had no family_index yet
    made = by_case(found)
    assert made["name:touch"].outcome == "skipped"
    assert "nothing in the file tells apart" in made["name:touch"].reason
    assert len(made["name:touch"].raw["imported"]["benchmarks"]) == 6
    (line,) = found.unread
    assert "benchmarks[3], benchmarks[4]" in line
    assert line.endswith("tells apart (touch)")
    assert all(one.outcome == "ok" for name, one in made.items() if name != "name:touch")


def test_an_export_of_them_keeps_them_apart(tmp_path: Path) -> None:
    imported.write(read_gbench([NEW]).records, tmp_path / "run")
    entries = json.loads(gbench_text([read_run(tmp_path / "run")]))["benchmarks"]
    names = [one["name"] for one in entries]
    assert {"touch", "touch/again:2"} <= {*names}
    assert len({*names}) == len(names)


# --- Versions ---


def test_a_file_of_before_1_5_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["import", "gbench", str(OF_1_4_1), "--out", str(out)]) == USAGE
    answer = capsys.readouterr().err
    assert "written by a Google Benchmark of before 1.5" in answer
    assert answer.count("\n") == 1
    assert not out.exists()


def test_a_version_that_is_not_known_is_refused(tmp_path: Path) -> None:
    file = changed(NEW, tmp_path, put(["context", "json_schema_version"], 2))
    with pytest.raises(GpuliftError, match="json_schema_version is not 1"):
        read_gbench([file])


# --- Bad rows ---


def test_a_nan_that_the_tool_wrote_is_listed_and_the_rest_is_read() -> None:
    found = read_gbench([NEW])
    made = by_case(found)
    assert made[STOPPED].outcome == "failed"
    assert "benchmarks[28].real_time is no time: 'NaN'" in made[STOPPED].reason
    assert str(FILES) not in made[STOPPED].reason
    assert len(found.unread) == 3
    assert found.unread[0].startswith(f"{NEW}: benchmarks[28].real_time is no time")
    assert found.unread[0].endswith("(stopped/iterations:10/manual_time)")
    rest = [one for name, one in made.items() if name != STOPPED]
    assert len(rest) == 4
    assert all(one.outcome == "ok" for one in rest)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("real_time", "NaN", "real_time is no time: 'NaN'"),
        ("real_time", None, "real_time must be float, not null"),
        ("real_time", 0, "real_time is 0: no time was measured"),
        ("iterations", 0, "iterations must be int >= 1"),
        ("time_unit", "h", "time_unit must be one of s, ms, us, ns"),
    ],
)
def test_a_repetition_without_a_time_is_listed_and_the_others_are_read(
    key: str, value: object, said: str, tmp_path: Path
) -> None:
    found = read_gbench([changed(GBENCH[0], tmp_path, put(["benchmarks", 1, key], value))])
    (line,) = found.unread
    assert f"benchmarks[1].{said}" in line
    assert line.endswith("(copy/4096/real_time)")
    record = by_case(found)["name:copy/4096/real_time"]
    assert record.notes["not read"] == f"benchmarks[1].{said}"
    wanted = times_s(GBENCH[0], "name", {"copy/4096/real_time"})
    assert list(stats.step_times(record.arms[0])) == pytest.approx([wanted[0], wanted[2]])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (3, "benchmarks[1] must be object, not int"),
        ({"name": "x"}, "benchmarks[1].run_type is missing (x)"),
        ({"name": "x", "run_type": "warm"}, "run_type must be one of iteration, aggregate (x)"),
        ({"run_type": "iteration"}, "benchmarks[1].name is missing"),
        (
            {"name": "x", "run_type": "iteration", "threads": "4"},
            "threads must be int, not str (x)",
        ),
        (
            {"name": "a\x1b", "run_type": "iteration", "skipped": 1},
            "skipped must be bool, not int (a\\x1b)",
        ),
        ({"name": "\ud800", "run_type": "iteration"}, "cannot be written as UTF-8 (\\ud800)"),
    ],
)
def test_a_row_that_does_not_say_what_it_is_of_is_listed(
    row: object, said: str, tmp_path: Path
) -> None:
    whole = by_case(read_gbench(GBENCH[:1]))
    found = read_gbench([changed(GBENCH[0], tmp_path, put(["benchmarks", 1], row))])
    (line,) = found.unread
    assert line.endswith(said)
    assert line.isprintable()
    assert by_case(found).keys() == whole.keys()


def test_bytes_that_are_no_text_and_keys_that_are_there_twice_cost_one_row(tmp_path: Path) -> None:
    text = NEW.read_bytes()
    row = b'"name": "fill/1024",'
    for bad, said in (
        (b'"name": "fill/1024", "label": "\xb5s",', "cannot be written as UTF-8"),
        (b'"name": "fill/1024", "threads": 2,', "threads is there twice"),
    ):
        file = tmp_path / "x.json"
        file.write_bytes(text.replace(row, bad, 1))
        found = read_gbench([file])
        assert f"benchmarks[0]{'.' if 'twice' in said else ': holds text that '}{said}" in "".join(
            found.unread
        )
        assert len(found.unread) == 4
        assert len(by_case(found)["name:fill/1024"].arms[0].window_s) == 2


def test_a_control_character_in_a_text_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(NEW.read_bytes().replace(b"fill/1024", b"fill\t1024"))
    assert "name:fill\t1024" in by_case(read_gbench([file]))


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ([], 3, "benchmarks[0].states[1] must be object, not int"),
        (["device"], "0", "states[1].device must be int, not str"),
        (["axis_values", 0, "value"], "x", "value is not an integer: 'x'"),
        (["summaries", 2, "data", 0, "value"], "fast", "is not a number: 'fast'"),
        (["summaries", 2, "data", 0, "value"], "nan", "holds no positive time"),
        (["summaries", 2, "data", 0, "value"], "inf", "holds no positive time"),
        (["summaries", 0, "data", 0, "value"], "-1", "is not a count: '-1'"),
        (["is_skipped"], 1, "is_skipped must be bool, not int"),
        (["summaries", 2, "tag"], None, "tag must be str, not null"),
    ],
)
def test_a_bad_row_of_nvbench_is_listed_and_the_rest_is_read(
    where: list[str | int], value: object, said: str, tmp_path: Path
) -> None:
    whole = by_case(read_nvbench([changed(NVBENCH, tmp_path, lambda _: None)], 0))
    found = read_nvbench([changed(NVBENCH, tmp_path, put([*STATE, *where], value))], 0)
    line = found.unread[-1]
    assert "benchmarks[0].states[1]" in line
    assert said in line
    if where:
        assert line.endswith("(copy Device=0 BlockSize=2^9 T=F32)")
    times = {name for name, one in whole.items() if one.outcome == "ok"}
    read = {name for name, one in by_case(found).items() if one.outcome == "ok"}
    assert times - read == {"benchmark:copy/BlockSize:512/T:F32/statistic:mean"}


@pytest.mark.parametrize("format", ["gbench", "nvbench"])
def test_one_bad_row_ends_well_and_only_bad_rows_end_with_1(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, device = (NEW, []) if format == "gbench" else (NVBENCH, ["--device", "0"])

    def spoil(document: Json) -> None:
        for one in document["benchmarks"]:
            one |= {"real_time": "NaN", "states": [{"name": "x"}]}

    one = put(["benchmarks", 0, "name"], 3)
    for change, code in ((one, OK), (spoil, FAILED)):
        out = tmp_path / f"{code}"
        file = changed(source, tmp_path, change)
        assert cli.main(["import", format, str(file), *device, "--out", str(out)]) == code
        answer = capsys.readouterr().err
        assert "gpulift: not read: " in answer
        assert out.exists() == (code == OK)
    assert answer.endswith("error: nothing in these files could be read; nothing was written\n")


# --- Statistics ---


def test_a_file_of_aggregates_becomes_rows_of_its_medians() -> None:
    made = by_case(read_gbench([AGGREGATES]))
    entries = json.loads(AGGREGATES.read_text(encoding="utf-8"))["benchmarks"]
    wanted = [one["real_time"] * 1e-9 for one in entries if one["name"] == "touch_median"]
    names = ("name:touch/statistic:median", "name:touch/again:2/statistic:median")
    for name, time_s in zip(names, wanted, strict=True):
        assert made[name].outcome == "ok"
        assert made[name].notes["windows"] == "one window, the median: the file has no repetitions"
        (arm,) = made[name].arms
        assert list(stats.step_times(arm)) == pytest.approx([time_s])
        estimate = stats.step_time([made[name]], arm.name)
        assert estimate is not None
        assert estimate.low is None
    assert made[STOPPED].outcome == "failed"  # its median is NaN


def test_the_mean_is_taken_where_there_is_no_median_and_other_statistics_are_no_time(
    tmp_path: Path,
) -> None:
    def keep(*names: str) -> Callable[[Json], None]:
        def change(document: Json) -> None:
            entries = document["benchmarks"]
            document["benchmarks"] = [one for one in entries if one["aggregate_name"] in names]

        return change

    made = by_case(read_gbench([changed(AGGREGATES, tmp_path, keep("mean", "cv"))]))
    assert made["name:touch/statistic:mean"].outcome == "ok"
    made = by_case(read_gbench([changed(AGGREGATES, tmp_path, keep("stddev", "cv"))]))
    assert made["name:touch"].outcome == "skipped"
    assert made["name:touch"].reason == "the file has no time of it, only cv, stddev"


def summary(tag: str, value: str) -> Json:
    """As NVBench of 2026 writes it."""
    return {
        "tag": tag,
        "name": "Median GPU Time",
        "hint": "duration",
        "hide": "Hidden by default.",
        "data": [{"name": "value", "type": "float64", "value": value}],
    }


def test_nvbench_has_its_median_before_its_mean(tmp_path: Path) -> None:
    def add(document: Json) -> None:
        states = document["benchmarks"][0]["states"]
        states[1]["summaries"].append(summary(f"{TAG}median", "0.0008"))

    made = by_case(read_nvbench([changed(NVBENCH, tmp_path, add)], 0))
    record = made["benchmark:copy/BlockSize:512/T:F32/statistic:median"]
    (arm,) = record.arms
    assert (arm.steps_per_window, list(arm.window_s)) == (1, [0.0008])
    assert record.notes["windows"].startswith("one window: the median of 500 samples")


def test_a_median_is_not_compared_with_a_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(document: Json) -> None:
        for state in document["benchmarks"][0]["states"]:
            state["summaries"] = [
                *(one for one in state["summaries"] if "bin:" not in one["tag"]),
                summary(f"{TAG}median", "0.0008"),
            ]

    sides = []
    for name, file in (("old", NVBENCH), ("new", changed(NVBENCH, tmp_path, add))):
        imported.write(read_nvbench([file], 0).records, tmp_path / name)
        sides.append(str(tmp_path / name))
    cli.main(["compare", *sides, "--common", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    both = [one for one in rows if one["verdict"] != "skipped"]
    assert both
    assert all("copy" not in one["case"] for one in both)


def test_samples_that_nvbench_could_not_write_are_said(tmp_path: Path) -> None:
    def lose(document: Json) -> None:
        document["benchmarks"][0]["states"][0]["summaries"][-1].pop("data")

    found = read_nvbench([changed(NVBENCH, tmp_path, lose)], 0)
    assert found.unread == []
    assert found.records[0]["notes"]["windows"] == (
        "one window: the mean of 4 samples; NVBench could not write the samples"
    )
