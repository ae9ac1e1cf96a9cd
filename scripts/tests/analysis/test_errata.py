"""Known errors of committed records: which records have them, and who says so."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.analysis import errata
from gpulift.analysis.choice import Choice
from gpulift.analysis.doubts import Doubts
from gpulift.analysis.errata import Erratum, errata_of, read_errata, without_wrong
from gpulift.commands.citing import bibtex, over_runs, sentence
from gpulift.commands.show import lines
from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import read_run, run_folders
from tests import sample
from tests.conftest import CHECKOUT
from tools import errata_page

pytestmark = pytest.mark.world

RESULTS = CHECKOUT / "results"
RUN = Path("results/nvidia-h200/2026-11-21-abc1234")
ENTRY = """
[[errata]]
number = 7
short = "memory_{of} is too large"
runs = ["nvidia-h200/2026-11-21-abc*"]
records = "some records"
wrong = "what is wrong"
later = "mended"
"""


def record(**top: Any) -> Record:
    cost = {"bytes": 1.0, "roof": "device_memory"}
    eager = sample.arm("eager", 2e-4, metrics={"peak_bytes": 7.0}, cost=cost, cpu_cores=1.0)
    arms = [eager, sample.arm("graph", 1e-4)]
    made = read_record(sample.record("launch/step", {"model": "toy"}, arms, **top))
    return replace(made, file=RUN / "launch.step.jsonl")


def write(folder: Path, text: str) -> Path:
    file = folder / errata.FILE
    file.write_text(text, encoding="utf-8")
    return file


def erratum(folder: Path, more: str = "") -> Erratum:
    (made,) = read_errata(write(folder, ENTRY + more))
    return made


@pytest.mark.parametrize(
    ("more", "meant"),
    [
        ("", True),
        ('before = "2026-11-22"', True),
        ('before = "2026-11-21T03:59:59Z"', False),  # when it began
        ('techniques = "^launch/"', True),
        ('techniques = "^batch/"', False),
        ('cases = "model:toy$"', True),
        ('cases = "model:gpt2"', False),
        ('arms = "^graph$"', True),
        ('arms = "^compiled$"', False),
        ('metrics = ["other", "peak_bytes"]', True),
        ('metrics = ["other"]', False),
        ('metrics = ["cpu_s"]', True),
        ('metrics = ["roof"]', True),
        ('metrics = ["energy_j"]', False),
        ('metrics = ["check_error"]', True),
        ("launch = 0", True),
        ("launch = 1", False),
    ],
)
def test_a_record_has_an_error_when_it_meets_every_condition(
    tmp_path: Path, more: str, meant: bool
) -> None:
    assert bool(errata_of(record(), [erratum(tmp_path, more)])) == meant


@pytest.mark.parametrize("run", ["nvidia-h200/2026-11-21-fff1234", "cpu/2026-11-21-abc1234"])
def test_records_of_other_runs_and_machines_do_not_have_it(tmp_path: Path, run: str) -> None:
    made = replace(erratum(tmp_path), runs=(run,))
    assert not errata_of(record(), [made])


def test_what_reading_mends_is_said_of_no_record(tmp_path: Path) -> None:
    made = erratum(tmp_path, "mended = true")
    assert made.is_of(record())
    assert errata_of(record(), [made]) == ()


@pytest.mark.parametrize(
    ("more", "told", "peak"),
    [
        ('metrics = ["joules_per_step"]', None, 1 << 20),
        ('hides = true\nmetrics = ["joules_per_step"]', ["peak_allocated_bytes"], 1 << 20),
        ('hides = true\nmetrics = ["peak_allocated_bytes"]', ["joules_per_step"], None),
        ('hides = true\nmetrics = ["peak_allocated_bytes"]\narms = "^other$"', None, 1 << 20),
        ('hides = true\nmetrics = ["peak_allocated_bytes"]\nlaunch = 1', None, 1 << 20),
        ('hides = true\nmetrics = ["check_error"]', None, 1 << 20),
    ],
)
def test_metrics_that_an_erratum_hides_are_not_told_and_it_is_still_had(
    tmp_path: Path, more: str, told: list[str] | None, peak: int | None
) -> None:
    facts = {"peak_allocated_bytes": 1 << 20, "joules_per_step": 2.0}
    graph = sample.arm("graph", 1e-4, metrics=facts)
    other = sample.arm("other", 1e-4, metrics={"seen": 1.0})
    raw = sample.record("launch/step", {"model": "toy"}, [graph, other])
    known = [erratum(tmp_path, more)]
    whole = replace(read_record(raw), file=RUN / "launch.step.jsonl")
    made = without_wrong(whole, known)
    first, second = made.arms
    assert errata_of(made, known) == errata_of(whole, known)
    assert list(first.metrics) == (list(facts) if told is None else told)
    assert first.peak_device_bytes == peak
    assert (first.check_error is None) == ("check_error" in more)
    assert second.metrics == {"seen": 1.0}


def test_a_record_that_tells_its_end_began_earlier(tmp_path: Path) -> None:
    made = erratum(tmp_path, 'before = "2026-11-21T04:00:00Z"')
    whole: sample.Json = {"started_at": "2026-11-21T04:00:01Z", "time_s": {"total": 2.0}}
    for schema, had in (("1.6", False), ("1.7", True), ("1.12", True), ("1.13", False)):
        assert bool(errata_of(record(schema=schema, **whole), [made])) == had


def test_a_duet_has_the_arm_that_it_compares(tmp_path: Path) -> None:
    arms = [sample.arm("base:eager", 2e-4), sample.arm("head:eager", 2e-4)]
    raw = sample.record("launch/step", {"model": "toy"}, arms, kind="duet", arm="eager")
    one = replace(read_record(raw), file=RUN / "launch.step.jsonl")
    assert errata_of(one, [erratum(tmp_path, 'arms = "^eager$"')])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[errata]\n", "errata.toml: not TOML"),
        (ENTRY.replace('wrong = "what is wrong"', ""), r"errata\[0\].wrong is missing"),
        (ENTRY.replace('"mended"', '"a | b"'), "later must be one line without |"),
        (ENTRY.replace('"mended"', '""'), r"errata\[0\].later must not be empty"),
        (ENTRY + 'more = "x"', "more is not known here"),
        (ENTRY + 'arms = "("', "arms is no regular expression"),
        (ENTRY + f'arms = "a{{{"9" * 30}}}"', "arms is no regular expression"),
        (ENTRY + f'arms = "{"(" * 3000}"', "arms is no regular expression"),
        (ENTRY.replace("runs =", "runs = 1 #"), "runs must be"),
        (ENTRY + 'leads = "no"', "leads must be bool, not str"),
        (ENTRY.replace("runs =", "#"), r"errata\[0\].runs is missing"),
        (ENTRY.replace("number = 7", ""), "number 0 must be one entry's own"),
        (ENTRY + ENTRY, "number 7 must be one entry's own"),
        (ENTRY.replace("7", "1.5"), r"errata\[0\].number must be"),
    ],
)
def test_what_is_no_erratum_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(GpuliftError, match=words):
        read_errata(write(tmp_path, text))


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert read_errata(tmp_path / errata.FILE) == ()


def test_it_is_said_where_a_record_is_shown_and_cited(tmp_path: Path) -> None:
    one = [erratum(tmp_path)]
    shown = "\n".join(lines(record(), errata=one))
    assert "Known error E7: memory_{of} is too large" in shown
    assert "what is wrong" in shown
    assert "mended" in shown
    assert "; known error E7: memory_{of} is too large)." in sentence(record(), one)
    assert r"known error E7: memory\_\textbraceleft{}of\textbraceright{} is too" in bibtex(
        record(), one
    )


def test_a_ratio_that_an_error_withholds_is_not_cited(tmp_path: Path) -> None:
    of_model = [
        replace(record(run=f"2026-11-{day}"), file=RUN.with_name(f"{day}") / "launch.step.jsonl")
        for day in (21, 22, 23)
    ]
    assert "×" in sentence(record(), [erratum(tmp_path)])
    every = replace(erratum(tmp_path), runs=("*",))
    assert over_runs(of_model[0], of_model, Choice(errata=(every,)))
    withheld = [erratum(tmp_path, "leads = false")]
    cited = sentence(record(), withheld)
    assert "µs [99.86, 100.1], its ratio withheld: known error (" in cited
    assert "×" not in cited
    assert "; known error E7: memory_{of} is too large)." in cited
    assert over_runs(of_model[0], of_model, Choice(errata=(replace(every, leads=False),))) == ""


def test_an_error_of_an_arm_withholds_the_ratios_of_that_arm_alone(tmp_path: Path) -> None:
    of_arm = erratum(tmp_path, 'leads = false\narms = "^graph$"')
    assert of_arm.withholds(["graph", "eager"])
    assert not of_arm.withholds(["compiled", "eager"])
    assert erratum(tmp_path, "leads = false").withholds(["compiled", "eager"])
    assert not erratum(tmp_path).withholds(["graph"])


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one record that has an error."""
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))
    sample.write(tmp_path / RUN, [dict(record().raw)])
    erratum(tmp_path / "results")
    return tmp_path


