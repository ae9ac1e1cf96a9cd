"""`gpulift show ID --counters`, with a stand-in for ncu that writes what a real one wrote."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.commands import counters
from gpulift.engine import ncu
from gpulift.ground.errors import BUSY, FAILED, NOTHING_RAN, OK, USAGE, GpuliftError
from gpulift.records.model import Cost, record_id
from tests import sample
from tests.conftest import CHECKOUT, DATA

pytestmark = pytest.mark.world

# Of ncu 2025.3.1 on an H200: an addition of 1 GiB, a fill of 1 GiB, and a product of 8192 in BF16;
# of its columns those of the kernels and of our metrics.
REAL = (DATA / "ncu_2025.3_h200.txt").read_text(encoding="utf-8")
GIB = float(1 << 30)
FILTER = "^transfer/pinned_copy/bytes:4096/(pageable|pinned)$"
# Takes the place of ncu: writes what FAKE_NCU holds into its log, and runs the program.
STAND_IN = f"""#!{sys.executable}
import os, sys
from pathlib import Path
flags = sys.argv[1:]
log = flags[flags.index("--log-file") + 1]
Path(log).write_text(Path(os.environ["FAKE_NCU"]).read_text())
print("ncu:", *flags, file=sys.stderr)
with open(os.environ["FAKE_NCU"] + ".called", "a") as called:
    print(*flags, file=called)
program = next(at for at, flag in enumerate(flags) if flag.endswith("gpulift-bench"))
os.execv(flags[program], flags[program:])
"""


def kernels(*numbers: int) -> str:
    """The text of ncu with these of its three kernels alone."""
    lines = REAL.splitlines()
    told, rows = lines[:-3], lines[-3:]
    return "\n".join([*told, *(rows[number] for number in numbers)]) + "\n"


def with_operations(text: str, bf16: float) -> str:
    """The text with columns that the one above lacks; they are written in the same form."""
    written = io.StringIO()
    kept = [line for line in text.splitlines() if not line.startswith('"')]
    rows = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    names = list(ncu.OPERATIONS)
    amounts = [f"{bf16:,.0f}", *("0" for _ in names[1:])]
    more = [names, ["" for _ in names], *(amounts for _ in rows[2:])]
    writer = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(row + other for row, other in zip(rows, more, strict=True))
    return "\n".join(kept) + "\n" + written.getvalue()


def counted(text: str) -> ncu.Counted:
    found = ncu.counted_in(text)
    assert found is not None
    return found


def step(cost: Cost, text: str) -> ncu.Step:
    return ncu.Step("arm", cost=cost, counted=counted(text))


# --- What ncu says ---


def test_the_real_stream_moves_what_is_computed() -> None:
    found = counted(kernels(0))
    assert found.kernels == 1
    assert found.dram_bytes == 1_073_761_536 + 1_076_165_120
    assert found.l2_hits == pytest.approx(0.5014, abs=1e-4), "as ncu's own rate says"
    assert (found.tensor_busy, found.tensor_flops) == (0, None)
    one = step(Cost(bytes=2 * GIB, roof="device_memory"), kernels(0))
    assert counters.memory(one, 0) == counters.Compared(2 * GIB, found.dram_bytes)
    assert counters.notes(one, 0) == []


def test_kernels_of_a_step_add_up_and_the_tensor_pipe_counts_by_their_time() -> None:
    found = counted(REAL)
    assert found.kernels == 3
    assert found.dram_bytes == pytest.approx(4.6e9, rel=0.02)
    product, all_ns = 1_411_616, 638_624 + 316_928 + 1_411_616
    assert found.tensor_busy == pytest.approx(0.9367 * product / all_ns)


def test_a_step_without_a_kernel_has_no_counters() -> None:
    assert ncu.counted_in("==WARNING== No kernels were profiled.\n") is None
    assert ncu.counted_in(kernels()) is None
    assert "no kernel was seen" in counters.notes(ncu.Step("arm"), 0)[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"byte","byte"', '"Gbyte","Gbyte"', "dram__bytes_read.sum in 'Gbyte', not in byte"),
        ('"1,073,761,536"', '"n/a"', "counted no dram__bytes_read.sum: n/a"),
        ("lts__t_sectors.sum", "lts__other.sum", "lts__t_sectors.sum in None"),
    ],
)
def test_what_cannot_be_read_is_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(GpuliftError, match=words.replace(".", r"\.")):
        ncu.counted_in(REAL.replace(old, new))


def test_operations_are_asked_of_those_that_count_them() -> None:
    assert set(ncu.OPERATIONS) <= set(ncu.metrics(90))
    for other in (86, 120):  # an unknown name would end ncu
        assert not set(ncu.OPERATIONS) & set(ncu.metrics(other))


# --- Beside what is computed ---


@pytest.mark.parametrize(
    ("computed", "roof", "words"),
    [
        (2.2 * GIB, "device_memory", "stayed in the L2, or went by copies"),
        (2.2 * GIB, "", "it stays in the L2 of 60.0 MiB"),
        (1.8 * GIB, "device_memory", "counts each operand once"),
        (2.0 * GIB, "host_link/h2d", "bytes of host_link/h2d, not of the DRAM"),
    ],
)
def test_bytes_that_differ_say_why(computed: float, roof: str, words: str) -> None:
    (note,) = counters.notes(step(Cost(bytes=computed, roof=roof), kernels(0)), 60 << 20)
    assert words in note


@pytest.mark.parametrize(
    ("counted_flops", "words"),
    [
        (1.0, ""),
        (1.06, "tiles reach beyond"),
        (0.5, "leaves some out"),
        (0.0, "none on the tensor cores"),
    ],
)
def test_operations_that_differ_say_why(counted_flops: float, words: str) -> None:
    flops = 2.0 * 8192**3
    one = step(Cost(flops=flops), with_operations(kernels(2), counted_flops * flops))
    found = counters.notes(one, 0)
    assert words in found[0] if words else found == []
    assert counters.arithmetic(one) is not None
    assert counters.memory(one, 0) is None, "its cost says nothing of bytes"


def test_nothing_is_said_of_operations_that_an_architecture_does_not_count() -> None:
    assert counters.arithmetic(step(Cost(flops=1e12), kernels(2))) is None


# --- The command ---


@pytest.fixture
def fake_ncu(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-in writes: the file may be changed."""
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    said = tmp_path / "said"
    said.write_text(kernels(0))
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_NCU", str(said))
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    return said


