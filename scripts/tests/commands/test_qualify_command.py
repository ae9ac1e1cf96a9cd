"""`gpulift qualify` on machines without a GPU, with one, and with several; what it refuses.

gpulift-bench is a fake that is asked once for each question, and no page is drawn but in one test.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.machine import feeding, topology, training
from gpulift.analysis.machine.topology import Topology
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
from gpulift.records.read import read_run
from gpulift.report import page
from tests import runs_made, sample
from tests.analysis.machine.test_qualify_links import copies as copies_between_gpus
from tests.engine.test_node import KNOWN

pytestmark = pytest.mark.world

Shown = pytest.CaptureFixture[str]
ANSWERS: dict[tuple[str, ...], bytes] = {}
MEASURE = machine.measure
DRAW = page.write
LINK = "roof/host_link/h2d/burst"
EVEN = "7e14 7.001e14 6.999e14 7e14"


@pytest.fixture
def fake(root: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a fake on a machine without a GPU, whose answers are kept."""
    ask = machine._output

    def output(bench: Path, flags: Sequence[str]) -> bytes:
        key = (os.environ.get("FAKE_BENCH", "ok"), *flags)
        if key not in ANSWERS:
            ANSWERS[key] = ask(bench, flags)
        return ANSWERS[key]

    def write(_: object, out: Path) -> Path:
        out.mkdir(parents=True, exist_ok=True)
        (out / "index.html").touch()
        return out / "index.html"

    monkeypatch.setattr(machine, "_output", output)
    monkeypatch.setattr(page, "write", write)
    monkeypatch.chdir(root)
    return monkeypatch


@pytest.fixture
def gpu(fake: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    fake.setenv("FAKE_BENCH", "gpu")
    return fake


def qualify(*arguments: str) -> int:
    return cli.main(["qualify", "--out", "run", *arguments])


@pytest.mark.parametrize(
    ("bench", "arguments", "code", "words"),
    [
        ("ok", ["--gpus", "all"], NOTHING_RAN, "no GPU: "),
        ("ok", ["--burn", "60s"], NOTHING_RAN, "no GPU: "),
        ("ok", ["--gpus", "0,one"], USAGE, "name a GPU by its index"),
        ("ok", ["--gpus", "0"], USAGE, "--gpus 0: no NVIDIA driver on this machine; install"),
        ("ok", ["--gpu", "9"], USAGE, "--gpu 9: no NVIDIA driver on this machine; install"),
        ("ok", ["--gpu", "0", "--gpus", "all"], USAGE, "not both"),
        ("ok", ["--explain", ""], USAGE, "--explain needs a part of a check's name, and was empty"),
        ("ok", ["--explain", "roof", "--json"], USAGE, "--json holds every step already: leave"),
        ("burn", ["--burn", "60s", "--quick", "60s"], USAGE, "leave --quick out"),
        ("burn", ["--burn", "60s", "--filter", "x"], USAGE, "leave --filter out"),
        ("burn", ["--burn", "60s", "--explain", "health"], USAGE, "leave --explain out"),
        ("burn", ["--burn", "60s", "--gpus", "7"], USAGE, "--gpus 7: "),
    ],
)
def test_what_is_refused_is_one_line_before_anything_is_measured(
    fake: pytest.MonkeyPatch, capfd: Shown, bench: str, arguments: list[str], code: int, words: str
) -> None:
    fake.setenv("FAKE_BENCH", bench)
    assert qualify(*arguments) == code
    told = capfd.readouterr()
    assert (words in told.err, told.err.count("\n"), told.out) == (True, 1, "")
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("bench", "arguments", "on_bus", "words"),
    [
        ("ok", ["--gpus", "all"], 1, "no GPU: 1 on the bus, and none can be used: no NVIDIA"),
        ("ok", ["--gpus", "all", "--expect-gpus", "8"], 0, "0 of 8 expected GPUs can be used: no"),
        ("ok", ["--quick", "--expect-gpus", "1"], 0, "✗ Fail"),
        ("ok", ["--quick"], 1, "✗ Fail"),
        ("burn", ["--burn", "60s", "--expect-gpus", "8"], 0, "health/gpus"),
    ],
)
def test_a_machine_whose_gpus_are_lost_fails(
    fake: pytest.MonkeyPatch,
    capfd: Shown,
    bench: str,
    arguments: list[str],
    on_bus: int,
    words: str,
) -> None:
    fake.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake.setenv("FAKE_BENCH", bench)
    fake.setenv("FAKE_BURN", EVEN)
    fake.setattr(presence, "gpus_on_bus", lambda: on_bus)
    assert qualify(*arguments) == FAILED
    assert words in "".join(capfd.readouterr())
    if "--quick" in arguments:
        assert cli.main(["export", "junit", "run"]) == OK
        assert 'failures="1"' in capfd.readouterr().out


