"""The record reader: what it accepts, what it refuses, and how it says so."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpulift.ground.errors import GpuliftError, RecordError
from gpulift.records.decode import parse_line
from gpulift.records.model import Precondition, Scratch, Stop, record_id, slug
from gpulift.records.parse import read_record
from gpulift.records.read import newest_run, read_file, read_results, reading_once, run_folders
from gpulift.records.together import was_crowded
from tests import runs_made, sample
from tests.conftest import DATA

GOOD = sample.record("transfer/pinned_copy", {"bytes": 4096}, [sample.arm("a", 1e-3)] * 2)
GOOD["arms"][1] |= {"name": "b", "role": "technique"}


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_every_schema_version_ever_written_can_be_read() -> None:
    for file in sorted(DATA.rglob("*.jsonl")):
        assert read_file(file).records, file


def test_a_record_keeps_what_was_written() -> None:
    record = read_record(GOOD)
    assert record.technique == "transfer/pinned_copy"
    assert record.case == {"bytes": 4096}
    assert [arm.name for arm in record.arms] == ["a", "b"]
    assert list(record.arms[0].window_s) == GOOD["arms"][0]["windows"]["device_s"]
    assert record.telemetry is not None
    assert record.telemetry.ranges["power_w"].median == 650.0
    assert record.telemetry.temperature_slope_c_per_s == 0.5
    assert record.citation == f"gpulift:nvidia-h200/{record.id}"


def test_of_a_path_no_hash_is_read_as_older_records_have_it() -> None:
    raw = copy.deepcopy(GOOD)
    raw["context"]["environment"] = {"LD_LIBRARY_PATH": "#e08976b9:lib", "NCCL_ALGO": "Ring"}
    raw["context"]["build"] |= {"flags": "-I#8e2389f8 -I#8", "environment": {"CPATH": "#8e2389f8:"}}
    context = read_record(raw).context
    assert context.environment == {"LD_LIBRARY_PATH": "set", "NCCL_ALGO": "Ring"}
    assert context.facts["environment"] == context.environment
    told = (context.build.flags, context.facts["build"]["flags"])
    assert told == ("-I# -I#8",) * 2
    assert context.build.environment == {"CPATH": "#:"}


@pytest.mark.parametrize(("told", "read"), [([], ()), (None, None)])
def test_throttling_that_is_not_there_is_not_known_and_an_empty_list_is_none(
    told: list[str] | None, read: tuple[str, ...] | None
) -> None:
    telemetry = read_record(change("telemetry.throttle", told)).telemetry
    assert telemetry is not None
    assert telemetry.throttle == read


def test_what_schema_1_0_did_not_have_is_absent() -> None:
    older = copy.deepcopy({**GOOD, "schema": "1.0"})
    del older["restarts"]
    del older["telemetry"]["temperature_slope_c_per_s"]
    del older["host_load"]
    record = read_record(older)
    assert record.restarts == 0
    assert record.host_load is None
    assert record.telemetry is not None
    assert record.telemetry.temperature_slope_c_per_s is None


def test_energies_are_read_with_their_gaps() -> None:
    energies = (None, *[0.5] * (len(GOOD["arms"][0]["windows"]["host_s"]) - 1))
    record = read_record(change("arms.0.windows.energy_j", list(energies)))
    assert record.arms[0].windows.energy_j == energies
    assert record.arms[1].windows.energy_j == ()


def test_what_schema_1_7_added_is_read() -> None:
    several, *_, disk = map(read_record, runs_made.of_ranks_and_disks())
    assert [gpu.card for gpu in several.context.gpus] == ["1a2b3c4d", "5e6f7a8b"]
    ring, tree = several.arms
    assert (ring.ranks, ring.environment, ring.checked) == (2, {"NCCL_ALGO": "Ring"}, True)
    assert tree.checked is False
    assert several.source == {"all_reduce.cpp": 64 * "a"}
    (other,) = several.telemetry_others
    assert other.ranges["power_w"].median == 100.0
    assert disk.context.versions == {"pillow": "12.0.0"}
    assert disk.context.scratch == Scratch("ext4", rotational=False)
    assert disk.stop == Stop("planned", 4, planned_blocks=4)
    assert disk.arms[0].precondition == Precondition("resident_share", 0.01, 0.002)
    windows = disk.arms[0].windows
    assert list(windows.cpu_s) == list(windows.host_s)


def test_what_older_records_lack_of_it_is_one_process_that_was_checked() -> None:
    record = read_record(GOOD)
    arm = record.arms[0]
    assert (arm.ranks, arm.environment, arm.checked, arm.precondition) == (1, {}, True, None)
    assert (record.context.gpus, record.context.scratch, record.source) == ((), None, {})
    assert list(arm.windows.cpu_s) == []
    assert record.stop is not None
    assert record.stop.planned_blocks is None


def test_metrics_and_what_an_item_is_are_read() -> None:
    changed = change("arms.0.metrics", {"joules_per_step": 1.5, "launches": 3})
    changed["arms"][0]["cost"]["item"] = "token"
    first, second = read_record(changed).arms
    assert first.metrics == {"joules_per_step": 1.5, "launches": 3.0}
    assert (first.cost and first.cost.item) == "token"
    assert second.metrics == {}
    assert (second.cost and second.cost.item) == ""


@pytest.mark.parametrize("reason", [None, "", " \t"])
def test_a_skip_without_a_reason_is_refused_with_its_place(
    tmp_path: Path, reason: str | None
) -> None:
    said = {} if reason is None else {"reason": reason}
    case = {**sample.unmeasured("a/b", {"n": 1}, "skipped", "no GPU")}
    del case["reason"]
    arm = copy.deepcopy(sample.record("a/b", {"n": 2}, [sample.arm("x", 1e-3)]))
    arm["arms"].append({"name": "y", "role": "technique", "outcome": "skipped", **said})
    for place, record in (("reason", case | said), ("arms[1].reason", arm)):
        file = sample.write(tmp_path / place, [GOOD | {"technique": "a/b"}, record]) / "a.b.jsonl"
        with pytest.raises(RecordError) as caught:
            read_file(file)
        assert str(caught.value) == f"{file}:2: {place} must say why it was skipped"


def test_an_error_without_a_message_can_still_be_read() -> None:
    record = read_record({**sample.unmeasured("a/b", {"n": 1}, "error", ""), "reason": ""})
    assert record.outcome == "error"


def test_the_id_is_of_the_content_and_not_of_its_spelling() -> None:
    shuffled = dict(reversed(list(GOOD.items())))
    spelled = json.loads(json.dumps(shuffled, indent=3))
    assert record_id(spelled) == record_id(GOOD)
    assert record_id({**GOOD, "launch": 1}) != record_id(GOOD)
    assert record_id({"b": [1, 2.5], "a": "µ"}) == "c91b976f799e"


def test_slugs() -> None:
    assert slug("NVIDIA H200") == "nvidia-h200"
    assert slug("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz") == "intel-xeon-platinum-8481c"
    assert slug("AMD EPYC 7B13 64-Core Processor") == "amd-epyc-7b13-64-core"
    assert slug("™") == "unknown"
    assert slug("x" * 5000) == "x" * 100


def test_processors_of_one_name_are_two_machines() -> None:
    host = {**sample.CPU_CONTEXT["host"], "cpu": "AMD EPYC"}

    def machine(**more: str) -> str:
        context = {**sample.CPU_CONTEXT, "host": {**host, **more}}
        return read_record({**GOOD, "context": context}).context.slug

    assert machine() == "cpu-amd-epyc"  # as before schema 1.6
    assert machine(cpu_id="25-17-1") == "cpu-amd-epyc-25-17-1"
    assert machine(cpu_id="0x41-0x0-0xd4f-0") == "cpu-amd-epyc-0x41-0x0-0xd4f-0"


def test_a_cut_off_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    line = json.dumps(GOOD)
    file = write(tmp_path / "a.jsonl", f"{line}\n{line[: len(line) // 2]}")
    content = read_file(file)
    assert len(content.records) == 1
    (warning,) = content.warnings
    assert warning.startswith(f"{file}:2: ")
    assert "cut off" in warning


def test_a_broken_line_with_its_line_feed_is_an_error(tmp_path: Path) -> None:
    line = json.dumps(GOOD)
    with pytest.raises(RecordError, match=r"a\.jsonl:1: not a line of JSON"):
        read_file(write(tmp_path / "a.jsonl", f"{line[:50]}\n{line}\n"))
    with pytest.raises(RecordError, match=r"a\.jsonl:2: not a line of JSON"):
        read_file(write(tmp_path / "a.jsonl", f"{line}\n{line[:50]}\n"))


@pytest.mark.parametrize("version", ["2.0", "0.9", "10.1"])
def test_another_major_schema_is_an_error_with_file_and_line(tmp_path: Path, version: str) -> None:
    text = f"{json.dumps(GOOD)}\n{json.dumps({**GOOD, 'schema': version})}\n"
    with pytest.raises(RecordError, match=rf"a\.jsonl:2: schema is {version}, .*reads 1\.x"):
        read_file(write(tmp_path / "a.jsonl", text))


def test_a_newer_minor_schema_with_more_keys_is_read() -> None:
    newer = copy.deepcopy({**GOOD, "schema": "1.7", "new": {"key": 1}})
    newer["context"]["gpu"]["new"] = True
    assert read_record(newer).schema == "1.7"


def change(path: str, value: Any) -> sample.Json:
    """The good record with one value changed, or removed for None."""
    changed = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    inner: Any = changed
    for key in parents:
        inner = inner[int(key)] if key.isdecimal() else inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema", "one", "schema must be major.minor"),
        ("technique", None, "technique is missing"),
        ("launch", "0", "launch must be int, not str"),
        ("launch", True, "launch must be int, not bool"),
        ("quick", 1, "quick must be bool, not int"),
        ("outcome", "great", "outcome: Invalid enum value 'great'"),
        ("kind", "other", "kind: Invalid enum value 'other'"),
        ("case", [], "case must be object, not array"),
        ("case.bytes", [1], r"case\.bytes must be int \| float \| str, not array"),
        ("claims", ["a", 1], r"claims\[1\] must be str, not int"),
        ("arms", {}, "arms must be array, not object"),
        ("restarts", 0.5, "restarts must be int, not float"),
        ("telemetry.temperature_slope_c_per_s", "warm", "slope_c_per_s must be float, not str"),
        ("host_load.other_cores", "many", r"host_load\.other_cores must be float, not str"),
        ("host_load.other_cores", -0.5, "other_cores must be float >= 0.0"),
        ("arms.0.steps_per_window", 0, r"arms\[0\]\.steps_per_window must be int >= 1"),
        ("arms.0.clock", "sun", r"arms\[0\]\.clock: Invalid enum value 'sun'"),
        ("arms.0.windows.device_s", [0.0] * 16, r"device_s\[0\] must be float >= 1e-12"),
        ("arms.0.windows.host_s", [5e-324], r"host_s\[0\] must be float >= 1e-12"),
        ("arms.0.windows.host_s", [1e308], r"host_s\[0\] must be float <= 1000000000\.0"),
        ("arms.0.windows.start_s", [1e308], r"start_s\[0\] must be float <= 1e\+?30"),
        ("arms.0.windows.sm_clock_hz", [1e9, 5e-324], r"arms\[0\]\.windows\.sm_clock_hz has 4\.9"),
        (
            "arms.0.windows.cpu_s",
            [5e-324],
            r"f\.jsonl:3: arms\[0\]\.windows\.cpu_s has 4\.94066e-324",
        ),
        ("arms.0.windows.energy_j", [None, 5e-324], r"windows\.energy_j has 4\.94066e-324, which"),
        ("arms.1.cost.items", 5e-324, r"arms\[1\]\.cost has 4\.94066e-324, which nothing can"),
        ("arms.1.cost.flops", 1e308, r"cost\.flops must be float <= 1e\+?30"),
        ("arms.0.windows.device_s", [1.0], "has 1 device windows, but the order has 16"),
        ("arms.1.cost.bytes", 10**400, "bytes: Number out of range"),
        ("order", None, "no order"),
        ("order.blocks", [[0, 7]], "names an arm that is not there"),
        ("order.blocks", [[0, "1"]], r"blocks\[0\]\[1\] must be int, not str"),
        ("context.host", None, r"context\.host is missing"),
        ("notes", {"a": 1}, r"notes\.a must be str, not int"),
        ("telemetry.power_w", {"min": 1}, r"telemetry\.power_w\.median is missing"),
        ("arms.0.windows.energy_j", [0.5], r"windows\.energy_j must have an entry for each window"),
        ("arms.0.windows.energy_j", [-0.5], r"energy_j\[0\] must be float >= 0.0"),
        ("arms.0.windows.energy_j", ["1 J"], r"energy_j\[0\] must be float \| null, not str"),
        ("arms.0.windows.cpu_s", [0.5], r"windows\.cpu_s must have an entry for each window"),
        ("arms.0.windows.cpu_s", [-0.5], r"cpu_s\[0\] must be float >= 0.0"),
        ("arms.0.windows.cpu_s", [None], r"cpu_s\[0\] must be float, not null"),
        ("arms.0.ranks", 0, r"arms\[0\]\.ranks must be int >= 1"),
        ("arms.0.environment", {"A": 1}, r"arms\[0\]\.environment\.A must be str, not int"),
        ("arms.0.checked", 1, r"arms\[0\]\.checked must be bool, not int"),
        ("arms.0.precondition", {"name": "n"}, r"arms\[0\]\.precondition\.most is missing"),
        (
            *("arms.0.precondition", {"name": "n", "most": 1, "worst": None}),
            "worst must be float, not null",
        ),
        ("context.gpus", [{"card": "1"}], r"context\.gpus\[0\]\.name is missing"),
        ("context.versions", {"torch": 2}, r"context\.versions\.torch must be str, not int"),
        ("context.scratch", {"rotational": "yes"}, r"scratch\.rotational must be bool, not str"),
        ("arms.0.metrics", [1.5], r"arms\[0\]\.metrics must be object, not array"),
        ("arms.0.metrics", {"joules": "1.5"}, r"metrics\.joules must be float, not str"),
        ("arms.0.metrics", {"joules": None}, r"metrics\.joules must be float, not null"),
        ("arms.0.metrics", {"captured": True}, r"metrics\.captured must be float, not bool"),
        ("arms.0.metrics", {"joules": float("nan")}, r"metrics\.joules must be float >= -1\.79"),
        ("arms.0.cost.item", 1, r"arms\[0\]\.cost\.item must be str, not int"),
    ],
)
def test_wrong_values_are_named(path: str, value: Any, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        read_record(change(path, value), Path("f.jsonl"), 3)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_non_finite_numbers_are_refused(constant: str) -> None:
    with pytest.raises(RecordError, match=f"f:1: {constant} is not a number"):
        parse_line(f'{{"a": {constant}}}'.encode(), "f:1")
    with pytest.raises(RecordError, match="must be float"):
        read_record(change("time_s", json.loads('{"total": 1e999}')))


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5),
    lambda inner: (
        some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(some.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_record_error(data: bytes) -> None:
    with suppress(RecordError):  # anything else would fail the test
        assert isinstance(parse_line(data, "f:1"), dict)


@given(some.sampled_from(sorted(GOOD)), JSON)
def test_any_value_of_any_key_is_read_or_a_record_error(key: str, value: Any) -> None:
    with suppress(RecordError):
        assert read_record({**GOOD, key: value}).schema.startswith("1.")


@given(some.integers(min_value=1, max_value=len(json.dumps(GOOD)) - 1))
def test_a_line_cut_anywhere_is_never_read(length: int) -> None:
    with pytest.raises(RecordError):
        parse_line(json.dumps(GOOD).encode()[:length], "f:1")


def test_results_may_be_a_file_a_run_or_a_folder_above(tmp_path: Path) -> None:
    gpu = sample.write(tmp_path / "nvidia-h200" / "2026-11-20-abc1234", runs_made.full_gpu())
    cpu = sample.write(tmp_path / "cpu-amd" / "2026-11-20-abc1234", runs_made.without_gpu())
    assert len(read_results([gpu / "ceiling.gemm.jsonl"])[0].records) == 24
    assert read_results([gpu])[0].machine == "NVIDIA H200"
    assert [run.folder for run in read_results([tmp_path])] == [cpu, gpu]


def test_newest_full_run_wins_over_newer_quick_ones(tmp_path: Path) -> None:
    quick = copy.deepcopy(runs_made.without_gpu())
    for one in quick:
        one["context"]["options"]["quick"] = True
    names = ["2026-11-20-a-2", "2026-11-20-a-10", "2026-11-21-a"]
    for name, records in zip(names, (runs_made.without_gpu(),) * 2 + (quick,), strict=True):
        sample.write(tmp_path / "cpu" / name, records)
    run = newest_run(run_folders(tmp_path))
    assert run is not None
    assert run.folder.name == "2026-11-20-a-10"
    filtered = [one for one in runs_made.without_gpu() if one["technique"] == "precision/matmul"]
    sample.write(tmp_path / "cpu" / "2026-11-22-a", filtered)
    run = newest_run(run_folders(tmp_path))
    assert run is not None
    assert run.folder.name == "2026-11-20-a-10", "a run of one technique is not a full one"
    only_quick = newest_run([tmp_path / "cpu" / "2026-11-21-a"])
    assert only_quick is not None
    assert not only_quick.full


def case_of(technique: str, n: int, count: int, day: int, **how: Any) -> list[sample.Json]:
    """Launches of a case, started on that day of November."""
    arms = [sample.arm("x", 1e-3), sample.arm("y", 2e-3)]
    made = sample.launches(count, technique, {"n": n}, arms, context=sample.GPU_CONTEXT, **how)
    return [{**one, "started_at": f"2026-11-{day}T00:00:00Z"} for one in made]


def test_the_newest_run_is_that_which_began_last_whatever_its_name(tmp_path: Path) -> None:
    sample.write(tmp_path / "gpu" / "2026-11-20-fff", case_of("a/b", 1, 2, 20))
    sample.write(tmp_path / "gpu" / "2026-11-20-aaa", case_of("a/b", 1, 2, 21))
    (run,) = read_results([tmp_path])
    assert run.folder.name == "2026-11-20-aaa"


def test_a_run_with_all_cards_busy_is_only_read_where_it_is_named(tmp_path: Path) -> None:
    alone = sample.write(tmp_path / "gpu" / "2026-11-20-a", case_of("a/b", 1, 2, 20))
    crowded = sample.write(tmp_path / "gpu" / "2026-11-20-a-2", case_of("a/b", 1, 2, 21))
    assert newest_run(run_folders(tmp_path / "gpu")) == read_results([crowded])[0]
    sample.mark_crowded(crowded)
    for choose in (None, list):
        assert [run.folder for run in read_results([tmp_path], choose=choose)] == [alone]
    assert read_results([crowded])[0].folder == crowded
    assert newest_run([crowded]) is None
    sample.mark_crowded(alone)
    with pytest.raises(GpuliftError, match="no records of a GPU that was busy alone"):
        read_results([tmp_path])


@pytest.mark.parametrize("together", [1, None, "2", [], True])
def test_a_card_alone_is_not_taken_for_one_of_several(tmp_path: Path, together: object) -> None:
    sample.mark_crowded(tmp_path, together)
    assert not was_crowded(tmp_path)


@pytest.mark.parametrize("state", ["", "[]", "null", '{"options": 1}', "\xff", "[" * 100_000])
def test_a_state_that_cannot_be_read_says_nothing(tmp_path: Path, state: str) -> None:
    (tmp_path / "run.json").write_bytes(state.encode("latin-1"))
    assert not was_crowded(tmp_path)


def test_of_the_same_launch_the_last_record_counts(tmp_path: Path) -> None:
    first = sample.unmeasured("a/b", {"n": 1}, "error", "signal SIGSEGV")
    sample.write(tmp_path, [first, {**first, "reason": "timeout"}])
    (run,) = read_results([tmp_path])
    assert [record.reason for record in run.records] == ["timeout"]
    assert "replaces line 1" in run.warnings[0]


def test_nothing_to_read_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="no such file or folder"):
        read_results([tmp_path / "nowhere"])
    with pytest.raises(GpuliftError, match="no records"):
        read_results([tmp_path])
    write(tmp_path / "empty.jsonl", "")
    with pytest.raises(GpuliftError, match="no records"):
        read_results([tmp_path])


def test_a_file_is_read_once_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = sample.write(tmp_path, [sample.record("a/b", {"n": 1}, [sample.arm("x", 1e-3)])])
    file = folder / "a.b.jsonl"
    with reading_once():
        first = read_file(file)
        with reading_once():
            assert read_file(file) is first
        assert read_file(file) is first
    assert read_file(file) is not first