@pytest.mark.parametrize("command", ["show", "show --bibtex"])
@pytest.mark.usefixtures("checkout")
def test_the_commands_read_the_errata_of_the_checkout(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command.split(), record().id]) == 0
    assert "nown error E7: memory_{of} is too large" in capsys.readouterr().out


def test_errata_that_cannot_be_read_are_an_error(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(checkout / "results", "[[errata]")
    assert cli.main(["show", "--bibtex", record().id]) == USAGE
    assert "errata.toml: not TOML" in capsys.readouterr().err


def test_an_erratum_keeps_its_number_when_others_come_and_go(tmp_path: Path) -> None:
    newer, gone = (ENTRY.replace("7", number) for number in ("9", "8"))
    for text, names in ((newer + gone + ENTRY, ["E9", "E8", "E7"]), (newer + ENTRY, ["E9", "E7"])):
        known = read_errata(write(tmp_path, text))
        assert [one.name for one in known] == names
        doubts = Doubts(known, {record().id: known[::-1]})
        assert [one.name for one in doubts.known([record()])] == names


# Of those that were there when numbers came: one that is another's breaks what cites it.
NUMBERED = {
    58: "folders in the environment can be guessed from their hashes",
    57: "started_at is when the case ended",
    1: "GPT-2's steps were measured while others kept 42 cores and more of the host busy",
}


def test_committed_errata_have_the_numbers_that_they_were_given() -> None:
    numbers = {one.number: one.short for one in read_errata(RESULTS / errata.FILE)}
    assert [*numbers] == sorted(numbers, reverse=True), "newest first"
    assert {number: numbers[number] for number in NUMBERED} == NUMBERED


def test_every_erratum_that_a_text_cites_is_there() -> None:
    known = {one.number for one in read_errata(RESULTS / errata.FILE)}
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.toml", "*.py", "*.j2"],
        cwd=CHECKOUT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split():
        text = (CHECKOUT / name).read_text(encoding="utf-8")
        cited = re.findall(r"(?:ERRATA\.md#e|[Kk]nown error E|[Ee]rrat(?:um|a) E?)(\d+)\b", text)
        if name != Path(__file__).relative_to(CHECKOUT).as_posix():
            assert known.issuperset(map(int, cited)), name


def test_the_table_is_that_of_the_committed_errata() -> None:
    made = errata_page.table(read_errata(RESULTS / errata.FILE))
    held = (RESULTS / errata_page.TABLE).read_text(encoding="utf-8")
    assert held == made, "run python -m tools.errata_page in scripts/, commit what it writes"


def test_every_committed_erratum_is_of_some_committed_record() -> None:
    records = [one for folder in run_folders(RESULTS) for one in read_run(folder).records]
    for one in read_errata(RESULTS / errata.FILE):
        assert any(one.is_of(record) for record in records), one.short
