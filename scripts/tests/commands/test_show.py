"""`gpulift show`: one record found by its id, shown whole, and how it is measured again."""

from __future__ import annotations

import copy
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.arms import joules_per_step, metric
from gpulift.commands.show import lines
from gpulift.engine.again import command_again, filter_of, repeated_by
from gpulift.ground.errors import USAGE
from gpulift.ground.text import visible
from gpulift.records.model import Record, record_id
from gpulift.records.parse import read_record
from tests import runs_made, sample
from tests.sample import Json

CASE: Json = {"direction": "h2d", "bytes": 65536}
NASTY = "[bold]x[/bold]\x1b[31m\x07\u202e\u2028\x9b"
PINNED = "transfer/pinned_copy/direction:h2d/bytes:65536"


def pinned(**top: object) -> Json:
    """A launch in which the pinned copy takes half of the pageable one's time."""
    arms = [
        sample.arm("pageable", 2e-4, cost={"bytes": 65536.0}),
        sample.arm("pinned", 1e-4),
        sample.skipped_arm("registered", "no right to lock memory", "raise ulimit -l"),
    ]
    return sample.record("transfer/pinned_copy", CASE, arms, **top)  # type: ignore[arg-type]


def shown(raw: Json) -> str:
    return "\n".join(lines(read_record(raw)))


def show(folder: Path, *arguments: str) -> int:
    return cli.main(["show", *arguments, "--results", str(folder)])


def of_energies() -> Json:
    """Arms that tell their CPU time and their energy, the second in some of its windows alone."""
    how = {"clock": "host", "cpu_cores": 1.5}
    watts = {"slow": 100, "fast": 400, "hot": 400}
    arms = [sample.arm(name, 1e-3, power_w=power_w, **how) for name, power_w in watts.items()]
    raw = sample.record("a/b", {"n": 1}, arms)
    windows = raw["arms"][1]["windows"]
    windows["energy_j"] = [None] * (len(windows["host_s"]) - 3) + [0.1, 0.2, 0.9]
    return raw


def of_metrics() -> Json:
    """A training step that says much of itself, of a control, and its throttling not read."""
    cost = {"items": 8192.0, "item": "token"}
    metrics = {
        "peak_reserved_bytes": 3221225472,
        "kernel_launches_per_step": 1234,
        "joules_per_step": 16.384,
        "recomputed_share": 0.25,
        "compile_s": 1.5,
        "empty_launch_s": 2.1e-6,
    }
    arms = [sample.arm(name, 1e-3, cost=cost, metrics=metrics) for name in ("eager", "graph")]
    raw = sample.record("training/step", {"batch": 8}, arms, controls=["graph"])
    del raw["telemetry"]["throttle"]
    return raw


def of_a_duet() -> Json:
    arms = [sample.arm("base:x", 1e-3), sample.arm("head:x", 1e-3)]
    return sample.record("ceiling/memory", {"n": 1}, arms, kind="duet", arm="x")


def of_a_ceiling() -> Json:
    """Whose arms are not held against each other, and no GPU was held back."""
    arms = [sample.arm("read", 1e-3, cost={"bytes": 4e9}), sample.arm("write", 2e-3)]
    raw = sample.record("ceiling/memory", {"n": 1}, arms)
    raw["telemetry"]["throttle"] = []
    return raw


def of_a_skip(id_of: str) -> Json:
    host = {"cpu": "AMD EPYC 7B13", "cores": 2, "id": "0badcafe", "id_of": id_of}
    context = {**sample.CPU_CONTEXT, "host": host}
    technique = "transfer/pinned_copy"
    return sample.unmeasured(technique, CASE, "skipped", "no GPU", context, remedy="get one")


def doubtful() -> Json:
    context = copy.deepcopy(sample.GPU_CONTEXT)
    context["build"] |= {"dirty": True, "type": "Debug", "sanitizers": "address"}
    context["options"]["plant"] = 0.05
    load = {"own_cores": 1.04, "other_cores": 2.0, "stolen_cores": 0.5}
    raw = pinned(context=context, discarded_blocks=3, restarts=1, host_load=load)
    raw["stop"]["dropped_visits"] = 4
    return raw


def of_two_gpus_one_unread() -> Json:
    raw = runs_made.of_ranks_and_disks()[0]
    del raw["telemetry_others"][0]["throttle"]
    return raw


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(pinned(), id="plain"),
        pytest.param(of_energies(), id="energies"),
        pytest.param(of_metrics(), id="metrics"),
        pytest.param(of_a_duet(), id="duet"),
        pytest.param(of_a_ceiling(), id="ceiling"),
        pytest.param(of_a_skip("machine_id"), id="skip"),
        pytest.param(of_a_skip("boot_id"), id="skip by boot"),
        pytest.param(doubtful(), id="doubtful"),
        pytest.param(sample.visited({"n": 1}, (1.0, 1.2), 0.0), id="visits"),
        pytest.param(runs_made.of_ranks_and_disks()[0], id="ranks"),
        pytest.param(of_two_gpus_one_unread(), id="ranks unread"),
        pytest.param(runs_made.of_ranks_and_disks()[-1], id="disk"),
    ],
)
def test_a_record_is_shown_with_arms_windows_and_conditions(
    raw: Json, kept: Callable[[str], None]
) -> None:
    kept(f"{shown(raw)}\n")