def test_verdicts_are_kept_beside_the_records_and_told_as_json(
    gpu: pytest.MonkeyPatch, capfd: Shown
) -> None:
    assert qualify("--json") == OK
    (document,) = json.loads(capfd.readouterr().out)
    assert document == json.loads(Path("run/qualification.json").read_text(encoding="utf-8"))
    health = {one["id"]: one["verdict"] for one in document["checks"] if one["kind"] == "health"}
    assert health["health/ecc"] == "pass"
    assert health["health/integrity"] == "skipped"


@pytest.mark.parametrize("filter", ["", "host_link"])
def test_a_quick_run_begins_with_a_look_at_the_card(
    fake: pytest.MonkeyPatch, capfd: Shown, filter: str
) -> None:
    fake.setenv("FAKE_BENCH", "open")
    qualify("--quick", *(["--filter", filter] if filter else []))
    progress = capfd.readouterr().err
    calls = [line for line in progress.splitlines() if line.startswith("flags:")]
    assert ["--launches 1" in call for call in calls[:2]] == [True, False]
    rates = "from the host 55.3 GB/s" if filter else "memory 4.31 TB/s, from the host 55.3 GB/s"
    assert f"one launch: GPU 1a2b3c4d: {rates}" in progress
    launches = [one.launch for one in read_run(Path("run")).records if "link" in one.technique]
    assert {0, 1, 2} <= set(launches)
    assert len(launches) == len(set(launches))


def test_a_first_look_that_is_interrupted_ends_the_run(
    fake: pytest.MonkeyPatch, capfd: Shown
) -> None:
    fake.setenv("FAKE_BENCH", "open")
    fake.setattr(machine, "measure", lambda *_: INTERRUPTED)
    assert qualify("--quick") == INTERRUPTED
    assert "first look" not in capfd.readouterr().err


def test_an_open_roof_gets_fresh_launches_until_it_is_decided(
    fake: pytest.MonkeyPatch, capfd: Shown
) -> None:
    fake.setenv("FAKE_BENCH", "open")
    assert qualify("--json") == OK
    told = capfd.readouterr()
    case = "ceiling/host_link/bytes:1073741824"
    assert f"1 check open: measured again, 6 launches in all: {case}\n" in told.err
    assert told.err.count("measured again") == 1, "six launches decide it"
    checks = {one["id"]: one for one in json.loads(told.out)[0]["checks"]}
    assert checks[LINK]["verdict"] == "pass"
    assert checks[LINK]["estimate"]["launches"] == 6
    assert checks["roof/device_memory/burst"]["estimate"]["launches"] == 3
    assert runs.state_of(Path("run")) == runs.COMPLETE
    launches = [one.launch for one in read_run(Path("run")).records if "link" in one.technique]
    assert sorted(launches) == list(range(6))


