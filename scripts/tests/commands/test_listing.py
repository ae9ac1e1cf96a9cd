"""`gpulift list`: what is shown of a catalogue, of which a fake gpulift-bench has three."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.errata import TEXTS
from gpulift.commands import listing
from gpulift.engine import machine
from gpulift.engine.machine import CaseInfo, TechniqueInfo
from gpulift.ground.errors import OK
from gpulift.ground.field import in_our_words
from gpulift.records.model import Context
from gpulift.records.parse import read_record
from tests import runs_made, sample
from tests.conftest import CHECKOUT

QUESTION = "What is a technique worth whose question is longer than any line of a terminal may be?"
INFO = TechniqueInfo("a/fast", QUESTION, 0, False, ("x",), (CaseInfo("n:1", quick=True),))
INFOS = [
    INFO,
    replace(INFO, id="a/of_gpus", gpus=2),
    replace(INFO, id=listing.FIRST[0], gpus=1),
    replace(INFO, id="z/torch", unavailable="built without LibTorch", remedy="./gpulift setup"),
]


def context() -> Context:
    return read_record({**runs_made.without_gpu()[0]}).context


def test_a_technique_is_a_line_and_a_reason_stands_once() -> None:
    told = list(listing.lines(INFOS, context(), wide=False))
    no_driver, *_ = [line for line in told if line.startswith("1 cannot")]
    assert no_driver.startswith("1 cannot run here: no NVIDIA driver on this machine")
    assert no_driver.endswith("(2 techniques)")
    assert "2 cannot run here: built without LibTorch; ./gpulift setup (1 technique)" in told
    assert [line.split()[:2] for line in told[:6] if line] == [
        ["a/fast", "What"],
        ["1", "a/of_gpus"],
        ["*", "1"],
        ["2", "z/torch"],
    ]
    assert [told[2], told[4]] == ["", ""], "between themes"
    assert "* to begin with: most training jobs can turn it on" in told
    assert told[-1].startswith("4 techniques, of which 1 can run here")


def test_the_gain_on_this_model_stands_beside_the_technique() -> None:
    told = list(listing.lines(INFOS[:2], context(), False, {"a/of_gpus": "1.81× ●○○"}))
    assert [line.split()[:3] for line in told[:2]] == [
        ["a/fast", "What", "is"],
        ["1", "a/of_gpus", "1.81×"],
    ]
    assert told[0].index("What") == told[1].index("What")
    assert "1.81× ●○○  What" in told[1]
    assert any(line.startswith("×: the gain") for line in told)


def test_gains_are_those_of_this_model_in_the_checkout(root: Path) -> None:
    arms = [sample.arm("old", 2e-3), sample.arm("new", 1e-3)]
    wrong = sample.launches(3, "a/of_gpus", {"n": 1}, arms)
    results = root / "results"
    folder = results / "nvidia-h200" / "2026-11-21-abc1234"
    sample.write(folder, [*sample.launches(3, "a/fast", {"n": 1}, arms), *wrong])
    cells = "".join(f'{key} = "x"\n' for key in TEXTS)
    errata = f'[[errata]]\nnumber = 1\n{cells}runs = ["*"]\nleads = false\ntechniques = "gpus"\n'
    (results / "errata.toml").write_text(errata, "utf-8")
    here = read_record(wrong[0]).context
    assert listing.gains_here(INFOS, here) == {"a/fast": "2.00× ●●○"}
    assert listing.gains_here(INFOS[1:2], here) == {}, "which an erratum withholds"
    assert listing.gains_here(INFOS, context()) == {}, "no GPU"


def test_where_all_can_run_no_reason_is_told() -> None:
    told = list(listing.lines(INFOS[:1], context(), wide=False))
    assert told[1:] == ["", "1 technique, of which 1 can run here; list --themes sums them up"]


@pytest.mark.parametrize("columns", [60, 80, 10])
def test_a_question_is_cut_at_a_word_to_the_terminals_width(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stdout = io.StringIO()
    monkeypatch.setattr(stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stdout)
    line, *_ = listing.lines(INFOS[:1], context(), wide=False)
    assert len(line) <= max(columns, 10 + listing.LEAST_COLUMNS + 2)
    assert line.endswith(" …")
    cut = line.partition("What")[2].removesuffix(" …")
    assert f"What{cut} " in QUESTION


@pytest.mark.parametrize(("gpus", "needs"), [(0, "CPU"), (1, "GPU"), (2, "2 GPUs")])
def test_wide_has_all_of_the_question_and_what_is_needed(gpus: int, needs: str) -> None:
    line, *_ = listing.lines([replace(INFO, gpus=gpus)], context(), wide=True)
    assert line.endswith(f"{QUESTION} ({needs}, cases: 1, quick: 1)")


def test_themes_are_a_line_each() -> None:
    told = list(listing.theme_lines(INFOS, context()))
    assert told == [
        "a            1 of  2 here  fast, of_gpus",
        f"precision    0 of  1 here  {listing.FIRST[0].partition('/')[2]}",
        "z            0 of  1 here  torch",
    ]


def test_what_to_begin_with_is_there_and_measures_a_step_or_what_feeds_it() -> None:
    assert len(set(listing.FIRST)) == 6
    for id in listing.FIRST:
        (source, *_) = sorted((CHECKOUT / "benches").glob(f"{id}.*"))
        assert "whole_steps" in source.read_text("utf-8") or id == "input/pipeline", source


def test_foreign_names_are_made_harmless() -> None:
    line, *_ = listing.lines([replace(INFO, question="\x1b[2J")], context(), wide=False)
    assert line.endswith("\\x1b[2J")


@pytest.mark.world
def test_a_filter_selects_cases(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for filter, cases in (("transfer", 2), ("/pinned$", 2), ("bytes:65536/pinned$", 1)):
        assert cli.main(["list", "--filter", filter, "--wide"]) == OK
        first, *_ = capfd.readouterr().out.splitlines()
        assert first.endswith(f"(GPU, cases: {cases}, quick: 1)"), filter
    assert cli.main(["list", "--themes"]) == OK
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == [
        "allocator",
        "model",
        "transfer",
    ]
    assert cli.main(["list", "--json", "--filter", "-bytes:4096"]) == OK
    listed = {one["id"]: one for one in json.loads(capfd.readouterr().out)}
    assert [case["id"] for case in listed["transfer/pinned_copy"]["cases"]] == ["bytes:65536"]
    assert listed["model/resnet"]["cases"] == []
    assert listed["model/resnet"]["not_here"] == "built without LibTorch"


@pytest.mark.parametrize(
    ("word", "technique"),
    [
        ("FSDP", "distributed/sharding"),
        ("DDP", "distributed/data_parallel"),
        ("Flash", "attention/sdpa"),
        ("AMP", "precision/training_step"),
        ("DataLoader", "input/workers"),
        ("num_workers", "input/workers"),
        ("pin_memory", "transfer/pinned_copy"),
        ("packing", "attention/document_mask"),
        ("MFU", "job/step"),
        ("ZeRO", "distributed/sharding"),
    ],
)
def test_words_of_the_field_lead_to_techniques_that_there_are(word: str, technique: str) -> None:
    declared = json.loads((CHECKOUT / "results" / "today.json").read_text("utf-8"))["techniques"]
    infos = [
        replace(INFO, id=id, cases=(CaseInfo("", False),), arms=tuple(one["arms"]))
        for id, one in declared.items()
        if isinstance(one, dict)
    ]
    wanted = in_our_words(word)
    found = [one.id for one in machine.select(infos, wanted, re.IGNORECASE)]
    assert technique in found
    assert len(found) < len(infos) / 4


@pytest.mark.world
def test_it_answers_without_the_other_commands(root: Path) -> None:
    code = (
        "import sys; from gpulift import __main__ as program\n"
        "sys.argv = ['gpulift', 'list']; code = program.main()\n"
        "sys.exit(code or 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "2 transfer/pinned_copy" in done.stdout