@pytest.mark.parametrize(("columns", "is_terminal"), [(60, True), (80, True), (60, False)])
def test_lines_are_as_wide_as_the_terminal_and_break_no_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, is_terminal: bool
) -> None:
    raw = pinned(notes={"one": 30 * "several-words "})
    sample.write(tmp_path / "nvidia-h200" / "2026-11-21-abc1234", [raw])
    stdout = io.StringIO()
    monkeypatch.setattr(stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))  # whose errata have no words that are longer
    assert show(tmp_path, record_id(raw)) == 0
    *printed, command = stdout.getvalue().splitlines()
    assert command.startswith("  ./gpulift run ")
    widest = max(len(line) for line in printed if not line.startswith("  file "))
    assert columns - 13 <= widest <= columns
    assert "".join(printed).count("several-words") == 30


def test_joules_of_windows_come_before_those_of_an_untimed_one() -> None:
    one = sample.arm("x", 1e-3, power_w=500.0, metrics={"joules_per_step": 99.0})
    record = read_record(sample.record("a/b", {"n": 1}, [one]))
    assert joules_per_step(record, record.arms[0]) == pytest.approx(0.505, rel=0.02)
    assert "99.0 J" in shown(sample.record("a/b", {"n": 1}, [one])), "nothing is left out"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("peak_reserved_bytes", 1536.0, "1.50 KiB"),
        ("joules_per_step", 0.25, "250 mJ"),
        ("warm_up_j", 2.0, "2.00 J"),
        ("compile_s", 0.002, "2.00 ms"),
        ("steps_per_s", 12.5, "12.5"),
        ("kernel_launches_per_step", 12345.0, "12345"),
        ("loss_change", -0.125, "-0.125"),
        ("freed_bytes", -2048.0, "-2.00 KiB"),
    ],
)
def test_a_metric_has_the_unit_that_its_name_ends_in(name: str, value: float, said: str) -> None:
    assert metric(name, value) == said


def test_the_windows_are_those_of_the_record_in_their_order() -> None:
    raw = pinned()
    text = shown(raw)
    block = text.partition("Arm pinned")[2].partition("µs of a step in each:\n")[2]
    values = [float(word) for word in block.partition("\n\n")[0].split()]
    windows = raw["arms"][1]["windows"]["device_s"]
    assert values == pytest.approx([1e6 * one / 10 for one in windows], rel=6e-4)


def test_step_time_and_speedup_are_the_launch_s_own() -> None:
    text = shown(pinned()).partition("Arm pinned")[2]
    time = re.search(r"step time +(\S+) µs \[(\S+), (\S+)\]", text)
    ratio = re.search(r"speedup +(\S+)× \[", text)
    assert time is not None
    assert ratio is not None
    value, low, high = (float(one) for one in time.groups())
    assert low < value < high
    assert value == pytest.approx(100, rel=0.01)
    assert float(ratio[1]) == pytest.approx(2, rel=0.01)


def test_nothing_in_a_record_is_obeyed_by_a_terminal() -> None:
    context = copy.deepcopy(sample.GPU_CONTEXT)
    context["gpu"]["name"] = f"NVIDIA {NASTY}"
    context["build"]["commit"] = NASTY
    context["environment"] = {NASTY: NASTY}
    raw = sample.record("a/b", {"n": NASTY}, [sample.arm(NASTY, 1e-3)], context=context)
    raw |= {"question": NASTY, "notes": {NASTY: NASTY}, "reason": NASTY}
    for line in lines(read_record(raw)):
        assert line.isprintable()
    assert visible(NASTY) == r"[bold]x[/bold]\x1b[31m\x07\u202e\u2028\x9b"
    assert "[bold]x[/bold]" in shown(raw)


def again(raw: Json, folder: Path = Path()) -> list[str]:
    return shlex.split(command_again(read_record(raw, folder / "a.b.jsonl")))


def test_the_command_has_the_filter_and_every_option_that_the_record_knows() -> None:
    context = copy.deepcopy(sample.GPU_CONTEXT)
    context["options"] |= {"quick": True, "seed": 7}
    assert again(pinned(context=context)) == [
        *("./gpulift", "run", f"^{PINNED}/(pageable|pinned|registered)$", "--quick"),
        *("--launches", "3", "--arm-time", "0.3", "--precision", "0.0025", "--seed", "7"),
    ]


