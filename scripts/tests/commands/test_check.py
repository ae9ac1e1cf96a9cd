"""The check of committed results, complaint by complaint, and the schema itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.commands import check
from gpulift.ground.errors import GpuliftError
from proof.certificate import issue, write_certificate
from proof.trials import line_of
from tests import runs_made, sample
from tests.conftest import CHECKOUT
from tests.trials_made import ROWS, planted, unchanged

pytestmark = pytest.mark.world

FOLDER = "nvidia-h200/2026-11-21-abc1234"
CERTIFICATE = Path("certificates/nvidia-h200.json")


def complaints(tmp_path: Path, change: Callable[[sample.Json], Any], folder: str = FOLDER) -> str:
    """What the check says when `change` was made to the second record of a run."""
    records = runs_made.full_gpu()
    change(records[1])
    sample.write(tmp_path / folder, records)
    return "\n".join(check.check_results([tmp_path]).complaints)


def test_a_good_run_passes(tmp_path: Path) -> None:
    assert complaints(tmp_path, lambda record: None) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.update(extra={"new": 1}), ""),
        (lambda r: r.update(regime="warm"), "regime: Invalid enum value 'warm'"),
        (lambda r: r.update(regime="unknown"), "regime is unknown"),
        (lambda r: r["arms"][0].update(check_error=-1.0), "arms[0].check_error must be float >= 0"),
        (lambda r: r["context"]["gpu"].update(card=1), "context.gpu.card must be str, not int"),
        (lambda r: r["arms"][0]["cost"].update(items=-1.0), "a cost must not be negative"),
        (lambda r: r["arms"][0].pop("cost"), "arms[0].cost is missing"),
        (lambda r: r["arms"][1].pop("steps_per_window"), "arms[1].steps_per_window is missing"),
        (lambda r: r["arms"][0].pop("check_error"), "arms[0].check_error is missing"),
        (lambda r: r["arms"][0].pop("check_error") or r["arms"][0].update(checked=False), ""),
        (lambda r: r["arms"][0].update(role="technique"), "an arm that is the baseline is missing"),
        (lambda r: r["arms"][0].update(outcome="failed"), "arms[0].reason is missing"),
        (lambda r: r.pop("stop"), "stop is missing"),
        (lambda r: r.pop("quick"), "quick is missing"),
        (lambda r: r.pop("telemetry"), "telemetry or telemetry_missing is missing"),
        (lambda r: r.update(technique="Link"), "technique must be theme/name"),
        (lambda r: r.update(started_at="yesterday"), "started_at must be a moment of UTC"),
        (lambda r: r.update(remedy="one\ntwo"), "must be of one line"),
        (lambda r: r["context"].pop("gpu"), "context.gpu or context.gpu_missing is missing"),
        (lambda r: r["arms"][0].update(outcome="skipped"), "arms[0].reason must say why"),
        (lambda r: r.update(outcome="skipped", reason=" "), "reason must say why it was skipped"),
        (lambda r: r.update(outcome="failed"), "reason is missing"),
        (lambda r: r["context"]["build"].update(dirty=True), "uncommitted changes"),
        (lambda r: r["context"]["build"].update(commit="unknown"), "an unknown commit"),
        (lambda r: r["context"]["build"].update(commit="fffffff"), "holds records of commit"),
        (lambda r: r["context"]["gpu"].update(card="0000"), "more than one card"),
        (lambda r: r["context"]["options"].update(seed=9), "more than one card, build or set of"),
        (lambda r: r["context"]["options"].update(launches=9), ""),
        (lambda r: r["notes"].update(a="/home/me/x"), "notes.a looks like a path"),
        (lambda r: r["notes"].update(a="in /tmp/x.so"), "notes.a looks like a path"),
        (lambda r: r["notes"].update(a="node7.cluster.local"), "looks like a host name"),
        (lambda r: r["notes"].update(a="me@node7"), "looks like an account"),
        (lambda r: r["notes"].update(a="GPU-6d8e2f3a-1b2c-4d5e-8f90-a1b2c3d4e5f6"), "UUID"),
        (lambda r: r["notes"].update(a="see https://example.com/a/b, 1/2 of 3 GB/s"), ""),
        (lambda r: r["notes"].update(a="build the folder hopper of github.com/a/b"), ""),
        (lambda r: r["notes"].update(a="see github.com/a/b:node7.corp"), "a host name"),
        (lambda r: r["notes"].update(a="from me@github.com/a/b"), "a host name"),
        (lambda r: r["notes"].update(a="in /srv/github.com/a/b"), "a path"),
    ],
)
def test_one_wrong_record(tmp_path: Path, change: Callable[[sample.Json], Any], words: str) -> None:
    said = complaints(tmp_path, change)
    assert words in said if words else said == ""


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("nvidia-h200/2026-11-20-abc1234", "the first record is of 2026-11-21"),
        ("nvidia-h200/2026-11-21-abc1234-2", ""),
        ("nvidia-h200/2026-11-21-abc1234-dirty", "uncommitted changes"),
        ("nvidia-h200/2026-11-21-fff1234", "holds records of commit abc1234"),
        ("nvidia-h200/2026-11-21-unknown", "the name must be <date>-<commit>"),
        ("nvidia-h200/mine", "the name must be <date>-<commit>"),
        ("nvidia-h100/2026-11-21-abc1234", "holds records of nvidia-h200"),
    ],
)
def test_folder_names(tmp_path: Path, folder: str, words: str) -> None:
    said = complaints(tmp_path, lambda record: None, folder)
    assert words in said if words else said == ""


def test_a_check_can_be_watched(tmp_path: Path) -> None:
    records = runs_made.full_gpu()
    names = ["2026-11-20-abc1234", "2026-11-21-abc1234"]
    for name, record in zip(names, records, strict=False):
        sample.write(tmp_path / "nvidia-h200" / name, [record])
    seen: list[str] = []

    def watch(folders: Sequence[Path]) -> Iterator[Path]:
        for folder in folders:
            yield folder
            seen.append(f"{folder.name} of {len(folders)}")

    assert check.check_results([tmp_path], watch).records == 2
    assert seen == [f"{name} of 2" for name in names]


@pytest.mark.parametrize(
    ("last", "differ"), [(100, False), (101, False), (110, True), (None, False)]
)
def test_launches_of_other_peaks_are_told(tmp_path: Path, last: int | None, differ: bool) -> None:
    records = sample.launches(3, "a/b", {"n": 1}, [sample.arm("base", 1e-3)])
    for record, peak in zip(records, (100, 100, last), strict=True):
        record["arms"][0]["peak_device_bytes"] = peak
        if peak is None:
            del record["arms"][0]["peak_device_bytes"]
    sample.write(tmp_path / FOLDER, records)
    (told,) = [
        runs for kind, runs in check.check_results([tmp_path]).doubted.items() if "peak" in kind
    ]
    assert told == ((FOLDER,) if differ else ())


def test_the_same_record_twice(tmp_path: Path) -> None:
    record = runs_made.full_gpu()[0]
    sample.write(tmp_path / FOLDER, [record, copy.deepcopy(record)])
    found = check.check_results([tmp_path])
    assert found.records == 2
    assert "the same record as" in found.complaints[0]


def test_the_same_launch_twice(tmp_path: Path) -> None:
    first, again = runs_made.full_gpu()[0], copy.deepcopy(runs_made.full_gpu()[0])
    again["time_s"]["total"] = 99.0
    sample.write(tmp_path / FOLDER, [first, again])
    (said,) = check.check_results([tmp_path]).complaints
    assert f"jsonl:2: the same launch as {tmp_path / FOLDER}" in said


def test_a_launch_that_was_measured_again_after_an_error(tmp_path: Path) -> None:
    first = runs_made.full_gpu()[0]
    failed = sample.unmeasured(first["technique"], first["case"], "error", "out of luck")
    failed |= {"context": first["context"], "launch": first["launch"]}
    sample.write(tmp_path / FOLDER, [failed, first])
    assert not [c for c in check.check_results([tmp_path]).complaints if "launch" in c]


@pytest.mark.parametrize("text", ["", "\n"])
def test_a_file_without_records(tmp_path: Path, text: str) -> None:
    file = sample.write(tmp_path / FOLDER, runs_made.full_gpu()) / "transfer.empty.jsonl"
    file.write_text(text)
    found = check.check_results([tmp_path])
    assert found.complaints == (f"{file}: there are no records in it",)


def test_a_wrong_reference_is_a_complaint_among_the_others(tmp_path: Path) -> None:
    sample.write(tmp_path / FOLDER, runs_made.full_gpu())
    (tmp_path / FOLDER).rename(tmp_path / "nvidia-h200" / "misnamed")
    committed = CHECKOUT / "results" / "reference" / "nvidia-h200.json"
    document = json.loads(committed.read_text())
    measured = next(n for n, one in enumerate(document["entries"]) if one["kind"] == "measured")
    document["entries"][measured]["tolerance"] = -0.1
    file = tmp_path / "reference" / "nvidia-h200.json"
    file.parent.mkdir()
    file.write_text(json.dumps(document))
    other = file.with_name("nvidia-h300.json")
    del document["entries"][measured + 1 :]
    document["entries"][measured] |= {
        "tolerance": 0.1,
        "source": "gpulift:nvidia-h200/0123456789ab",
    }
    other.write_text(json.dumps(document))
    first, second, third, fourth = check.check_results([tmp_path]).complaints
    assert "the name must be <date>-<commit>[-n]" in first
    assert second.startswith(f"{file}: entries[{measured}].tolerance must be float >= 0.0")
    assert third == f"{other}: is of NVIDIA H200, whose file would be another"
    assert fourth.endswith("rests on records that are not there: 0123456789ab")


@pytest.mark.parametrize("part", ["certificates", "reference"])
def test_a_part_of_results_is_refused_with_the_remedy(tmp_path: Path, part: str) -> None:
    (tmp_path / part).mkdir()
    with pytest.raises(GpuliftError, match="is part of results: name the folder that it is in"):
        check.check_results([tmp_path / part])


def test_a_record_in_the_wrong_file(tmp_path: Path) -> None:
    sample.write(tmp_path / FOLDER, runs_made.full_gpu()[:3])
    file = tmp_path / FOLDER / "ceiling.host_link.jsonl"
    file.rename(file.with_name("other.jsonl"))
    assert "does not belong in a file" in check.check_results([tmp_path]).complaints[0]


def test_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MAX_FILE_BYTES", 1000)
    assert "larger than" in complaints(tmp_path, lambda record: None)


def test_folders_without_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    with pytest.raises(GpuliftError, match="holds no records, references or certificates"):
        check.check_results([tmp_path])


# --- Certificates ---


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    """Results with a certificate and its trials; no records."""
    trials = [*(unchanged(number) for number in range(3)), planted(3, {ROWS[1]: 0.01})]
    write_certificate(issue(trials), tmp_path / CERTIFICATE)
    file = (tmp_path / CERTIFICATE).with_suffix("") / "a.trials"
    file.parent.mkdir()
    file.write_text("".join(line_of(trial) + "\n" for trial in trials))
    return tmp_path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_a_certificate_that_is_one_passes(certified: Path) -> None:
    assert check.check_results([certified]).complaints == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"aa": {', '"aa": [', "not a line of JSON"),
        ('"aa"', '"bb"', "aa is missing"),
        ('"citable": true', '"citable": false', "is not citable"),
        ('"caveat": ""', '"caveat": "in /home/me/x"', "caveat looks like a path"),
        ('"machine": "nvidia-h200"', '"machine": "nvidia-h100"', "is of nvidia-h100"),
    ],
)
def test_a_certificate_that_was_edited_is_named(
    certified: Path, old: str, new: str, words: str
) -> None:
    file = certified / CERTIFICATE
    edit(file, old, new)
    (complaint,) = check.check_results([certified]).complaints
    assert complaint.startswith(str(file))
    assert words in complaint


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"driver":"580.159.04"', '"driver":"/usr/lib/x"', "a.trials:1: driver looks like a path"),
        ('{"schema"', '"schema"', "a.trials:1: not a line of JSON"),
    ],
)
def test_trials_tell_nothing_private(certified: Path, old: str, new: str, words: str) -> None:
    edit((certified / CERTIFICATE).with_suffix("") / "a.trials", old, new)
    (complaint,) = check.check_results([certified]).complaints
    assert words in complaint


def test_check_counts_certificates_and_fails_for_a_bad_one(
    root: Path, certified: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(certified)]) == 0
    assert "0 records and 1 certificates checked, 0 complaints" in capfd.readouterr().out
    edit(certified / CERTIFICATE, '"citable": true', '"citable": false')
    assert cli.main(["check", str(certified)]) == 1
    said = capfd.readouterr()
    assert "1 complaints" in said.out
    assert "is not citable" in said.err