def show(*arguments: str) -> int:
    return cli.main(["show", *arguments, "--counters"])


def test_a_row_for_each_arm_and_a_line_for_what_cannot_run(
    fake_ncu: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert show(FILTER) == OK
    said = capfd.readouterr().out
    assert "transfer/pinned_copy/bytes:4096" in said
    (row,) = [line for line in said.splitlines() if line.startswith("pageable ")]
    assert "2.15 GB (+0.1 %)" in row
    assert "50.1 %" in row
    assert "pinned: skipped: no arm can run here: no page is pinned" in said
    assert "writes always hit the L2" in said


def test_the_cards_settings_are_left_as_they_are(fake_ncu: Path) -> None:
    assert show(FILTER, "--gpu", "0") == OK
    first, second = Path(f"{fake_ncu}.called").read_text().splitlines()
    assert "--clock-control none --cache-control none" in first
    assert "--target-processes all --profile-from-start off" in first
    assert "--profile --launches 1 --rows" in first
    assert "--gpu 0" in second


def test_json_holds_all_that_was_counted(fake_ncu: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert show(FILTER, "--json") == OK
    counted_one, skipped = json.loads(capfd.readouterr().out)
    assert counted_one["counted"]["dram_bytes"] == 2_149_926_656
    assert counted_one["dram_deviation"] == pytest.approx(0.0011, abs=1e-4)
    assert skipped["outcome"] == "skipped"
    assert skipped["counted"] is None


def test_a_records_case_is_found_with_its_arms_and_axes(fake_ncu: Path, tmp_path: Path) -> None:
    arms = [sample.arm("pageable", 2e-4), sample.arm("registered", 1e-4)]
    raw = sample.record("transfer/pinned_copy", {"bytes": 12288}, arms, off_sweep=True)
    sample.write(tmp_path / "records", [raw])
    assert show(record_id(raw), "--results", str(tmp_path / "records")) == OK
    calls = Path(f"{fake_ncu}.called").read_text().splitlines()
    assert len(calls) == 2
    assert all("--axis bytes=12288" in call for call in calls)


def test_a_case_that_no_sweep_has_is_counted(fake_ncu: Path) -> None:
    assert show("pinned_copy/.*/pageable$", "--axis", "bytes=12288") == OK
    (call,) = Path(f"{fake_ncu}.called").read_text().splitlines()
    assert "--axis bytes=12288" in call


def test_a_technique_of_ones_own_is_counted(
    fake_ncu: Path, root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (root / "core").symlink_to(CHECKOUT / "core")
    (own := tmp_path / "own").mkdir()
    (own / "step.py").write_text('ARMS = ["one"]\ndef make(arm, point, seed, gpu): ...\n')
    assert show("own/step", "--techniques", str(own)) == OK
    (call,) = Path(f"{fake_ncu}.called").read_text().splitlines()
    (modules,) = re.findall(r"--more-modules (\S+)", call)
    assert list(Path(modules).glob("own.step.json"))
    assert "own/step" in capfd.readouterr().out


@pytest.mark.usefixtures("fake_ncu")
@pytest.mark.parametrize("value", ["rows=8", "bytes=8192,12288"])
def test_an_axis_that_selects_no_one_case_is_one_line(
    capfd: pytest.CaptureFixture[str], value: str
) -> None:
    assert show("pinned_copy", "--axis", value) == USAGE
    (line,) = capfd.readouterr().err.splitlines()
    assert "there are bytes" in line if value == "rows=8" else "selects 2 cases" in line


def test_a_record_has_its_own_values(
    fake_ncu: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = sample.record("transfer/pinned_copy", {"bytes": 4096}, [sample.arm("pageable", 2e-4)])
    sample.write(tmp_path / "records", [raw])
    at = ("--results", str(tmp_path / "records"))
    assert show(record_id(raw), *at, "--axis", "bytes=8192") == USAGE
    assert "has its own values; name transfer/pinned_copy" in capfd.readouterr().err
    for flag, value in (("--axis", "bytes=8192"), ("--techniques", str(tmp_path))):
        assert cli.main(["show", record_id(raw), *at, flag, value]) == USAGE
        assert f"{flag}: goes with --counters alone" in capfd.readouterr().err


def test_a_kernel_that_could_not_be_counted_is_an_error_of_its_arm(
    fake_ncu: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_ncu.write_text(f'==ERROR== Failed to profile "kernel" in process 7\n{kernels(0)}')
    assert show("bytes:4096/pageable$") == FAILED
    said = capfd.readouterr().out
    assert said == 'pageable: error: ncu: Failed to profile "kernel" in process 7\n'


def test_what_is_no_plain_run_is_refused(fake_ncu: Path, tmp_path: Path) -> None:
    raw = sample.record("a/b", {"n": 1}, [sample.arm("base:x", 1e-4)], kind="duet", arm="x")
    sample.write(tmp_path / "records", [raw])
    assert show(record_id(raw), "--results", str(tmp_path / "records")) == USAGE
    assert not Path(f"{fake_ncu}.called").exists()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", NOTHING_RAN, "as root"),
        ("==ERROR== Failed to find metric sm__nothing", FAILED, "Failed to find metric"),
    ],
)
def test_what_ncu_cannot_do_is_one_line(
    fake_ncu: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    text: str,
    code: int,
    words: str,
) -> None:
    fake_ncu.write_text(text)
    monkeypatch.setenv("FAKE_NO_RECORD", "it was not begun")
    assert show(FILTER) == code
    said = capfd.readouterr()
    assert said.out == ""
    assert words in said.err.splitlines()[-1]


def test_a_card_that_another_run_holds_is_said(
    fake_ncu: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_ncu.write_text("==ERROR== The application returned an error code (75).\n")
    monkeypatch.setenv("FAKE_NO_RECORD", "another run is using GPU 1a2b")
    assert show(FILTER) == BUSY
    assert capfd.readouterr().err.endswith("gpulift: error: another run is using GPU 1a2b\n")


def test_without_ncu_or_gpu_there_is_a_remedy(
    fake_ncu: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(ncu, "PLACES", ())
    monkeypatch.setenv("FAKE_BENCH", "ok")
    assert show(FILTER) == NOTHING_RAN
    assert "no NVIDIA driver" in capfd.readouterr().err, "which no ncu would help"
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert show(FILTER) == NOTHING_RAN
    assert "install nsight-compute" in capfd.readouterr().err


@pytest.mark.usefixtures("fake_ncu")
def test_nothing_but_skips_has_an_exit_code_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert show("bytes:4096/pinned$") == NOTHING_RAN
    assert capfd.readouterr().out == "pinned: skipped: no arm can run here: no page is pinned\n"


@pytest.mark.usefixtures("fake_ncu")
def test_what_was_not_built_counts_as_a_case_and_says_why(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert show("bytes:4096|resnet") == USAGE
    assert "(transfer/pinned_copy/bytes:4096, model/resnet): name one" in capfd.readouterr().err
    assert show("model/resnet") == NOTHING_RAN
    told = "model/resnet cannot run here: built without LibTorch; ./gpulift setup"
    assert capfd.readouterr().err == f"gpulift: error: {told}\n"


@pytest.mark.usefixtures("fake_ncu")
def test_several_cases_are_named_and_none_is_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert show("pinned_copy") == USAGE
    assert "selects 2 cases (transfer/pinned_copy/bytes:4096, " in capfd.readouterr().err
    assert cli.main(["show", "abcd", "--gpu", "0"]) == USAGE
