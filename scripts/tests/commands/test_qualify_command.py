"""`gpulift qualify`: exit codes, explanations, several GPUs, and what it refuses."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.machine import topology
from gpulift.analysis.machine.qualification import exit_code_of, judge_together
from gpulift.analysis.machine.results import CheckResult
from gpulift.analysis.machine.topology import Topology
from gpulift.analysis.summary import summarise
from gpulift.engine import machine, presence, runs
from gpulift.ground.errors import (
    FAILED,
    INCONCLUSIVE,
    INTERRUPTED,
    NOT_COMPARABLE,
    NOTHING_RAN,
    OK,
    USAGE,
)
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import Run, read_run
from tests import runs_made, sample
from tests.analysis.machine.test_qualify_links import copies as copies_between_gpus
from tests.engine.test_node import KNOWN

pytestmark = pytest.mark.world


def roof(verdict: str, name: str = "device_memory") -> CheckResult:
    return CheckResult(f"roof/{name}/burst", verdict)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([roof("pass")], OK),
        ([roof("pass"), roof("fail")], FAILED),
        ([CheckResult("health/ecc", "fail")], FAILED),
        ([CheckResult("siblings/card", "fail")], FAILED),
        ([CheckResult("case/a/b", "fail")], FAILED),
        ([CheckResult("time/launch/x", "fail"), CheckResult("cost/y", "fail")], OK),
        ([roof("inconclusive"), roof("pass")], INCONCLUSIVE),
        ([roof("inconclusive"), *(roof("pass") for _ in range(9))], OK),
        ([roof("pass"), *(CheckResult("time/a/b", "inconclusive") for _ in range(9))], OK),
        ([roof("skipped")], OK),
        ([], OK),
    ],
)
def test_exit_codes(results: list[CheckResult], code: int) -> None:
    assert exit_code_of(results) == code


def test_without_a_gpu_several_gpus_are_nothing_to_run(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["qualify", "--quick", "--gpus", "all"]) == NOTHING_RAN
    assert "--gpus all: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "on_bus", "words"),
    [
        (["--gpus", "all"], 1, "--gpus all: 1 on the bus, and none can be used: no NVIDIA driver"),
        (["--gpus", "all", "--expect-gpus", "8"], 0, "0 of 8 expected GPUs can be used: no NVIDIA"),
        (["--expect-gpus", "1", "--out", "run"], 0, "✗ Fail"),
        (["--out", "run"], 1, "✗ Fail"),
    ],
)
def test_a_machine_whose_gpus_are_lost_fails(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    on_bus: int,
    words: str,
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(presence, "gpus_on_bus", lambda: on_bus)
    assert cli.main(["qualify", "--quick", *arguments]) == FAILED
    assert words in "".join(capfd.readouterr())
    if "--out" in arguments:
        assert cli.main(["export", "junit", "run"]) == OK
        assert 'failures="1"' in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "0,one"], "name a GPU by its index"),
        (["--gpus", "0"], "--gpus 0: no NVIDIA driver on this machine; install"),
        (["--gpu", "0", "--gpus", "all"], "not both"),
        (["--gpu", "9"], "--gpu 9: no NVIDIA driver on this machine; install"),
    ],
)
def test_wrong_choices_of_gpus_are_one_line(
    root: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main(["qualify", *arguments]) == USAGE
    said = capfd.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_verdicts_are_kept_beside_the_records_and_told_as_json(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert cli.main(["qualify", "--json", "--out", str(root / "run")]) == OK
    told = json.loads(capfd.readouterr().out)[0]
    kept = json.loads((root / "run" / "qualification.json").read_text(encoding="utf-8"))
    assert told == kept
    health = {one["id"]: one["verdict"] for one in told["checks"] if one["kind"] == "health"}
    assert health["health/ecc"] == "pass"
    assert health["health/integrity"] == "skipped"


@pytest.mark.parametrize("filter", ["", "host_link"])
def test_a_quick_run_begins_with_a_look_at_the_card(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], filter: str
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "open")
    arguments = ["--out", str(root / "run"), *(["--filter", filter] if filter else [])]
    cli.main(["qualify", "--quick", *arguments])
    said = capfd.readouterr().err
    calls = [line for line in said.splitlines() if line.startswith("flags:")]
    assert "--launches 1" in calls[0]
    assert "--launches 1" not in calls[1]
    rates = "from the host 55.3 GB/s" if filter else "memory 4.31 TB/s, from the host 55.3 GB/s"
    assert f"one launch: GPU 1a2b3c4d: {rates}" in said
    launches = [one.launch for one in read_run(root / "run").records if "link" in one.technique]
    assert {0, 1, 2} <= set(launches)
    assert len(launches) == len(set(launches))


def test_a_first_look_that_is_interrupted_ends_the_run(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "open")
    monkeypatch.setattr(machine, "measure", lambda *_: INTERRUPTED)
    run = root / "run"
    assert cli.main(["qualify", "--quick", "--out", str(run)]) == INTERRUPTED
    assert "first look" not in capfd.readouterr().err


def test_a_check_is_explained_by_a_part_of_its_name(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    assert cli.main(["qualify", "--explain", "Health/ECC", "--out", str(root / "run")]) == OK
    assert "health/ecc: pass" in capfd.readouterr().out


def test_what_no_check_is_named_is_an_error_that_loses_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    run = root / "run"
    assert cli.main(["qualify", "--explain", "health/temprature", "--out", str(run)]) == USAGE
    told = capfd.readouterr()
    assert "--explain: no check holds 'health/temprature'; near it: health/temp" in told.err
    assert f"the results are kept in {run}" in told.err
    assert "Is this machine as fast as it should be?" in told.out
    assert (run / "qualification.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--explain", ""], "--explain needs a part of a check's name, and was empty"),
        (["--explain", "roof", "--json"], "--json holds every step already: leave --explain or"),
    ],
)
def test_what_cannot_be_explained_is_refused_before_anything_is_measured(
    root: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main(["qualify", *arguments, "--out", str(root / "run")]) == USAGE
    said = capfd.readouterr()
    assert words in said.err
    assert not said.out
    assert not (root / "run").exists()


def test_what_breaks_only_while_all_cards_are_busy_fails() -> None:
    run = Run(Path("run"), tuple(read_record(one) for one in runs_made.with_troubles()))
    found = judge_together("0a1b2c3d", summarise(run))
    assert found
    assert {one.verdict for one in found} == {"fail"}
    assert all(one.remedy for one in found)
    assert all("0a1b2c3d, all at once" in one.id for one in found)
    assert exit_code_of(found) == FAILED


@dataclass
class FakeCards:
    """Stands in for gpulift-bench on two cards: writes records where there are none."""

    interrupt: set[str] = field(default_factory=set)  # names of folders
    measured: list[str] = field(default_factory=list)
    shared: list[sample.Json] = field(default_factory=list)  # what the cards do together

    def measure_all(
        self,
        bench: Path,
        calls: Sequence[tuple[Sequence[str], Path | None]],
        limit_s: float = math.inf,
    ) -> list[int]:
        """The exit code per call."""
        return [self._measure(Path(flags[flags.index("--records") + 1])) for flags, _ in calls]

    def _measure(self, folder: Path) -> int:
        self.measured.append(folder.name)
        if not any(folder.glob("*.jsonl")):
            shared = folder.name == "node"
            sample.write(folder, self.shared if shared else runs_made.full_gpu())
        return INTERRUPTED if folder.name in self.interrupt else 0


@pytest.fixture
def cards(root: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCards:
    made = FakeCards()
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    monkeypatch.setattr(machine, "measure_all", made.measure_all)
    return made


def two_gpus(root: Path, *arguments: str) -> int:
    return cli.main(["qualify", "--gpus", "0,1", "--out", str(root / "both"), *arguments])


EACH_ALONE = ["gpu0", "gpu1"]
ALL_AT_ONCE = ["together0", "together1"]


def test_several_gpus_are_gone_on_with_after_an_interrupt(
    root: Path, cards: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    cards.interrupt = {"gpu1"}
    assert two_gpus(root) == INTERRUPTED
    assert cards.measured == EACH_ALONE
    kept = (root / "both" / "gpu0" / "qualification.json").read_bytes()
    cards.interrupt, cards.measured = set(), []
    capfd.readouterr()
    assert two_gpus(root) == OK
    assert cards.measured == ["gpu1", *ALL_AT_ONCE]
    assert f"measured already: {root}/both/gpu0" in capfd.readouterr().err
    assert (root / "both" / "gpu0" / "qualification.json").read_bytes() == kept


def test_what_was_seen_of_health_is_kept_over_an_interrupt(
    root: Path, cards: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    cards.interrupt = {"gpu1"}
    two_gpus(root)
    file = root / "both" / "gpu0" / "qualification.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    (ecc,) = [one for one in document["checks"] if one["id"] == "health/ecc"]
    ecc |= {"verdict": "fail", "reason": "seen before the interrupt"}
    file.write_text(json.dumps(document), encoding="utf-8")
    cards.interrupt = set()
    assert two_gpus(root) == FAILED
    assert "seen before the interrupt" in " ".join(capfd.readouterr().out.split())
    file.unlink()
    assert two_gpus(root) == OK


def test_cards_that_were_interrupted_together_go_on_together(root: Path, cards: FakeCards) -> None:
    cards.interrupt = set(ALL_AT_ONCE)
    assert two_gpus(root) == INTERRUPTED
    cards.interrupt, cards.measured = set(), []
    assert two_gpus(root) == OK
    assert cards.measured == ALL_AT_ONCE
    cards.measured = []
    assert two_gpus(root) == OK
    assert cards.measured == [], "all of it is there"


def test_cards_are_busy_together_anew_where_only_some_had_ended(
    root: Path, cards: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    cards.interrupt = {"together1"}
    assert two_gpus(root) == INTERRUPTED
    said = capfd.readouterr().err
    assert "GPU 1, all at once: ended early" in said
    assert "the same command goes on" in said
    cards.interrupt, cards.measured = set(), []
    assert two_gpus(root) == OK
    assert cards.measured == ["together0-2", "together1-2"]


def test_what_several_cards_have_no_time_for_is_said_once(
    root: Path, cards: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    filtered = ("--filter", "host_malloc|pinned_copy", "--verbose")
    assert two_gpus(root, "--quick", "13s", *filtered) == OK
    assert cards.measured == [*EACH_ALONE, *ALL_AT_ONCE]
    said = capfd.readouterr().err
    assert re.findall(r"1 case left out for time: --quick \d+s has all: (.*)/", said) == [
        "transfer/pinned_copy"
    ]
    for name in cards.measured:
        rows = (root / "both" / name / runs.ROWS_FILE).read_text()
        assert "allocator/host_malloc" in rows
        assert "transfer/pinned_copy" not in rows


def test_cards_of_two_models_are_refused_before_anything_is_measured(
    root: Path,
    cards: FakeCards,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = machine.describe(machine.find_bench(), 0)
    assert found.gpu is not None
    other = replace(found, gpu=replace(found.gpu, name="NVIDIA A100"))
    monkeypatch.setattr(machine, "describe", lambda _, index: other if index == 1 else found)
    assert two_gpus(root) == USAGE
    assert cards.measured == []
    assert not (root / "both").exists()
    assert "several models: NVIDIA A100 (1), NVIDIA H200 (0); name" in capfd.readouterr().err


def test_another_card_does_not_go_on_with_several_gpus(
    root: Path, cards: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    cards.interrupt = {"gpu1"}
    two_gpus(root)
    for file in (root / "both" / "gpu0").glob("*.jsonl"):
        file.write_text(file.read_text().replace("1a2b3c4d", "99999999"))
    assert two_gpus(root) == NOT_COMPARABLE
    assert "is of card 99999999, and 1a2b3c4d is here now" in capfd.readouterr().err


def test_checks_of_several_gpus_are_explained_and_kept(
    root: Path, cards: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    assert two_gpus(root, "--explain", "siblings") == OK
    told = capfd.readouterr().out
    kept = root / "both" / "siblings.json"
    assert f"siblings: {kept}" in told
    assert "\nsiblings: skipped\n  Qualification: skipped: 1 cards: no outlier" in told
    document = json.loads(kept.read_text(encoding="utf-8"))
    assert [one["id"] for one in document["checks"]] == ["siblings"]
    assert document["crowding"], "what running together costs"
    assert two_gpus(root, "--explain", "health/ecc") == OK
    assert "health/ecc (1a2b3c4d, alone): pass" in capfd.readouterr().out


def test_what_is_kept_of_several_gpus_is_told_as_json(
    root: Path, cards: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    assert two_gpus(root, "--json") == OK
    told = json.loads(capfd.readouterr().out)[-1]
    assert told == json.loads((root / "both" / "siblings.json").read_text(encoding="utf-8"))


@pytest.fixture
def linked(cards: FakeCards, monkeypatch: pytest.MonkeyPatch) -> FakeCards:
    """The same with links: one direction is slow, and at each look they have had an error more."""
    known = machine.catalogue(machine.find_bench())
    copies = next(info for info in KNOWN if info.id == "ceiling/peer_copy")
    monkeypatch.setattr(machine, "catalogue", lambda *_: [*known, copies])
    looks = itertools.count()

    def health(bench: Path, gpu: int | None = None) -> bytes:
        links = [{"link": 0, "active": True, "errors": next(looks)}]
        return json.dumps({"card": "0a1b2c3d", "nvlinks": links}).encode()

    monkeypatch.setattr(machine, "health", health)
    found = Topology((0, 1), (("X", "NV18"), ("NV18", "X")), ("0", "0"))
    monkeypatch.setattr(topology, "ask", lambda: found)
    cards.shared = copies_between_gpus(*3 * [{(1, 0): 100}], gpus=2)
    return cards


def test_what_gpus_do_together_is_measured_judged_and_kept(
    root: Path, linked: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    assert two_gpus(root, "--all", "--wide") == FAILED
    assert linked.measured == ["node", *EACH_ALONE, *ALL_AT_ONCE]
    told = capfd.readouterr().out
    assert "pairs/1 (1a2b3c4d) to 0 (1a2b3c4d)" in told
    assert "2 errors on NVLinks during the run: link 0 (2)" in told
    node = root / "both" / "node"
    rows = (node / runs.ROWS_FILE).read_text("utf-8")
    assert rows.splitlines()[0] == "ceiling/peer_copy\tbytes:268435456\twrite"
    assert topology.kept(node) is not None
    page = (root / "both" / "gpu0" / "report" / "pages" / "m0.html").read_text("utf-8")
    assert "18 NVLinks, 100.0 GB/s" in page
    linked.measured = []
    assert two_gpus(root, "--explain", "pairs/1") == FAILED
    explained = capfd.readouterr()
    assert linked.measured == []
    assert f"measured already: {node}" in explained.err
    assert "pairs/1 (1a2b3c4d) to 0 (1a2b3c4d): fail" in explained.out


def test_what_gpus_do_together_goes_on_after_an_interrupt(root: Path, linked: FakeCards) -> None:
    linked.interrupt = {"node"}
    assert two_gpus(root) == INTERRUPTED
    assert linked.measured == ["node"]
    linked.interrupt, linked.measured = set(), []
    two_gpus(root)
    assert linked.measured == ["node", *EACH_ALONE, *ALL_AT_ONCE]


def test_of_one_gpu_a_line_says_why_there_are_no_pairs(
    root: Path, linked: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    cli.main(["qualify", "--gpus", "0", "--out", str(root / "one")])
    assert linked.measured == ["gpu0", "together0"]
    said = capfd.readouterr().err
    assert said.count("left out: 1 GPU: pairs, all-reduces and a data-parallel step take two") == 1


def test_a_filter_may_leave_nothing_to_do_together(
    root: Path, linked: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    two_gpus(root, "--filter", "host_malloc")
    assert linked.measured == [*EACH_ALONE, *ALL_AT_ONCE]
    assert "leave nothing of what the GPUs do together" in capfd.readouterr().err


def readme_has_it(monkeypatch: pytest.MonkeyPatch, interrupt: str = "") -> int:
    """`qualify --quick --gpus all` on two cards, whose parts of this name are interrupted."""
    monkeypatch.setenv("FAKE_BENCH", "cards")
    monkeypatch.setenv("FAKE_INTERRUPT", interrupt)
    return cli.main(["qualify", "--quick", "--gpus", "all"])


PARTS = {  # and the cards of each
    "node": {"1a2b3c4d"},  # a record names the first of several
    "gpu0": {"1a2b3c4d"},
    "gpu1": {"2b3c4d5e"},
    "together0": {"1a2b3c4d"},
    "together1": {"2b3c4d5e"},
}


def measured_parts(results: Path) -> dict[str, list[Record]]:
    """Part and records of every run of a qualification, all of which are beside its folder."""
    (siblings,) = results.glob("*/*/siblings.json")
    beside = {one for one in siblings.parents[1].iterdir() if one != siblings.parent}
    assert {one.name.partition(".")[0] for one in beside} == {siblings.parent.name}
    assert {runs.state_of(one) for one in {*beside, siblings.parent}} == {runs.COMPLETE}
    return {one.name.partition(".")[2]: list(read_run(one).records) for one in beside}


def require_every_part_once(parts: dict[str, list[Record]]) -> None:
    cards = {
        name: {one.context.gpu.card for one in records if one.context.gpu}
        for name, records in parts.items()
    }
    assert cards == PARTS
    for name, records in parts.items():
        assert len(records) == (3 if name == "node" else len(runs_made.full_gpu()))
        assert len({(one.subject, one.launch) for one in records}) == len(records)


def test_each_card_and_part_has_a_folder_of_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert readme_has_it(monkeypatch) == OK
    require_every_part_once(measured_parts(root / "results"))


def test_several_cards_go_on_in_the_folders_that_were_chosen_for_them(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for interrupt in ("node", "gpu1", "together"):
        assert readme_has_it(monkeypatch, interrupt) == INTERRUPTED
    capfd.readouterr()
    assert readme_has_it(monkeypatch) == OK
    said = capfd.readouterr().err
    assert said.count("measured already: ") == 3
    assert said.count("going on with") == 1
    require_every_part_once(measured_parts(root / "results"))


def test_several_cards_of_which_nothing_was_measured_leave_no_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "measure_all", lambda *_: [USAGE])
    assert readme_has_it(monkeypatch) == USAGE
    assert list((root / "results" / "nvidia-h200").iterdir()) == []


def test_the_last_line_is_the_verdict_and_the_report_after_one_of_each_gpu(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_BENCH", "gpu")
    run = root / "run"
    assert cli.main(["qualify", "--explain", "health/ecc", "--out", str(run)]) == OK
    *_, card, last = capfd.readouterr().out.splitlines()
    assert card.startswith(
        "GPU 1a2b3c4d: bf16 848 TFLOP/s, 738 TFLOP/s sustained, memory 4.30 TB/s"
    )
    assert "; at most 1980 MHz, 699 W; clock held down: sw_power_cap" in card
    verdict, _, page = last.partition("; report: ")
    assert verdict.startswith("✓ Pass (14 checks), 0 undecided, 0 failed; ")
    assert verdict.endswith(" s of sustained load")
    assert Path(page) == run / "report" / "index.html"


def test_a_check_that_is_not_there_does_not_cost_the_verdict(
    root: Path, cards: FakeCards, capfd: pytest.CaptureFixture[str]
) -> None:
    assert two_gpus(root, "--explain", "no such check") == USAGE
    *_, first, second, last = capfd.readouterr().out.splitlines()
    assert first.startswith("GPU 1a2b3c4d: ")
    assert second.startswith("GPU 1a2b3c4d: ")
    assert " of sustained load on each GPU; report: " in last
