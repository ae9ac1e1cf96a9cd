"""The main facts of several GPU models stand above all else, and what they lack is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.analyse import Beside, analyse
from gpulift.analysis.cost import Prices
from gpulift.analysis.errata import TEXTS
from gpulift.analysis.summary import Summary
from gpulift.commands.report import _as_beside
from gpulift.ground.errors import OK, USAGE
from tests import runs_made, sample
from tests.analysis.test_ladder import LLAMA, rung
from tests.analysis.test_side_by_side import H100, gpu, memory, step
from tests.figures import summary, undrawn

pytestmark = pytest.mark.world


def two(*, steps: bool = True) -> list[Summary]:
    """Models, without a GPU one that comes before them."""
    host = summary(runs_made.without_gpu(), "host")
    models = []
    for name, rate, seconds in (("NVIDIA H200", 4.6e12, 0.04), (H100, 3.3e12, 0.05)):
        made = [*memory(gpu(name), rate), *(step(gpu(name), seconds) if steps else [])]
        models.append(summary(made, name[-4:]))
    return [host, *models]


def test_the_main_facts_of_models_are_above_all_else(tmp_path: Path) -> None:
    made = analyse(two(), Beside(prices=Prices(3.6)))
    html = undrawn(made, tmp_path)
    assert html.index("<h2") == html.index('<h2 id="beside">NVIDIA H200 or NVIDIA H100')
    assert html.index('<h2 id="beside"') < html.index('<h2 id="answer"')
    table = html[html.index('id="beside-t"') :].partition("</table>")[0]
    rows = ("GPT-2, a training step", "GPT-2, a billion tokens", ">memory<")
    places = [table.index(row) for row in rows]
    assert places == sorted(places)
    assert "bound by device" in table
    assert "one run, " not in table
    answer = (tmp_path / "report.md").read_text("utf-8")
    assert answer.index("## NVIDIA H200 or NVIDIA H100") < answer.index("## The answer")
    assert "| memory (device_memory) | 4.60 [4." in answer
    assert "USD are those of the prices that were given." in answer


def test_ladders_of_a_model_stand_side_by_side_below_them(tmp_path: Path) -> None:
    def ladder(name: str, seconds: dict[str, float]) -> Summary:
        arms = [rung(setting, time) for setting, time in seconds.items()]
        top = sample.launches(3, "job/step", LLAMA, arms, context=gpu(name))
        return summary([*memory(gpu(name), 4e12), *top], name[-4:])

    both = [
        ladder("NVIDIA H200", {"bf16": 0.2, "compiled": 0.16}),
        ladder(H100, {"bf16": 0.25, "compiled": 0.2, "fp8": 0.125}),
    ]
    made = analyse(both, Beside(prices=Prices(3.6)))
    html = undrawn(made, tmp_path)
    assert html.index('id="climbed-0"') < html.index('<h2 id="ladder">')
    answer = (tmp_path / "report.md").read_text("utf-8")
    rows = re.findall(r"^\| (?:bf16|compiled|fp8) \|.*", answer, re.MULTILINE)[:3]
    found = {
        row.split(" | ")[0]: re.findall(r"not measured|\d+ \[|\d\.\d+× ●●○", row) for row in rows
    }
    assert next(one for one in found["| bf16"] if one.endswith("[")) == "40000 ["
    assert "not measured" in found["| fp8"]
    assert any("1.25" in one for one in found["| compiled"])
    assert all("USD a billion tokens" in row for row in rows)


def test_gpus_stand_before_machines_without_one(tmp_path: Path) -> None:
    html = undrawn(analyse(two(), Beside()))
    answer = html[html.index('id="answer"') :]
    heads = [answer.index(f"<h3>{name}") for name in ("NVIDIA H200", H100, "AMD EPYC")]
    assert heads == sorted(heads)


def test_what_the_main_facts_lack_is_said_with_what_gives_it() -> None:
    assert "Add --usd-per-hour MODEL=PRICE" in undrawn(analyse(two(), Beside()))
    html = undrawn(analyse(two(steps=False), Beside()))
    assert (
        "No training step of a language model was measured as the same work on two of them" in html
    )
    assert "usd-per-hour" not in html


def test_one_model_is_held_against_none() -> None:
    assert 'id="beside"' not in undrawn(analyse(two()[:2], Beside()))


@pytest.fixture
def models(root: Path) -> Path:
    """A checkout with records of two GPU models."""
    for folder, name in (("nvidia-h200", "NVIDIA H200"), ("nvidia-h100-80gb-hbm3", H100)):
        sample.write(root / "results" / folder / "2026-11-21-abc1234", step(gpu(name), 0.04))
    return root


def test_models_are_reported_by_their_names(
    models: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "--models", "h100", "H200"]) == OK
    page = models / "results" / "report" / "index.html"
    assert capfd.readouterr().out.splitlines()[-1] == str(page)
    assert '<h2 id="beside">NVIDIA H100 80GB HBM3 or NVIDIA H200?' in page.read_text("utf-8")


def test_the_terminal_ends_with_what_brings_most_and_the_page(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arms = [sample.arm("old", 2e-3), sample.arm("new", 1e-3)]
    made = [
        *sample.launches(3, "a/step", {"model": "gpt2"}, arms),
        *sample.launches(3, "b/wrong", {"model": "gpt2"}, arms),
        *sample.launches(3, "c/block", {"n": 1}, arms),
    ]
    sample.write(root / "results" / "nvidia-h200" / "2026-11-21-abc1234", made)
    cells = "".join(f'{key} = "x"\n' for key in TEXTS)
    errata = f'[[errata]]\nnumber = 1\n{cells}runs = ["*"]\nleads = false\ntechniques = "wrong"\n'
    (root / "results" / "errata.toml").write_text(errata, "utf-8")
    assert cli.main(["report", str(root / "results" / "nvidia-h200")]) == OK
    told, path = capfd.readouterr().out.splitlines()
    assert told == "nvidia-h200: 2.00× ●●○ a/step, new over old, GPT-2"
    assert Path(path).is_file()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["h100"], "--models needs two GPU models or more"),
        (["h200", "nvidia-h200"], "--models needs two GPU models or more"),
        ([], "--models needs two GPU models or more"),
        (["h200", "b200"], "--models: there are no records of b200; known are nvidia-h"),
    ],
)
def test_models_that_cannot_be_held_side_by_side_are_refused(
    models: Path, names: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "--models", *names]) == USAGE
    assert said in capfd.readouterr().err


def test_a_run_of_the_checkout_has_one_name_however_it_is_asked_for(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = models / "results"
    monkeypatch.chdir(results)
    assert _as_beside(Path("nvidia-h200")) == results / "nvidia-h200"
    assert _as_beside(Path("../results")) == results
    assert _as_beside(Path("../elsewhere")) == Path("../elsewhere")