@pytest.mark.parametrize(
    ("state", "flags"),
    [
        ('{"options": {"gpu": 1}}', ["--gpu", "1"]),
        ('{"options": {"gpu": 0}}', ["--gpu", "0"]),
        ('{"options": {"gpu": "1; rm"}}', []),
        ('{"options": {"gpus": [0, 1]}}', ["--gpus", "0,1"]),
        ('{"options": {"gpus": [0, "1; rm"]}}', []),
        ('{"options": {"more_modules": ["own-1a2b3c4d"]}}', ["--techniques", "DIR"]),
        ('{"options": []}', []),
        ("{", []),
    ],
)
def test_gpus_and_own_techniques_come_from_the_run_s_folder(
    tmp_path: Path, state: str, flags: list[str]
) -> None:
    (tmp_path / "run.json").write_text(state, encoding="utf-8")
    assert again(pinned(), tmp_path)[9:] == flags


@pytest.mark.parametrize(
    ("source", "script"), [({"my_step.py": "1a" * 32}, "my_step.py"), (None, "SCRIPT")]
)
def test_what_bench_measured_is_measured_again_by_bench(
    tmp_path: Path, source: Json | None, script: str
) -> None:
    state = '{"options": {"modules": "own.my_step-1a2b3c4d", "gpu": 1}}'
    (tmp_path / "run.json").write_text(state, encoding="utf-8")
    raw = pinned(**({"source": source} if source else {}))
    flags = ["--launches", "3", "--arm-time", "0.3", "--gpu", "1"]
    assert again(raw, tmp_path) == ["./gpulift", "bench", script, *flags]
    record = read_record(raw, tmp_path / "own.my_step.jsonl")
    assert repeated_by(record) == f"./gpulift bench {script}"


def test_a_case_with_files_names_a_folder_for_them() -> None:
    context = copy.deepcopy(sample.GPU_CONTEXT)
    context["scratch"] = {"filesystem": "ext4", "rotational": False, "in_memory": False}
    assert again(pinned(context=context))[9:] == ["--scratch", "DIR"]


def test_a_duet_and_a_planted_run_need_gpulift_bench() -> None:
    arms = [sample.arm("base:x", 1e-3), sample.arm("head:x", 1e-3)]
    context = copy.deepcopy(sample.GPU_CONTEXT)
    context["options"] = {"launches": 2, "plant": 0.02}
    duet = sample.record("a/b", {}, arms, kind="duet", arm="x", context=context)
    assert again(duet) == [
        *("build/gpulift-bench", "--benchmark_filter=^a/b/x$", "--head", "HEAD", "--base", "BASE"),
        *("--plant", "0.02", "--launches", "2", "--records", "FOLDER"),
    ]
    assert "HEAD and BASE are the folders" in shown(duet)
    assert "--head" not in again(sample.record("a/b", {}, arms[:1], context=context))


def test_the_filter_takes_names_by_their_letters() -> None:
    def record(case_id: str) -> Record:
        return read_record(sample.record("a/b", {}, [sample.arm("x", 1e-3)], case_id=case_id))

    assert filter_of(record("n:1.5/k:(a|b)")) == r"^a/b/n:1\.5/k:\(a\|b\)/x$"
    assert not re.search(filter_of(record("n:1.5")), "a/b/n:1x5/x")
    assert not re.search(filter_of(record("n:1")), "a/b/n:16/x")
    assert re.search(filter_of(record("n:1")), "a/b/n:1/x")
    assert shlex.split(command_again(record("n:'; rm x")))[2] == "^a/b/n:'; rm x/x$"


def test_the_filter_takes_the_arms_of_the_record_and_no_other() -> None:
    arms = [sample.arm(name, 1e-3) for name in ("x", "x.y")]
    pattern = filter_of(read_record(sample.record("a/b", {"n": 1}, arms)))
    assert pattern == r"^a/b/n:1/(x|x\.y)$"
    for name in ("a/b/n:1/x", "a/b/n:1/x.y"):
        assert re.search(pattern, name)
    for name in ("a/b", "a/b/n:1", "a/b/n:1/y", "a/b/n:1/xy", "a/b/n:1/x.y.z"):
        assert not re.search(pattern, name)


def test_a_record_without_arms_is_of_the_whole_case() -> None:
    raw = sample.unmeasured("a/b", {"n": 1}, "error", "ended by SIGSEGV")
    assert filter_of(read_record(raw)) == "^a/b/n:1$"


