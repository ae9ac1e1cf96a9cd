"""`gpulift show --bibtex`: a BibTeX entry and a sentence that say the conditions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.over_runs import UNTOLD_FILES
from gpulift.commands.citing import address_of, bibtex, over_runs, sentence
from gpulift.ground import text
from gpulift.ground.errors import USAGE
from gpulift.ground.text import bibtex_text
from gpulift.records.model import Record, record_id
from gpulift.records.parse import read_record
from gpulift.verdicts.stats import PairRatio, pair_ratio
from tests import sample
from tests.sample import Json

CASE: Json = {"direction": "h2d", "bytes": 65536}
ARMS = (sample.arm("pageable", 2e-4), sample.arm("pinned", 1e-4))


def record(context: Json = sample.GPU_CONTEXT, **top: object) -> Record:
    raw = sample.record("transfer/pinned_copy", CASE, ARMS, context=context)
    return read_record(raw | top)


def test_the_entry_has_key_title_year_and_conditions() -> None:
    one = record()
    assert bibtex(one, address="https://example.org/a/b") == (
        f"@misc{{gpulift:nvidia-h200/{one.id},\n"
        "  title = {{transfer/pinned\\_copy, direction h2d, 64 KiB, burst regime on"
        " NVIDIA H200, measured with gpulift}},\n"
        "  author = {{gpulift contributors}},\n"
        "  year = {2026},\n"
        "  version = {commit abc1234},\n"
        "  url = {https://example.org/a/b},\n"
        f"  note = {{gpulift:nvidia-h200/{one.id}; launch 1 of 3, 2026-11-21T03:59:59Z;"
        " GPU NVIDIA H200, card 1a2b3c4d; driver 580.159.04, CUDA driver 13.0, CUDA runtime 13.0;"
        " cublaslt 13.1.0; gpulift at commit abc1234; throttle sw\\_power\\_cap},\n"
        "}"
    )


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://github.com/a/gpulift.git", "https://github.com/a/gpulift"),
        ("https://me:secret@github.com/a/gpulift", "https://github.com/a/gpulift"),
        ("git@gitlab.example.org:a/b/gpulift.git", "https://gitlab.example.org/a/b/gpulift"),
        ("ssh://git@github.com/a/gpulift/", "https://github.com/a/gpulift"),
        *((no, "") for no in ("ssh://git@x.org:22/a", "/home/me/gpulift", "../a.b/c", "", "x.org")),
        *((no, "") for no in ("file:///home/me", "https://x.org/a}\\b", "c:/me/gpulift")),
    ],
)
def test_an_address_is_of_a_public_clone_and_names_nobody(origin: str, address: str) -> None:
    assert address_of(origin) == address


def test_the_sentence_has_every_arm_and_the_conditions() -> None:
    one = record()
    said = sentence(one)
    assert said.startswith(
        "On NVIDIA H200, a step of transfer/pinned_copy, direction h2d, 64 KiB, burst regime"
        " took: pageable "
    )
    for part in (", the baseline; pinned ", "× [", "97.5 % intervals", one.citation, "launch 1 of"):
        assert part in said
    for part in ("driver 580.159.04", "card 1a2b3c4d", "commit abc1234;", "throttle sw_power_cap"):
        assert part in said
    assert said.endswith(").")
    assert "uncommitted" not in said


@pytest.mark.parametrize(("known", "said"), [(True, ""), (False, "; throttle not read")])
def test_throttling_that_was_not_read_is_said_and_none_is_not(known: bool, said: str) -> None:
    telemetry: Json = {"samples": 40} | ({"throttle": []} if known else {})
    assert sentence(record(telemetry=telemetry)).endswith(f"gpulift at commit abc1234{said}).")


def test_a_dirty_build_and_a_planted_run_are_said() -> None:
    context = sample.gpu_context(build={"dirty": True}, options={"plant": 0.05})
    one = record(context)
    for said in (sentence(one), bibtex(one)):
        assert "commit abc1234, with uncommitted changes" in said
        assert "slowed down on purpose by 0.05" in said


def test_without_a_gpu_the_processor_is_named() -> None:
    one = record(sample.CPU_CONTEXT)
    assert sentence(one).startswith("On AMD EPYC 7B13, 2 cores, a step")
    assert "no GPU, AMD EPYC 7B13, 2 cores" in bibtex(one)
    assert bibtex(one).startswith(f"@misc{{gpulift:cpu-amd-epyc-7b13/{one.id},")


def test_a_ceiling_is_cited_by_its_rates_and_a_duet_as_two_builds() -> None:
    ceiling = sample.record(
        "ceiling/memory", {"n": 1}, [sample.arm("read", 1e-3, cost={"bytes": 5e9, "items": 0.0})]
    )
    assert re.search(r"read .*\], [45]\.\d\d TB/s \(97", sentence(read_record(ceiling)))
    arms = [sample.arm("base:x", 1e-3), sample.arm("head:x", 1e-3)]
    duet = read_record(sample.record("ceiling/memory", {"n": 1}, arms, kind="duet", arm="x"))
    assert "a step of two builds of ceiling/memory" in sentence(duet)
    assert "one launch" in sentence(duet)


def test_a_training_step_is_cited_with_its_items_and_joules() -> None:
    cost = {"flops": 1e12, "items": 32.0, "item": "image", "roof": "gemm/bf16"}
    quiet = {"noise": 0.0, "launch_noise": 0.0, "cost": cost}
    arms = [
        sample.arm("eager", 0.1, **quiet, metrics={"joules_per_step": 64.0}),
        sample.arm("graph", 0.05, **quiet),
    ]
    said = sentence(read_record(sample.record("training/step", {"batch": 32}, arms)))
    eager, graph = said.split("; ")[:2]
    assert "320 images/s, 64.0 J a step, 2.00 J per image, in an untimed window, the" in eager
    assert "640 images/s, 2.0" in graph
    both = [read_record(sample.record("training/step", {"batch": 32}, arms, n)) for n in (0, 1)]
    assert "in an untimed window of launch 1 of 3, the" in sentence(both[0], launches=both)


def test_an_arm_that_was_skipped_is_named() -> None:
    arms = [*ARMS, sample.skipped_arm("registered", "no right to lock memory")]
    said = sentence(read_record(sample.record("transfer/pinned_copy", CASE, arms)))
    assert "; registered skipped (" in said


@pytest.mark.parametrize(
    ("words", "escaped"),
    [
        ("50 % & #1_a $x", r"50 \% \& \#1\_a \$x"),
        ("a\\b", r"a\textbackslash{}b"),
        ("~^", r"\textasciitilde{}\textasciicircum{}"),
        ("}{", r"\textbraceright{}\textbraceleft{}"),
        ("a\x1b\n\u202eb", r"a\textbackslash{}x1b\textbackslash{}n\textbackslash{}u202eb"),
    ],
)
def test_letters_that_bibtex_would_obey_are_escaped(words: str, escaped: str) -> None:
    assert bibtex_text(words) == escaped


def test_no_name_closes_a_field_or_reaches_the_terminal() -> None:
    nasty = "}}, author = {me}\n@misc{x, \x1b[31m\u202e"
    context = sample.gpu_context(gpu={"name": nasty}, driver=nasty)
    raw = sample.record("a/b", {"n": nasty}, [sample.arm(nasty, 1e-3)], context=context)
    raw["started_at"] = "}{\x1b["
    one = read_record(raw)
    assert sentence(one).isprintable()
    first, *fields, last = bibtex(one).splitlines()
    assert first == f"@misc{{{one.citation},"
    assert last == "}"
    assert [field.split(" = ")[0].strip() for field in fields] == [
        *("title", "author", "year", "version", "note")
    ]
    for field in fields:
        assert field.isprintable()
        assert _depths(field.partition(" = ")[2]) == (0, True)


def _depths(value: str) -> tuple[int, bool]:
    """What BibTeX counts: the depth at the end, and whether only the last brace closes."""
    depth, closed = 0, []
    for place, letter in enumerate(value):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth == 0 and letter == "}":
            closed.append(place)
    return depth, closed == [len(value) - 2]


@pytest.mark.parametrize("which", [0, 1])
def test_the_command_leads_with_all_launches_whichever_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], which: int
) -> None:
    quick = [sample.arm("pageable", 3e-4), sample.arm("pinned", 1e-4)]
    made = [
        sample.record("transfer/copy", CASE, arms, launch)
        for launch, arms in enumerate((ARMS, quick))
    ]
    sample.write(tmp_path, made)
    asked = [record_id(made[which])[:5], "--results", str(tmp_path)]
    assert cli.main(["show", "--bibtex", *asked]) == 0
    first, *entry = capfd.readouterr().out.split("\n\n")
    both = [read_record(raw) for raw in made]
    assert " took over 2 launches: pageable " in first
    pair = text.speedup(pair_of(both).speedup)
    assert pair in first
    assert f" (95 % intervals; {both[which].citation}; launch {which + 1} of" in first
    assert entry == [f"{bibtex(both[which])}\n"]  # and no line of runs, of which there is one
    assert cli.main(["show", *asked]) == 0
    assert re.search(rf"of 2 launches +\S+ .*, {re.escape(pair)} against", capfd.readouterr().out)


def test_one_launch_alone_is_no_figure_over_runs() -> None:
    one = read_record(sample.record("transfer/pinned_copy", CASE, ARMS))
    assert over_runs(one, [one]) == ""


def test_the_ratio_over_a_baseline_that_waits_for_the_host_is_not_cited() -> None:
    arms = [sample.arm("pageable", 1e-6, held=False), sample.arm("pinned", 5e-7, held=False)]
    one, other = (
        read_record(sample.record("fusion/norm", {"n": 1}, arms, launch)) for launch in (0, 1)
    )
    said = sentence(one)
    assert "bound by the host 1.00, the baseline" in said
    assert "its ratio withheld: bound by the host" in said
    assert over_runs(one, [one, other]) == ""


def pair_of(records: list[Record]) -> PairRatio:
    pair = pair_ratio(records, "pinned", "pageable")
    assert pair is not None
    return pair


def test_over_three_runs_the_model_is_cited_and_the_records_own_run_beside_it() -> None:
    runs = [
        replace(
            read_record(sample.record("transfer/pinned_copy", CASE, ARMS, launch, seed=number)),
            file=Path(f"run-{number}/x.jsonl"),
        )
        for number in range(3)
        for launch in range(2)
    ]
    said = over_runs(runs[2], runs)
    own = text.speedup(pair_of(runs[2:4]).speedup)
    assert said.endswith(f", 3 runs, 1 card, {UNTOLD_FILES} (this one run {own}).")
    ceiling = read_record(sample.record("ceiling/memory", {"n": 1}, ARMS))
    assert over_runs(ceiling, [ceiling]) == ""


@pytest.mark.parametrize(
    ("outcome", "words"), [("skipped", "a skipped"), ("failed", "a failed"), ("error", "an error")]
)
def test_a_record_without_a_result_is_not_cited(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], outcome: str, words: str
) -> None:
    raw = sample.unmeasured("a/b", {"n": 1}, outcome, "out of \x1b[31mmemory")
    sample.write(tmp_path, [raw])
    assert cli.main(["show", "--bibtex", record_id(raw), "--results", str(tmp_path)]) == USAGE
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"it is {words} record of a/b: out of \\x1b[31mmemory" in said.err
