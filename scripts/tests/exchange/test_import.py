"""`gpulift import`: files of Google Benchmark and NVBench as records that nothing judges."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulift import cli
from gpulift.analysis.ledger import read_ledger
from gpulift.analysis.machine.reference_build import build
from gpulift.certify.check import check_certificates
from gpulift.commands.claims import runs_by_model
from gpulift.commands.show import lines
from gpulift.exchange import imported
from gpulift.exchange.gbench_in import read_gbench
from gpulift.exchange.gbench_out import gbench_text
from gpulift.exchange.imported import word
from gpulift.exchange.nvbench_in import read_nvbench
from gpulift.ground.errors import FAILED, INCONCLUSIVE, NOT_COMPARABLE, OK, USAGE, GpuliftError
from gpulift.records.files import record_files_below
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import Run, read_run
from gpulift.verdicts import stats
from tests import runs_made, sample

FILES = Path(__file__).parents[1] / "data" / "exchange"
GBENCH = tuple(FILES / f"gbench_{number}.json" for number in (1, 2, 3))
NVBENCH = FILES / "nvbench.json"

Json = dict[str, Any]
Change = Callable[[Json], object]


def changed(source: Path, folder: Path, change: Change) -> Path:
    """A copy of a file with something changed in it."""
    document = json.loads(source.read_text(encoding="utf-8"))
    change(document)
    file = folder / f"changed_{source.name}"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def records(made: list[Json]) -> list[Record]:
    return [read_record(one) for one in made]


def gbench(files: Sequence[Path]) -> list[Json]:
    return read_gbench(files).records


def nvbench(files: Sequence[Path], device: int | None = None) -> list[Json]:
    return read_nvbench(files, device).records


def imported_run(folder: Path, *files: Path) -> Run:
    imported.write(gbench(files), folder)
    return read_run(folder)


# --- Google Benchmark ---


def test_a_file_is_a_launch_and_a_repetition_a_window() -> None:
    found = [one for one in records(gbench(GBENCH)) if one.case_id.endswith("/4096/real_time")]
    assert [(one.launch, one.launches) for one in found] == [(0, 3), (1, 3), (2, 3)]
    for record, file in zip(found, GBENCH, strict=True):
        entries = [
            one
            for one in json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
            if one["name"] == "copy/4096/real_time" and one["run_type"] == "iteration"
        ]
        (arm,) = record.arms
        assert arm.steps_per_window == entries[0]["iterations"]
        assert stats.step_times(arm) == pytest.approx([one["real_time"] * 1e-9 for one in entries])
        assert arm.clock == "host"


def test_everything_that_the_file_says_is_kept_word_for_word() -> None:
    document = json.loads(GBENCH[0].read_text(encoding="utf-8"))
    made = gbench(GBENCH[:1])
    kept = [entry for one in made for entry in one["imported"]["benchmarks"]]
    assert sorted(map(repr, kept)) == sorted(map(repr, document["benchmarks"]))
    assert all(one["imported"]["context"] == document["context"] for one in made)
    assert all(one["imported"]["file"] == "gbench_1.json" for one in made)


def test_what_is_not_known_is_not_made_up() -> None:
    record = records(gbench(GBENCH[:1]))[0]
    assert (record.kind, record.regime) == ("import", "unknown")
    assert record.context.gpu is None
    assert record.context.host.cpu == "unknown"
    assert record.context.host.cores == 2
    assert not {"build", "driver"} & {*record.raw["context"]}
    assert "seed" not in record.raw["order"]
    assert not {"cost", "check_error"} & {*record.raw["arms"][0]}
    assert record.started_at == "2026-11-21T14:59:10Z"


@pytest.mark.parametrize(
    ("date", "read"),
    [
        ("2022-06-01T12:00:00+02:00", "2022-06-01T10:00:00Z"),
        ("2016-08-02 17:44:46", "unknown"),  # local time of no known zone
        ("yesterday", "unknown"),
    ],
)
def test_a_date_without_a_zone_is_unknown(date: str, read: str, tmp_path: Path) -> None:
    file = changed(GBENCH[0], tmp_path, lambda one: one["context"].update(date=date))
    assert gbench([file])[0]["started_at"] == read


def test_an_error_keeps_its_words(tmp_path: Path) -> None:
    broken = [one for one in records(gbench(GBENCH)) if one.case_id == "name:broken"]
    assert [(one.outcome, one.reason) for one in broken] == [("error", 'no such device, "x"')] * 3

    def skip(document: Json) -> None:
        for entry in document["benchmarks"]:
            entry.pop("error_occurred", None)
            entry |= {"skipped": True, "skip_message": "not\nhere"}

    skipped = gbench([changed(GBENCH[0], tmp_path, skip)])
    assert {(one["outcome"], one["reason"]) for one in skipped} == {("skipped", "not here")}


def test_iterations_that_differ_make_windows_of_one_step(tmp_path: Path) -> None:
    def change(document: Json) -> None:
        document["benchmarks"][0]["iterations"] = 7

    (record, *_) = records(gbench([changed(GBENCH[0], tmp_path, change)]))
    assert record.arms[0].steps_per_window == 1
    whole = records(gbench(GBENCH[:1]))[0]
    assert stats.step_times(record.arms[0]) == pytest.approx(stats.step_times(whole.arms[0]))


def test_numbers_that_json_has_no_room_for_are_kept_as_text(tmp_path: Path) -> None:
    text = GBENCH[0].read_text(encoding="utf-8")
    file = tmp_path / "x.json"
    file.write_text(text.replace('"depth": 3.0000000000000000e+00', '"depth": NaN'))
    entry = gbench([file])[0]["imported"]["benchmarks"][0]
    assert entry["depth"] == "NaN"


def test_our_own_export_comes_back_with_the_same_times(tmp_path: Path) -> None:
    ours = read_run(sample.write(tmp_path / "run", runs_made.full_gpu()))
    file = tmp_path / "ours.json"
    file.write_text(gbench_text([ours]), encoding="utf-8")
    back = imported_run(tmp_path / "back", file)
    arms = [(record, arm) for record in ours.records for arm in record.arms]
    assert sum(len(one.arms[0].window_s) for one in back.records) == len(arms)
    name = "name:launch/cuda_graph/kernels:10/kernel_us:2/graph/iterations:1/manual_time"
    (mine,) = [one for one in back.records if one.case_id == name]
    assert "manual time" in mine.notes["clock"]
    theirs = [
        float(np.median(stats.step_times(arm)))
        for record, arm in arms
        if record.case_id == "kernels:10/kernel_us:2" and arm.name == "graph"
    ]
    assert stats.step_times(mine.arms[0]) == pytest.approx(theirs)
    again = json.loads(gbench_text([back]))
    first = json.loads(file.read_text(encoding="utf-8"))
    names = {one["name"] for one in first["benchmarks"]}
    assert {one["name"] for one in again["benchmarks"]} == names


# --- NVBench ---


def test_nvbench_has_a_window_per_sample_where_the_samples_are_there() -> None:
    made = {one.case_id: one for one in records(nvbench([NVBENCH], 0))}
    first = made["benchmark:copy/BlockSize:256/T:F32"]
    assert first.case == {"benchmark": "copy", "BlockSize": 256, "T": "F32"}
    (arm,) = first.arms
    assert arm.clock == "device"
    assert arm.window_s == pytest.approx((0.0019, 0.002, 0.002, 0.0021), rel=1e-6)
    assert first.notes["windows"] == "all 4 samples, each a window"


def test_nvbench_without_samples_has_the_mean_as_one_window_of_all_of_them() -> None:
    made = {one.case_id: one for one in records(nvbench([NVBENCH], 0))}
    (arm,) = made["benchmark:copy/BlockSize:512/T:F32/statistic:mean"].arms
    assert (arm.steps_per_window, list(arm.window_s)) == (500, [0.001 * 500])
    (host,) = made["benchmark:host only/statistic:mean"].arms
    assert (host.clock, host.steps_per_window, list(host.window_s)) == ("host", 20, [0.004 * 20])


def test_missing_samples_are_said(tmp_path: Path) -> None:
    made = records(nvbench([changed(NVBENCH, tmp_path, lambda _: None)], 0))
    assert made[0].notes["windows"] == (
        "one window: the mean of 4 samples; 0.bin with the samples is missing"
    )
    assert list(made[0].arms[0].window_s) == [0.002 * 4]


def test_a_skip_and_the_device_of_nvbench_are_kept() -> None:
    made = {one.case_id: one for one in records(nvbench([NVBENCH], 0))}
    skip = made["benchmark:skips"]
    assert (skip.outcome, skip.reason) == ("skipped", "Not enough memory.")
    gpu = skip.context.gpu
    assert gpu is not None
    assert (gpu.name, gpu.card, gpu.memory_bytes) == ("Example GPU A", "", 34086060032)
    assert gpu.facts["multiprocessors"] == 80
    document = json.loads(NVBENCH.read_text(encoding="utf-8"))
    said = made["benchmark:copy/BlockSize:512/T:F32/statistic:mean"].raw["imported"]
    assert said["state"] == document["benchmarks"][0]["states"][1]
    assert said["devices"] == document["devices"]
    assert said["meta"] == document["meta"]


def test_several_devices_need_a_choice() -> None:
    with pytest.raises(GpuliftError, match=r"0 \(Example GPU A\), 1 \(Example GPU B\): choose"):
        nvbench([NVBENCH])
    with pytest.raises(GpuliftError, match="--device 7: nothing was measured on it"):
        nvbench([NVBENCH], 7)
    (other,) = records(nvbench([NVBENCH], 1))
    assert other.context.slug == "example-gpu-b"


@pytest.mark.parametrize(
    "filename", ["../../../etc/passwd", "/etc/passwd", "..", "", "0.bin\n", "x.bin"]
)
def test_a_file_does_not_choose_what_is_read(filename: str, tmp_path: Path) -> None:
    def change(document: Json) -> None:
        samples = document["benchmarks"][0]["states"][0]["summaries"][-1]
        samples["data"][0]["value"] = filename

    found = read_nvbench([changed(NVBENCH, tmp_path, change)], 0)
    (line,) = found.unread
    assert "names no file of sample times" in line
    assert "(copy Device=0 BlockSize=2^8 T=F32)" in line
    assert found.records[0]["case"]["statistic"] == "mean"


@pytest.mark.parametrize("content", [b"", b"123", struct.pack("<4f", 1, 2, float("nan"), 4)])
def test_samples_that_are_no_times_are_listed_and_the_statistic_is_taken(
    content: bytes, tmp_path: Path
) -> None:
    file = changed(NVBENCH, tmp_path, lambda _: None)
    folder = tmp_path / f"{file.name}-bin"
    folder.mkdir()
    (folder / "0.bin").write_bytes(content)
    found = read_nvbench([file], 0)
    (line,) = found.unread
    assert re.search(r"json: 0\.bin: h", line)
    assert found.records[0]["case"]["statistic"] == "mean"
    assert ": 0.bin: h" not in found.records[0]["notes"]["windows"]  # no folder of anybody
    assert "0.bin: h" in found.records[0]["notes"]["windows"]


def test_states_of_the_same_values_stay_apart(tmp_path: Path) -> None:
    def repeat(document: Json) -> None:
        states = document["benchmarks"][2]["states"]
        states.append(states[0])

    made = records(nvbench([changed(NVBENCH, tmp_path, repeat)], 0))
    ids = [one.case_id for one in made if "host only" in one.case_id]
    assert ids == [
        "benchmark:host only/statistic:mean",
        "benchmark:host only/again:2/statistic:mean",
    ]


# --- What goes wrong ---


def without(key: str) -> Change:
    return lambda document: document.pop(key)


def put(path: list[str | int], value: object) -> Change:
    """Sets a value deep inside."""

    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("format", "change", "said"),
    [
        ("gbench", without("context"), "has no context: not a JSON file of Google Benchmark"),
        ("gbench", without("benchmarks"), "has no benchmarks"),
        ("gbench", put(["benchmarks"], {}), "benchmarks must be a list"),
        ("gbench", put(["benchmarks"], []), "hold no benchmarks"),
        ("nvbench", without("meta"), "written by an NVBench of before 2022"),
        ("nvbench", without("devices"), "not a JSON file of NVBench"),
        ("nvbench", put(["meta", "version", "json", "major"], 2), "major is not 1"),
    ],
)
def test_a_wrong_file_is_one_line_with_file_and_key(
    format: str,
    change: Change,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = GBENCH[0] if format == "gbench" else NVBENCH
    file = changed(source, tmp_path, change)
    device = [] if format == "gbench" else ["--device", "0"]
    out = tmp_path / "out"
    assert cli.main(["import", format, str(file), *device, "--out", str(out)]) == USAGE
    answer = capsys.readouterr().err
    assert said in answer
    assert answer.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ":1:1: not JSON: Expecting value; it may be cut off"),
        (b'{"context": {},\n "benchmarks": [', ":2:17: not JSON: Expecting value; it may be cut"),
        (b'{"a": 1 "b": 2}', ":1:9: not JSON: Expecting ',' delimiter\n"),
        (b'{"a": "x', ":1:7: not JSON: Unterminated string; it may be cut off\n"),
        (b'{"a": "\\q"}', ":1:8: not JSON: Invalid \\escape\n"),
        (b"[1]", "the file must hold an object"),
        (b"\xff\xfe{}", "byte 0 is not UTF-8"),
        (b'{"context": {"x": "\\ud800"}, "benchmarks": []}', "cannot be written as UTF-8"),
        (b'{"a": 1, "a": 2}', "'a' is there twice"),
        (b"[" * 100_000, "not JSON that can be read"),
        (b'{"a": ' + b"1" * 10_000 + b"}", "not JSON that can be read"),
    ],
)
def test_what_is_no_json_is_one_line_with_file_and_position(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    assert cli.main(["import", "gbench", str(file), "--out", str(tmp_path / "out")]) == USAGE
    answer = capsys.readouterr().err
    assert f"x.json{said}" in answer or (f"{file}: " in answer and said in answer)
    assert answer.count("\n") == 1


def test_every_cut_of_a_file_is_a_clear_error(tmp_path: Path) -> None:
    whole = GBENCH[0].read_bytes()
    file = tmp_path / "cut.json"
    for size in range(0, len(whole.rstrip()), 97):
        file.write_bytes(whole[:size])
        with pytest.raises(GpuliftError, match=r"cut\.json:\d+:\d+: not JSON: "):
            gbench([file])


def test_the_same_file_twice_is_no_second_launch(tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes(GBENCH[0].read_bytes())
    with pytest.raises(GpuliftError, match="a launch counts once"):
        gbench([GBENCH[0], copy])


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = str(GBENCH[0]), str(tmp_path / "out")
    for arguments, said in (
        (["xml"], "the formats are gbench, nvbench"),
        (["gbench", file], "--out"),
        (["gbench", "--out", out], "name FILES"),
        (["gbench", file, "--device", "1", "--out", out], "names no devices"),
        (["gbench", str(tmp_path / "no"), "--out", out], "No such file"),
        (["gbench", str(tmp_path), "--out", out], "Is a directory"),
    ):
        assert cli.main(["import", *arguments]) == USAGE
        answer = capsys.readouterr().err
        assert said in answer
        assert answer.count("\n") == 1
    assert not Path(out).exists()


def test_a_folder_that_cannot_be_written_or_holds_something_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("", encoding="utf-8")
    for out, said in (
        (tmp_path, "not empty"),
        (tmp_path / "mine", "not empty"),
        (Path("/proc/x"), "cannot be written"),
        (Path("/dev/full"), "not empty"),
    ):
        assert cli.main(["import", "gbench", str(GBENCH[0]), "--out", str(out)]) == USAGE
        assert said in capsys.readouterr().err


def test_a_disk_that_fills_up_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    command = ["import", "gbench", str(GBENCH[0]), "--out", str(tmp_path / "x")]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert cli.main(command) == FAILED
    assert "No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_half_an_import_that_a_kill_left_is_read_by_nobody_and_replaced(tmp_path: Path) -> None:
    command = ["import", "gbench", str(GBENCH[0]), "--out", str(tmp_path / "x")]
    assert cli.main(command) == OK
    half = tmp_path / ".gpulift-x-0.new"
    (tmp_path / "x").rename(half)
    assert list(half.glob("*.jsonl"))
    assert record_files_below(tmp_path) == []
    assert cli.main(command) == OK
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_the_current_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["import", "gbench", str(GBENCH[0]), "--out", "."]) == USAGE
    assert "is the current folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "..", "", "a" * 10_000, "\x1b[2J", "Ünï", "CON", "a/b"]
)
def test_no_name_leaves_the_folder(name: str, tmp_path: Path) -> None:
    def rename(document: Json) -> None:
        document["benchmarks"][0] |= {"name": name or "x", "run_name": name}

    file = changed(GBENCH[0], tmp_path, rename)
    out = tmp_path / "in" / "here"
    assert cli.main(["import", "gbench", str(file), "--out", str(out)]) == OK
    assert {one.name for one in tmp_path.iterdir()} == {file.name, "in"}
    assert [one.name for one in (tmp_path / "in").iterdir()] == ["here"]
    assert {f"name:{name or 'x'}"} <= {one.case_id for one in read_run(out).records}
    for record in read_run(out).records:
        assert "\x1b" not in "\n".join(lines(record))


def test_names_that_lose_letters_stay_two() -> None:
    assert word("copy_1") == "copy_1"
    names = ("Copy 1", "copy 1", "copy-1", "../copy 1", "ä", "ö", "a" * 100, "a" * 101)
    words = [word(name) for name in names]
    assert len({*words}) == len(names)
    assert all(one.replace("_", "").isalnum() and one.isascii() for one in words)
    assert max(map(len, words)) < 80


# --- Nothing judges an import ---


def test_show_prints_it_and_cite_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = imported_run(tmp_path / "run", *GBENCH)
    one = next(record for record in run.records if record.outcome == "ok")
    assert cli.main(["show", one.id, "--results", str(run.folder)]) == OK
    shown = capsys.readouterr().out
    assert "kind            import" in shown
    assert '"library_build_type": "debug"' in shown
    assert "./gpulift run" not in shown
    assert cli.main(["cite", one.id, "--results", str(run.folder)]) == USAGE
    assert "was imported" in capsys.readouterr().err


def test_check_refuses_it_among_results(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results" / "cpu-unknown" / "2026-11-21-abcdef0"
    imported_run(folder, GBENCH[0])
    assert cli.main(["check", str(tmp_path / "results")]) == FAILED
    assert "was imported from another tool" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["junit", "github"])
def test_no_verdict_is_exported(
    format: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = imported_run(tmp_path / "run", *GBENCH)
    assert cli.main(["export", format, str(run.folder)]) == USAGE
    assert "only records of kind import" in capsys.readouterr().err


def test_neither_reference_nor_claims_nor_certificates_take_it(tmp_path: Path) -> None:
    imported.write(nvbench([NVBENCH], 0), tmp_path / "nvidia-h200" / "run")
    run = read_run(tmp_path / "nvidia-h200" / "run")
    with pytest.raises(GpuliftError):
        build([run])
    assert runs_by_model(tmp_path, read_ledger()) == {}
    assert check_certificates(tmp_path).certificates == 0


def test_two_imports_can_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = []
    for name, factor in (("base", 1.0), ("head", 1.5)):
        files = []
        for launch in range(5):

            def scale(document: Json, by: float = factor * (1 + 1e-3 * launch)) -> None:
                kept = [one for one in document["benchmarks"] if "broken" not in one["name"]]
                document["benchmarks"] = kept
                for entry in kept:
                    entry["real_time"] = 100.0 * by

            (tmp_path / f"{name}{launch}").mkdir()
            files.append(changed(GBENCH[0], tmp_path / f"{name}{launch}", scale))
        sides.append(imported_run(tmp_path / name, *files).folder)
    assert cli.main(["compare", *map(str, sides), "--json"]) == FAILED
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["regressed"] == 2
    assert found["rows"][0]["change"] == pytest.approx(0.5, rel=1e-6)


def test_one_file_a_side_says_nothing_of_the_next_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder, file in zip(folders, GBENCH[:2], strict=True):
        made = [one for one in gbench([file]) if one["outcome"] == "ok"]
        imported.write(made, folder)
    assert cli.main(["compare", *map(str, folders)]) == INCONCLUSIVE
    assert "one process says nothing about the next one" in capsys.readouterr().out


def test_an_import_is_not_compared_with_records_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = imported_run(tmp_path / "theirs", *GBENCH).folder
    ours = sample.write(tmp_path / "ours", runs_made.without_gpu())
    assert cli.main(["compare", str(ours), str(theirs)]) == NOT_COMPARABLE
    assert "the head records were imported" in capsys.readouterr().err


def test_a_record_of_ours_still_needs_its_build_and_seed() -> None:
    one = runs_made.full_gpu()[0]
    del one["order"]["seed"]
    with pytest.raises(GpuliftError, match="seed is missing"):
        read_record(one)
    one = runs_made.full_gpu()[0]
    del one["context"]["build"]
    with pytest.raises(GpuliftError, match="build is missing"):
        read_record(one)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every value inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("source", [GBENCH[0], NVBENCH], ids=["gbench", "nvbench"])
def test_a_file_with_anything_wrong_in_it_is_read_or_refused(
    source: Path, seed: int, tmp_path: Path
) -> None:
    wrong: tuple[Any, ...] = (
        None,
        True,
        0,
        -1,
        1e308,
        10**30,
        "x",
        "",
        [],
        {},
        [None],
        "nan",
        "../x",
        "\x1b[2J",
    )
    random = np.random.default_rng(seed)
    ways = list(places(json.loads(source.read_text(encoding="utf-8"))))
    said: list[str] = []
    for number in range(60):
        way = ways[int(random.integers(len(ways)))]
        value = wrong[int(random.integers(len(wrong)))]
        file = changed(source, tmp_path, put([*way], value))
        try:
            found = read_gbench([file]) if source is GBENCH[0] else read_nvbench([file], 0)
            said += found.unread
            out = tmp_path / f"{number}"
            imported.write(found.records, out)
            assert not found.records or len(read_run(out).records) == len(found.records)
        except GpuliftError as error:
            said.append(str(error))
    assert said
    assert all(one.isprintable() for one in said)
