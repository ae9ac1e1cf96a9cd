"""`gpulift claims` over folders of results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.analysis.ledger import read_ledger, read_statements
from gpulift.ground.errors import OK, USAGE
from tests import sample
from tests.conftest import CHECKOUT

pytestmark = pytest.mark.world

H200 = "nvidia-h200"
H100 = {**sample.GPU_CONTEXT, "gpu": {**sample.GPU_CONTEXT["gpu"], "name": "NVIDIA H100"}}
SHOWN = pytest.CaptureFixture[str]


def pinned_copies(results: Path, pinned_s: float = 1e-3, **changes: Any) -> None:
    """A run on an H200 in which pageable copies take 2 ms."""
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", pinned_s)]
    case = {"direction": "h2d", "bytes": 65536}
    made = sample.launches(3, "transfer/pinned_copy", case, arms, **changes)
    sample.write(results / H200 / "2026-11-21-abc1234", made)


def as_json(capfd: SHOWN, *arguments: str) -> dict[str, dict[str, Any]]:
    assert cli.main(["claims", "--json", *arguments]) == OK
    return {one["id"]: one for one in json.loads(capfd.readouterr().out)}


def test_without_records_every_testable_claim_is_not_yet_measured(root: Path, capfd: SHOWN) -> None:
    judged = as_json(capfd)
    assert [*judged] == [claim.id for claim in read_ledger()]
    for claim in read_ledger():
        one = judged[claim.id]
        wanted = "not yet measured" if claim.test else "not testable here"
        wanted = "confirmed by documentation" if claim.confirmed_by else wanted
        wanted = "refuted by documentation" if claim.refuted_by else wanted
        assert one["in_part"] == claim.in_part
        assert (one["model"], one["verdict"]) == ("", wanted)
        assert bool(one["command"]) == (wanted == "not yet measured")
    assert cli.main(["claims"]) == OK
    shown = capfd.readouterr().out
    assert "There are no records yet" in shown
    assert "./gpulift run transfer/pinned_copy" in " ".join(shown.split())


def test_a_verdict_comes_with_gain_launches_and_record_ids(root: Path, capfd: SHOWN) -> None:
    pinned_copies(root / "results")
    one = as_json(capfd)["pinned-copy-faster"]
    assert (one["model"], one["verdict"]) == (H200, "confirmed")
    (said,) = one["articles"]
    assert said["quote"] == "可以加快從 CPU 內存到 GPU 內存的數據傳輸速度"
    assert said["says"] == one["statement"] == "Pinned memory speeds up copies to the GPU."
    (case,) = one["cases"]
    assert case["case"] == "direction:h2d/bytes:65536"
    assert case["low"] < case["gain"] < case["high"]
    assert case["gain"] == pytest.approx(2, rel=0.01)
    assert (case["launches"], case["commits"], case["place"]) == (3, ["abc1234"], "inside")
    assert (case["runs"], case["basis"]) == (1, "one run")
    assert len(set(case["records"])) == 3
    assert all(found.startswith(f"gpulift:{H200}/") for found in case["records"])
    assert case["cards"] == ["1a2b3c4d"]
    assert case["grade"]["marks"] == "●●○"
    assert case["grade"]["words"].startswith("3 launches, one run, one card; ")


def test_what_one_launch_says_is_shown_and_decides_nothing(root: Path, capfd: SHOWN) -> None:
    case = {"direction": "h2d", "bytes": 65536}
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", 1e-3)]
    made = sample.launches(1, "transfer/pinned_copy", case, arms)
    sample.write(root / "results" / H200 / "2026-11-21-abc1234", made)
    one = as_json(capfd)["pinned-copy-faster"]
    assert (one["verdict"], one["cases"], one["range"]) == ("not decided", [], None)
    (barred,) = one["barred"]
    assert (barred["why"], barred["place"]) == ("one launch", "inside")
    assert barred["gain"] == barred["low"] == barred["high"] == pytest.approx(2, rel=0.01)
    assert barred["grade"]["marks"] == "●○○"
    assert len(barred["records"]) == 1
    rows = "^transfer/pinned_copy/direction:h2d/bytes:65536/(pageable|pinned)$"
    assert one["command"] == f"./gpulift run '{rows}' --launches 3"


def test_a_claim_of_one_run_stands_below_one_of_three(root: Path, capfd: SHOWN) -> None:
    results = root / "results"
    pinned_copies(results)
    arms = [sample.arm("glibc", 2e-3), sample.arm("jemalloc", 1.999e-3)]
    for number in range(3):
        made = sample.launches(3, "allocator/host_malloc", {"n": 1}, arms, seed=number)
        sample.write(results / H200 / f"2026-11-21-abc1234-{number + 2}", made)
    judged = as_json(capfd)
    three = [one for one in judged.values() if one["cases"] and one["cases"][0]["runs"] == 3]
    assert three
    assert {case["basis"] for one in three for case in one["cases"]} == {"3 runs, 1 card"}
    assert cli.main(["claims"]) == OK
    shown = " ".join(capfd.readouterr().out.split())
    assert shown.index("3 runs") < shown.index("one run,")


@pytest.fixture
def two_models(root: Path) -> Path:
    """Results of an H200 that confirms a claim in one of two cases, and of an H100 that refutes it;
    the build was dirty, and a reason looks like markup."""
    context = json.loads(json.dumps(sample.GPU_CONTEXT))
    context["build"]["dirty"] = True
    pinned_copies(root / "results", context=context)
    pairs = ((sample.GPU_CONTEXT, H200, 4096, 2e-3), (H100, "nvidia-h100", 65536, 4e-3))
    for context, model, size, pinned_s in pairs:
        arms = [sample.arm("pageable", 1e-3), sample.arm("pinned", pinned_s)]
        case = {"direction": "h2d", "bytes": size}
        made = sample.launches(3, "transfer/pinned_copy", case, arms, context=context)
        skipped = sample.unmeasured("allocator/host_malloc", {"n": 1}, "skipped", "[red]gone[/red]")
        sample.write(root / "results" / model / "2026-11-22-abc1234", [*made, skipped])
    return root


OF_CLAIMS = ("pinned", "Pinned", "claim ", "Which published", "--all")
SHOWN_OF = (*OF_CLAIMS, "[red]gone", "it says ", "statements;")


@pytest.mark.usefixtures("two_models")
def test_tables_have_what_was_decided_first_and_each_article_what_holds(
    capfd: SHOWN, kept: Callable[[str], None]
) -> None:
    told = []
    for options in (("--wide",), ("--wide", "--all"), ("--wide", "--articles")):
        assert cli.main(["claims", *options]) == OK
        lines = capfd.readouterr().out.splitlines()
        told += [f"$ gpulift claims {' '.join(options)}"]
        told += [line.rstrip() for line in lines if any(word in line for word in SHOWN_OF)]
    kept("\n".join([*told, ""]))


@pytest.mark.usefixtures("two_models")
def test_a_model_without_records_or_of_two_names_is_refused_as_it_was_typed(
    transcript: Callable[..., None],
) -> None:
    names = ("NVIDIA B200", "cpu", "h20", "nvidia")
    transcript(*(f"claims --json --gpu '{name}'" for name in names))


ERRATUM = f"""
[[errata]]
number = 1
short = "copies were counted twice"
runs = ["{H200}/2026-11-21-abc*"]
records = "some"
wrong = "what"
later = "mended"
"""


def test_known_errors_of_its_records_are_said(root: Path, capfd: SHOWN) -> None:
    pinned_copies(root / "results")
    assert as_json(capfd)["pinned-copy-faster"]["errata"] == []
    (root / "results" / "errata.toml").write_text(ERRATUM, encoding="utf-8")
    said = "known error: copies were counted twice"
    assert as_json(capfd)["pinned-copy-faster"]["errata"] == [said]
    assert cli.main(["claims", "--wide"]) == OK
    assert said in " ".join(capfd.readouterr().out.split())


def test_what_was_measured_with_all_cards_busy_decides_no_claim(root: Path, capfd: SHOWN) -> None:
    pinned_copies(root / "results")
    sample.mark_crowded(root / "results" / H200 / "2026-11-21-abc1234")
    one = as_json(capfd)["pinned-copy-faster"]
    assert (one["model"], one["verdict"]) == ("", "not yet measured")


def test_every_model_has_its_own_verdicts(root: Path, capfd: SHOWN) -> None:
    results = root / "results"
    pinned_copies(results)
    case = {"direction": "h2d", "bytes": 65536}
    skipped = sample.unmeasured(
        "transfer/pinned_copy", case, "skipped", "no driver", context=sample.CPU_CONTEXT
    )
    sample.write(results / "cpu-amd-epyc-7b13" / "2026-11-21-abc1234", [skipped])
    assert cli.main(["claims", "--json"]) == OK
    found = [one for one in json.loads(capfd.readouterr().out) if one["id"] == "pinned-copy-faster"]
    assert [(one["model"], one["verdict"], one["reason"]) for one in found][1:] == [
        ("cpu-amd-epyc-7b13", "not testable here", "no driver")
    ]
    for named, model in (("NVIDIA H200", H200), ("cpu-amd-epyc-7b13", "cpu-amd-epyc-7b13")):
        chosen = as_json(capfd, "--gpu", named)
        assert {one["model"] for one in chosen.values()} == {model}


@pytest.mark.parametrize("name", ["NVIDIA H200", "nvidia-h200", "h200"])
def test_a_part_of_a_name_names_a_model(root: Path, capfd: SHOWN, name: str) -> None:
    pinned_copies(root / "results")
    assert cli.main(["claims", "--json", "--gpu", name]) == OK
    said = capfd.readouterr()
    assert "no records" not in said.err
    assert {one["model"] for one in json.loads(said.out)} == {"nvidia-h200"}


def test_another_folder_of_results(root: Path, tmp_path: Path, capfd: SHOWN) -> None:
    pinned_copies(tmp_path / "others", pinned_s=3e-3)
    one = as_json(capfd, str(tmp_path / "others"))["pinned-copy-faster"]
    assert one["verdict"] == "not confirmed"
    assert cli.main(["claims", str(tmp_path / "none")]) == USAGE
    assert "there is no such folder" in capfd.readouterr().err


def test_a_record_that_cannot_be_read_is_named(root: Path, capfd: SHOWN) -> None:
    folder = root / "results" / H200 / "2026-11-21-abc1234"
    folder.mkdir(parents=True)
    (folder / "transfer.pinned_copy.jsonl").write_text('{"schema": "1.1"}\n', encoding="utf-8")
    assert cli.main(["claims"]) == USAGE
    assert "transfer.pinned_copy.jsonl:1: " in capfd.readouterr().err


def test_committed_records_decide_claims(root: Path, capfd: SHOWN) -> None:
    """Not what they decide: that is computed, and may change with new records."""
    judged = as_json(capfd, str(CHECKOUT / "results"), "--gpu", H200)
    decided = [one for one in judged.values() if one["cases"]]
    assert len(decided) >= 8
    about_controls = {"half-precision-8x", "checkpointing-saves-60-percent"}
    assert about_controls <= {one["id"] for one in decided}
    for one in decided:
        assert one["verdict"] not in ("not yet measured", "not testable here")
        assert all(case["launches"] >= 2 for case in one["cases"])


# --- Article by article ---


def by_article(capfd: SHOWN, *arguments: str) -> dict[str, dict[str, Any]]:
    return as_json(capfd, "--articles", *arguments)


def test_each_statement_of_the_articles_is_there_with_its_verdicts(
    root: Path, capfd: SHOWN
) -> None:
    pinned_copies(root / "results")
    found = by_article(capfd)
    assert [*found] == [*read_statements()]
    one = found["neptune-28"]
    assert (one["kind"], one["source"]["author"]) == ("advice", "neptune.ai")
    (claim,) = one["claims"]
    assert (claim["id"], claim["model"]) == ("pinned-copy-faster", H200)
    assert claim["verdict"] == "confirmed"
    assert claim["range"] == pytest.approx([2, 2], rel=0.01)
    assert [one["claims"] for one in found.values() if not one["untested"]].count([]) == 0