@pytest.mark.parametrize("form", ["gpulift:nvidia-h200/{0}", "nvidia-h200/{0}", "{0}", " {1} "])
def test_an_id_is_found_in_all_its_forms(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    raw = pinned()
    sample.write(tmp_path / "nvidia-h200" / "one", [raw])
    digits = record_id(raw)
    assert show(tmp_path, form.format(digits, digits[:4].upper())) == 0
    said = capfd.readouterr().out
    assert said.startswith(f"gpulift:nvidia-h200/{digits}\n")
    assert f"{tmp_path}/nvidia-h200/one/transfer.pinned_copy.jsonl:1" in said


def test_every_run_is_searched_and_not_only_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))
    old, new = pinned(seed=1), pinned(seed=2)
    sample.write(tmp_path / "results" / "nvidia-h200" / "2026-11-20-abc", [old])
    sample.write(tmp_path / "results" / "nvidia-h200" / "2026-11-21-abc", [new])
    for raw in (old, new):
        assert cli.main(["show", record_id(raw)]) == 0
        assert record_id(raw) in capfd.readouterr().out


def test_json_is_the_record_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    raw = pinned(reason=NASTY)
    sample.write(tmp_path, [raw])
    assert show(tmp_path, record_id(raw), "--json") == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert json.loads(line) == raw
    assert record_id(json.loads(line)) == record_id(raw)
    assert line.isascii()


@pytest.mark.parametrize("command", ["show", "show --bibtex"])
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("000000000000", "no record below"),
        ("gpulift:nvidia-b200/{id}", "; gpulift:nvidia-h200/"),
        ("{id}0", "is no record's id"),
        ("abc", "is no record's id"),
        ("../../x", "is no record's id"),
        ("\x1b[31m", "is no record's id"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, wanted: str, words: str
) -> None:
    raw = pinned()
    sample.write(tmp_path, [raw])
    asked = wanted.replace("{id}", record_id(raw))
    assert cli.main([*command.split(), asked, "--results", str(tmp_path)]) == USAGE
    said = capfd.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.err.strip().isprintable()


def alike(digits: int) -> list[Json]:
    """Two records whose ids begin alike, and differ in more than their digits of that length."""
    seen: dict[str, Json] = {}
    for number in range(100_000):
        raw = sample.unmeasured("a/b", {"n": number}, "skipped", "no GPU")
        start = record_id(raw)[:digits]
        if start in seen:
            return [seen[start], raw]
        seen[start] = raw
    raise AssertionError("no two ids begin alike")


def test_an_ambiguous_start_names_its_candidates(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    both = alike(4)
    sample.write(tmp_path, both)
    ids = sorted(record_id(raw) for raw in both)
    assert show(tmp_path, ids[0][:4]) == USAGE
    said = capfd.readouterr().err
    assert f"gpulift:nvidia-h200/{ids[0]}, gpulift:nvidia-h200/{ids[1]}: give more" in said
    assert show(tmp_path, ids[0]) == 0


def test_a_copy_of_a_record_is_no_second_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = pinned()
    folders = [sample.write(tmp_path / name, [raw]) for name in ("one", "two")]
    places = [part for folder in folders for part in ("--results", str(folder))]
    assert cli.main(["show", record_id(raw)[:6], *places]) == 0
    assert f"{folders[0]}/transfer.pinned_copy.jsonl:1" in capfd.readouterr().out


def test_a_file_that_cannot_be_read_is_said_and_the_others_are_searched(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = pinned()
    sample.write(tmp_path, [raw])
    (tmp_path / "a.jsonl").write_text('{"schema": "2.0"}\n', encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"sch', encoding="utf-8")
    assert show(tmp_path, record_id(raw)) == 0
    said = capfd.readouterr().err
    assert f"warning: left out: {tmp_path}/a.jsonl:1: schema is 2.0" in said
    assert f"warning: {tmp_path}/b.jsonl:1: the last line is cut off" in said


@pytest.mark.parametrize(
    ("name", "words"), [("none", "no such file"), ("", "there are no records")]
)
def test_a_place_without_records_is_a_usage_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    assert show(tmp_path / name, "abcd") == USAGE
    assert words in capfd.readouterr().err


def test_a_single_file_is_a_place(tmp_path: Path) -> None:
    raw = pinned()
    file = sample.write(tmp_path, [raw]) / "transfer.pinned_copy.jsonl"
    assert show(file, record_id(raw)) == 0


@pytest.mark.world
@pytest.mark.parametrize("command", ["show", "show --bibtex"])
def test_it_answers_without_the_other_commands(command: str, root: Path, tmp_path: Path) -> None:
    raw = pinned()
    folder = sample.write(tmp_path / "made", [raw])
    arguments = ["gpulift", *command.split(), record_id(raw), "--results", str(folder)]
    code = (
        "import sys; from gpulift import __main__ as program\n"
        f"sys.argv = {arguments}; code = program.main()\n"
        "sys.exit(code or 'scipy.stats' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"gpulift:nvidia-h200/{record_id(raw)}" in done.stdout
