"""Publishing a run: its records compressed, the same afterwards, and nothing lost on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.commands import publish as publishing
from gpulift.engine import runs
from gpulift.ground.errors import FAILED, OK, USAGE, RecordError
from gpulift.records.files import compressed, record_files
from gpulift.records.read import read_file, read_results
from gpulift.records.together import STATE_FILE
from tests import runs_made, sample

pytestmark = pytest.mark.world

RUN = "nvidia-h200/2026-11-21-abc1234"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return sample.write(tmp_path / RUN, runs_made.full_gpu())


def ids(folder: Path) -> list[str]:
    return [record.id for file in record_files(folder) for record in read_file(file).records]


def test_records_are_the_same_afterwards_and_smaller(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = ids(run)
    assert cli.main(["check", "--compress", str(run)]) == OK
    assert ids(run) == before
    assert not list(run.glob("*.jsonl"))
    assert "bytes, now" in capsys.readouterr().out
    assert cli.main(["check", "--compress", str(run)]) == OK, "a second time there is nothing to do"


def test_every_way_to_name_published_records_reads_them(run: Path) -> None:
    before = ids(run)
    cli.main(["check", "--compress", str(run)])
    (file, *_) = record_files(run)
    for place in (run, run.parents[1]):
        (read,) = read_results([place])
        assert {record.id for record in read.records} == set(before)
    assert {record.id for record in read_results([file])[0].records} <= set(before)
    assert cli.main(["check", str(run.parents[1])]) == OK


def test_what_check_complains_of_is_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = runs_made.full_gpu()
    made[0]["context"]["build"]["dirty"] = True
    run = sample.write(tmp_path / RUN, made)
    assert cli.main(["check", "--compress", str(run)]) == FAILED
    assert "built from uncommitted changes" in capsys.readouterr().err
    assert not list(run.glob("*.zst"))


def test_an_unfinished_run_is_published_only_on_demand(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / STATE_FILE).write_text('{"state": "running"}', encoding="utf-8")
    assert cli.main(["check", "--compress", str(run)]) == FAILED
    assert "not finished; go on with it" in capsys.readouterr().err
    assert cli.main(["check", "--compress", "--unfinished", str(run)]) == OK
    assert list(run.glob("*.zst"))


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        assert cli.main(["check", "--compress", str(place)]) == USAGE
        assert "there are no records" in capsys.readouterr().err


def test_what_does_not_come_back_stays_as_it_was(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ids(run)
    monkeypatch.setattr(publishing, "decompressed", lambda content, place: b"")
    assert cli.main(["check", "--compress", str(run)]) == FAILED
    assert ids(run) == before
    assert not list(run.glob("*.zst"))


@pytest.mark.parametrize("damaged", [b"", b'{"schema": "1.0"}\n', 10, -4])
def test_a_damaged_file_is_one_line_that_names_it(run: Path, damaged: bytes | int) -> None:
    cli.main(["check", "--compress", str(run)])
    file = record_files(run)[0]
    file.write_bytes(file.read_bytes()[:damaged] if isinstance(damaged, int) else damaged)
    with pytest.raises(RecordError, match=rf"{file.name}: cannot be decompressed"):
        read_file(file)


def test_a_last_line_that_was_cut_off_before_is_dropped_and_said(run: Path) -> None:
    file = run / "a.b.jsonl.zst"
    file.write_bytes(compressed(b'{"schema": '))
    assert "the last line is cut off" in read_file(file).warnings[0]


def test_what_was_published_with_other_content_is_not_replaced(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record_files(run)[0]
    again = run / f"{first.name}.zst"
    again.write_bytes(compressed(first.read_bytes() + b"\n"))
    assert record_files(run)[:2] == [again, first], "what was published comes first"
    before = {file: file.read_bytes() for file in run.iterdir()}
    assert cli.main(["check", "--compress", str(run)]) == FAILED
    assert f"{first.name}: is there, and published with other content" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in run.iterdir()} == before


@pytest.mark.parametrize("call", ["Path.unlink", "Path.replace"])
def test_what_a_kill_left_is_gone_on_with(run: Path, call: str) -> None:
    before, killed = ids(run), "os.kill(os.getpid(), signal.SIGKILL)"
    code = (
        "import os, signal, sys; from pathlib import Path; from gpulift import cli\n"
        f"{call} = lambda *_, **__: {killed}\n"
        "cli.main(['publish', sys.argv[1]])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(run.glob("*zst*"))) == 1
    assert cli.main(["check", "--compress", str(run)]) == OK
    assert ids(run) == before
    assert all(file.name.endswith(".jsonl.zst") for file in run.iterdir())


def test_a_published_run_is_not_gone_on_with(run: Path) -> None:
    want = runs.Wanted("nvidia-h200", "abc1234", False, {})
    runs.save_state(run, want, runs.RUNNING)
    with runs.choose(run.parents[1], want) as chosen:
        assert chosen.resumed
    cli.main(["check", "--compress", "--unfinished", str(run)])
    with runs.choose(run.parents[1], want) as chosen:
        assert not chosen.resumed
