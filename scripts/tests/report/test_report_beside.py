"""The main facts of several GPU models stand above all else, and what they lack is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift import cli
from gpulift.analysis.analyse import Beside, analyse
from gpulift.analysis.cost import Prices
from gpulift.analysis.summary import Summary
from gpulift.commands.report import _as_beside
from gpulift.ground.errors import OK, USAGE
from tests import runs_made, sample
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
    rows = ("GPT-2, a training step", "GPT-2, a million tokens", ">memory<")
    places = [table.index(row) for row in rows]
    assert places == sorted(places)
    assert "bound by device" in table
    assert "one run, " not in table
    twin = (tmp_path / "report.md").read_text("utf-8")
    assert twin.index("## NVIDIA H200 or NVIDIA H100") < twin.index("## The answer")
    assert "| memory (device_memory) | 4.60 [4." in twin
    assert "USD are those of the prices that were given." in twin


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
    assert capfd.readouterr().out.strip() == str(page)
    assert '<h2 id="beside">NVIDIA H100 80GB HBM3 or NVIDIA H200?' in page.read_text("utf-8")


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