def test_a_round_that_the_user_interrupts_is_gone_on_with(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_BENCH", "open")
    calls = []

    def measured(bench: Path, flags: list[str], *limit: float) -> int:
        calls.append(flags)
        return INTERRUPTED if len(calls) == 2 else MEASURE(bench, flags)

    fake.setattr(machine, "measure", measured)
    assert qualify() == INTERRUPTED
    assert runs.state_of(Path("run")) == runs.RUNNING
    assert qualify() == OK
    assert "--launches" in calls[-1]
    assert runs.state_of(Path("run")) == runs.COMPLETE


def test_what_it_ends_with(gpu: pytest.MonkeyPatch, capfd: Shown) -> None:
    """An explanation, what the host feeds, a line of the GPU, how it trains, the verdict."""
    gpu.setattr(feeding, "answers", lambda _: ["ResNet-50: 2 cores feed 700 [690, 710]"])
    gpu.setattr(training, "answers", lambda *_: ["GPT-2 trains at 1 token/s"])
    assert qualify("--explain", "Health/ECC") == OK
    out = capfd.readouterr().out
    assert "health/ecc: pass" in out
    assert "ResNet-50: 2 cores feed 700 [690, 710]\n" in out
    *_, card, trains, last = out.splitlines()
    rates = "GPU 1a2b3c4d: bf16 848 TFLOP/s, 738 TFLOP/s sustained, memory 4.30 TB/s"
    assert card.startswith(rates)
    assert "; at most 1980 MHz, 699 W; clock held down: sw_power_cap" in card
    assert trains == "GPT-2 trains at 1 token/s"
    verdict, _, report = last.partition("; report: ")
    assert verdict.startswith("✓ Pass (14 checks), 0 undecided, 0 failed; ")
    assert verdict.endswith(" s of sustained load")
    assert report == "run/report/index.html"


def test_what_was_measured_is_explained_without_its_options(
    gpu: pytest.MonkeyPatch, capfd: Shown
) -> None:
    assert qualify("--quick", "60s") == OK
    capfd.readouterr()
    for results in (["run"], []):
        gpu.setattr(machine, "own_results", lambda: Path())
        assert cli.main(["qualify", "--explain", "Health/ECC", *results]) == OK
        shown = capfd.readouterr()
        assert shown.out.startswith("health/ecc: pass\n  Health: ")
        assert shown.err == ("" if results else "gpulift: of run\n")
    assert cli.main(["qualify", "--explain", "health/temprature", "run"]) == USAGE
    assert "near it: health/temp" in capfd.readouterr().err


def test_a_check_that_is_not_there_loses_nothing(gpu: pytest.MonkeyPatch, capfd: Shown) -> None:
    assert qualify("--explain", "health/temprature") == USAGE
    told = capfd.readouterr()
    assert "--explain: no check holds 'health/temprature'; near it: health/temp" in told.err
    assert "the results are kept in run" in told.err
    assert "NVIDIA H200 1a2b3c4d, judged by computed peaks: no reference" in told.out
    assert told.out.splitlines()[-1].startswith("✓ Pass")
    assert Path("run/qualification.json").is_file()


def test_another_card_of_the_model_does_not_go_on(gpu: pytest.MonkeyPatch, capfd: Shown) -> None:
    assert qualify() == OK
    for file in Path("run").glob("*.jsonl"):
        file.write_text(file.read_text().replace("1a2b3c4d", "99999999"))
    assert qualify() == NOT_COMPARABLE
    assert "run: is of card 99999999, and 1a2b3c4d is here now" in capfd.readouterr().err


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

    def again(self, *interrupt: str) -> FakeCards:
        """Forgets what was measured."""
        self.interrupt, self.measured = set(interrupt), []
        return self


@pytest.fixture
def cards(gpu: pytest.MonkeyPatch) -> FakeCards:
    made = FakeCards()
    gpu.setattr(machine, "measure_all", made.measure_all)
    return made


def two_gpus(*arguments: str) -> int:
    return qualify("--gpus", "0,1", *arguments)


EACH_ALONE = ["gpu0", "gpu1"]
ALL_AT_ONCE = ["together0", "together1"]


@pytest.mark.parametrize(
    ("interrupted", "before", "after"),
    [
        (["gpu1"], EACH_ALONE, ["gpu1", *ALL_AT_ONCE]),
        (ALL_AT_ONCE, [*EACH_ALONE, *ALL_AT_ONCE], ALL_AT_ONCE),
        # the other would go on alone
        (["together1"], [*EACH_ALONE, *ALL_AT_ONCE], ["together0-2", "together1-2"]),
    ],
)
def test_several_gpus_are_gone_on_with_after_an_interrupt(
    cards: FakeCards, capfd: Shown, interrupted: list[str], before: list[str], after: list[str]
) -> None:
    cards.interrupt = set(interrupted)
    assert two_gpus() == INTERRUPTED
    assert cards.measured == before
    progress = capfd.readouterr().err
    if interrupted == ["together1"]:
        assert "GPU 1, all at once: ended early" in progress
        assert "the same command goes on" in progress
    kept = Path("run/gpu0/qualification.json").read_bytes()
    cards.again()
    assert two_gpus() == OK
    assert cards.measured == after
    assert "measured already: run/gpu0" in capfd.readouterr().err
    assert Path("run/gpu0/qualification.json").read_bytes() == kept
    cards.again()
    assert (two_gpus(), cards.measured) == (OK, []), "all of it is there"


def test_what_was_seen_of_health_is_kept_over_an_interrupt(cards: FakeCards, capfd: Shown) -> None:
    cards.interrupt = {"gpu1"}
    two_gpus()
    file = Path("run/gpu0/qualification.json")
    document = json.loads(file.read_text(encoding="utf-8"))
    (ecc,) = [one for one in document["checks"] if one["id"] == "health/ecc"]
    ecc |= {"verdict": "fail", "reason": "seen before the interrupt"}
    file.write_text(json.dumps(document), encoding="utf-8")
    cards.again()
    assert two_gpus() == FAILED
    told = capfd.readouterr().out
    assert "seen before the interrupt" in " ".join(told.split())
    assert "health/ecc (1a2b3c4d, alone)" in told.splitlines()[-1], "which card it is"
    file.unlink()
    assert two_gpus() == OK


def test_what_several_cards_have_no_time_for_is_said_once(cards: FakeCards, capfd: Shown) -> None:
    filtered = ("--filter", "host_malloc|pinned_copy", "--verbose")
    assert two_gpus("--quick", "13s", *filtered) == OK
    assert cards.measured == [*EACH_ALONE, *ALL_AT_ONCE]
    progress = capfd.readouterr().err
    left = re.findall(r"1 case left out for time: --quick \d+s has all: (.*)/", progress)
    assert left == ["transfer/pinned_copy"]
    for name in cards.measured:
        rows = Path("run", name, runs.ROWS_FILE).read_text()
        assert "allocator/host_malloc" in rows
        assert "transfer/pinned_copy" not in rows


def test_cards_of_two_models_are_refused_before_anything_is_measured(
    cards: FakeCards, gpu: pytest.MonkeyPatch, capfd: Shown
) -> None:
    first = machine.describe(machine.find_bench(), 0)
    assert first.gpu is not None
    other = replace(first, gpu=replace(first.gpu, name="NVIDIA A100"))
    gpu.setattr(machine, "describe", lambda _, index: other if index == 1 else first)
    assert two_gpus() == USAGE
    assert (cards.measured, Path("run").exists()) == ([], False)
    assert "several models: NVIDIA A100 (1), NVIDIA H200 (0); name" in capfd.readouterr().err


def test_checks_of_several_gpus_are_explained_and_kept(cards: FakeCards, capfd: Shown) -> None:
    assert two_gpus("--explain", "siblings") == OK
    told = capfd.readouterr().out
    assert "evidence: run/siblings.json" in told
    assert "\nsiblings: skipped\n  Qualification: skipped: 1 cards: no outlier" in told
    document = json.loads(Path("run/siblings.json").read_text(encoding="utf-8"))
    assert [one["id"] for one in document["checks"]] == ["siblings"]
    assert document["crowding"], "what running together costs"
    assert two_gpus("--explain", "health/ecc") == OK
    assert "health/ecc (1a2b3c4d, alone): pass" in capfd.readouterr().out
    assert two_gpus("--json") == OK
    assert json.loads(capfd.readouterr().out)[-1] == document
    assert two_gpus("--explain", "no such check") == USAGE
    *_, first, second, last = capfd.readouterr().out.splitlines()
    assert all(line.startswith("GPU 1a2b3c4d: ") for line in (first, second))
    assert " of sustained load on each GPU; report: " in last


@pytest.fixture
def linked(cards: FakeCards, gpu: pytest.MonkeyPatch) -> FakeCards:
    """The same with links: one direction is slow, and at each look they have had an error more."""
    known = machine.catalogue(machine.find_bench())
    copies = next(info for info in KNOWN if info.id == "ceiling/peer_copy")
    gpu.setattr(machine, "catalogue", lambda *_: [*known, copies])
    looks = itertools.count()

    def health(bench: Path, gpu: int | None = None) -> bytes:
        links = [{"link": 0, "active": True, "errors": next(looks)}]
        return json.dumps({"card": "0a1b2c3d", "nvlinks": links}).encode()

    gpu.setattr(machine, "health", health)
    gpu.setattr(
        topology, "ask", lambda: Topology((0, 1), (("X", "NV18"), ("NV18", "X")), ("0", "0"))
    )
    cards.shared = copies_between_gpus(*3 * [{(1, 0): 100}], gpus=2)
    return cards


def test_what_gpus_do_together_is_measured_judged_kept_and_shown(
    linked: FakeCards, gpu: pytest.MonkeyPatch, capfd: Shown
) -> None:
    gpu.setattr(page, "write", DRAW)
    assert two_gpus("--all", "--wide") == FAILED
    assert linked.measured == ["node", *EACH_ALONE, *ALL_AT_ONCE]
    told = capfd.readouterr().out
    assert "pairs/1 (1a2b3c4d) to 0 (1a2b3c4d)" in told
    assert "2 errors on NVLinks during the run: link 0 (2)" in told
    node = Path("run/node")
    rows = (node / runs.ROWS_FILE).read_text("utf-8")
    assert rows.splitlines()[0] == "ceiling/peer_copy\tbytes:268435456\twrite"
    assert topology.kept(node) is not None
    drawn = Path("run/gpu0/report/pages/m0.html").read_text("utf-8")
    assert "18 NVLinks, 100.0 GB/s" in drawn
    linked.again()
    assert two_gpus("--explain", "pairs/1") == FAILED
    explained = capfd.readouterr()
    assert linked.measured == []
    assert f"measured already: {node}" in explained.err
    assert "pairs/1 (1a2b3c4d) to 0 (1a2b3c4d): fail" in explained.out


def test_what_gpus_do_together_goes_on_after_an_interrupt(linked: FakeCards) -> None:
    linked.interrupt = {"node"}
    assert (two_gpus(), linked.measured) == (INTERRUPTED, ["node"])
    linked.again()
    two_gpus()
    assert linked.measured == ["node", *EACH_ALONE, *ALL_AT_ONCE]


@pytest.mark.parametrize(
    ("arguments", "measured", "words"),
    [
        (["--gpus", "0"], ["gpu0", "together0"], "1 GPU: pairs, all-reduces and a data-parallel"),
        (
            ["--gpus", "0,1", "--filter", "host_malloc"],
            [*EACH_ALONE, *ALL_AT_ONCE],
            "filter, time or build leave nothing of what the GPUs do together",
        ),
    ],
)
def test_why_nothing_is_measured_together_is_said(
    linked: FakeCards, capfd: Shown, arguments: list[str], measured: list[str], words: str
) -> None:
    qualify(*arguments)
    assert linked.measured == measured
    assert capfd.readouterr().err.count(f"left out: {words}") == 1


def readme_has_it(fake: pytest.MonkeyPatch, interrupt: str = "") -> int:
    """`qualify --quick --gpus all` on two cards, whose parts of this name are interrupted."""
    fake.setenv("FAKE_BENCH", "cards")
    fake.setenv("FAKE_INTERRUPT", interrupt)
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


def test_each_card_and_part_has_a_folder_that_is_gone_on_with(
    fake: pytest.MonkeyPatch, capfd: Shown
) -> None:
    for interrupt in ("node", "gpu1", "together"):
        assert readme_has_it(fake, interrupt) == INTERRUPTED
    capfd.readouterr()
    assert readme_has_it(fake) == OK
    progress = capfd.readouterr().err
    assert progress.count("measured already: ") == 3
    assert progress.count("going on with") == 1
    parts = measured_parts(Path("results"))
    assert {name: {one.context.card for one in parts[name]} for name in parts} == PARTS
    for name, records in parts.items():
        assert len(records) == (3 if name == "node" else len(runs_made.full_gpu()))
        assert len({(one.subject, one.launch) for one in records}) == len(records)


def test_several_cards_of_which_nothing_was_measured_leave_no_folder(
    fake: pytest.MonkeyPatch,
) -> None:
    fake.setattr(machine, "measure_all", lambda *_: [USAGE])
    assert readme_has_it(fake) == USAGE
    assert list(Path("results/nvidia-h200").iterdir()) == []


@pytest.fixture
def burn(fake: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Four cards whose rates are FAKE_BURN."""
    fake.setenv("FAKE_BENCH", "burn")
    fake.setenv("FAKE_BURN", EVEN)
    return fake


def test_all_cards_are_loaded_at_once_and_each_has_four_lines(
    burn: pytest.MonkeyPatch, capfd: Shown
) -> None:
    assert qualify("--burn", "60s") == OK
    told = capfd.readouterr()
    assert "one product on 4 GPUs: 3 launches of some 22 s" in told.err
    lines = told.out.splitlines()
    assert len(lines) == 4 * 4 + 1
    assert lines[:4] == [
        "✓ GPU 1a2b3c4d: fp32 50.0 TFLOP/s, bf16 700 TFLOP/s, 100.0 % of the cards' median",
        "  heat: the driver does not say",
        "  power: at most 699 W of the driver does not say",
        "  clock: 1980 MHz, only sw_power_cap, which is normal under load;"
        " results right in 3 of 3 launches",
    ]
    assert lines[-1].startswith("✓ Pass (")
    assert lines[-1].endswith("2.70 s of sustained load on each GPU")
    for number in range(4):
        kept = json.loads(Path(f"run/burn{number}/qualification.json").read_text())
        assert "fixed/gemm/bf16/sustained" in {one["id"] for one in kept["checks"]}
        state = json.loads(Path(f"run/burn{number}/run.json").read_text())
        assert (state["state"], state["options"]["together"]) == (runs.COMPLETE, 4)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ("7e14 7e14 7e14 6e14", "85.7 % of the cards' median"),
        ("7e14 7e14 7e14 -7e14", "results right in 2 of 3 launches"),
    ],
)
def test_a_card_that_is_slow_or_wrong_under_load_fails(
    burn: pytest.MonkeyPatch, capfd: Shown, rates: str, words: str
) -> None:
    burn.setenv("FAKE_BURN", rates)
    assert qualify("--burn", "60s") == FAILED
    out = capfd.readouterr().out.splitlines()
    assert words in "".join(out[12:16])
    assert out[-1].startswith("✗ Fail (1 check)")
    assert "4d5e6f7a" in out[-1]


def test_without_a_folder_the_parts_lie_beside_a_run_and_one_card_may_be_named(
    burn: pytest.MonkeyPatch, capfd: Shown
) -> None:
    arguments = ["qualify", "--burn", "10s", "--gpu", "2", "--json"]
    assert cli.main(arguments) == INCONCLUSIVE, "of one launch"
    told = capfd.readouterr()
    assert "1 launch of some 22 s" in told.err
    (document,) = json.loads(told.out)
    (part,) = Path("results/nvidia-h200").glob("*.burn2")
    assert document["run"] == f"nvidia-h200/{part.name}"
