"""What a run of a command says in numbers, and what is said of one that says none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.gate.metrics import Finished, Metric, NoNumberError, Reading, read_all
from gpulift.ground.errors import GpuliftError

HUGE = "1" + "0" * 400  # no float


def ended(folder: Path, printed: str = "", began_ns: int = 0, errors: str = "") -> Finished:
    return Finished(2.5, printed, errors, folder, folder / "out", began_ns)


def test_the_wall_time_is_a_metric(tmp_path: Path) -> None:
    assert Metric("wall").read(ended(tmp_path)) == Reading(2.5, "s")


@pytest.mark.parametrize(
    ("source", "name", "reading"),
    [
        (r"stdout:step: ([0-9.]+)", "step", Reading(12.5)),
        (r"stdout:step: (?P<step_ms>[0-9.]+) (?P<unit>\w+)", "step_ms", Reading(12.5, "ms")),
        (r"stdout:step: [0-9.]+ (?P<unit>\w+) or ([0-9]+)", "step_0_9", Reading(80.0, "ms")),
        (r"stdout:^([0-9]+) it/s$", "stdout", Reading(80.0)),
    ],
)
def test_a_number_that_is_printed(tmp_path: Path, source: str, name: str, reading: Reading) -> None:
    metric = Metric(source)
    assert metric.name == name
    assert metric.read(ended(tmp_path, "step: 12.5 ms or 80\n80 it/s\n")) == reading


@pytest.mark.parametrize(
    ("path", "reading"),
    [("a.b", 3.0), ("runs[1].loss", 0.5), ("times", 2.0), ("c", 7.0)],
)
def test_a_number_in_a_file(tmp_path: Path, path: str, reading: float) -> None:
    text = '{"a": {"b": 3}, "runs": [{}, {"loss": 0.5}], "times": [1, 2, 90], "c": 7}'
    (tmp_path / "o.json").write_text(text, "utf-8")
    metric = Metric(f"o.json:{path}", higher=True)
    assert metric.name == path
    assert metric.read(ended(tmp_path)) == Reading(reading, higher=True)


@pytest.mark.parametrize(("printed", "number"), [("done", 2.0), ("step: 1", 1.0)])
def test_a_number_that_is_not_printed_is_looked_for_on_stderr(
    tmp_path: Path, printed: str, number: float
) -> None:
    run = ended(tmp_path, printed, errors="INFO step: 2")
    assert Metric(r"stdout:step: (\d+)").read(run).value == number


@pytest.mark.parametrize(
    ("source", "printed", "said"),
    [
        (r"stdout:step: ([0-9.]+)", "nothing", "stands nowhere in what it prints"),
        (r"stdout:([0-9.]+)", "1.5 and 2.5", "stands 2 times, as '1.5', '2.5'"),
        (r"stdout:loss (\S+)", "loss good", "'loss good' holds no number"),
        ("o.json:a", "", "a: o.json: No such file or directory"),
        ("old.json:a", "", "the run did not write old.json"),
        ("text.json:a", "", "text.json is no JSON"),
        ("deep.json:a", "", "deep.json is no JSON"),
        ("new.json:b", "", "the file has no b"),
        ("new.json:a[0]", "", "the file has no a[0]"),
        ("new.json:t", "", '"soon" is no number'),
        ("new.json:yes", "", "true is no number"),
        ("new.json:none", "", "[] is no number"),
        ("new.json:bare", "", "[1, NaN] is no number"),
        ("new.json:huge", "", "0 is no number"),
    ],
)
def test_a_run_without_its_number_says_why(
    tmp_path: Path, source: str, printed: str, said: str
) -> None:
    for name, text in (
        ("old", '{"a": 1}'),
        ("text", "{"),
        ("deep", "[" * 100_000),
        (
            "new",
            f'{{"a": 1, "t": "soon", "yes": true, "none": [], "bare": [1, NaN], "huge": {HUGE}}}',
        ),
    ):
        (tmp_path / f"{name}.json").write_text(text, "utf-8")
    began_ns = (tmp_path / "new.json").stat().st_mtime_ns if source.startswith("old") else 0
    with pytest.raises(NoNumberError) as error:
        Metric(source).read(ended(tmp_path, printed, began_ns + bool(began_ns)))
    assert said in str(error.value)


@pytest.mark.parametrize(
    "source", ["", "nothing", "o.json:", "o.json:a..b", "stdout:x", "stdout:(a)(b)", "stdout:("]
)
def test_a_metric_that_cannot_be_is_refused(source: str) -> None:
    with pytest.raises(GpuliftError, match="--metric"):
        Metric(source)


def test_all_numbers_of_a_run(tmp_path: Path) -> None:
    read = read_all((Metric("wall"), Metric("stdout:loss (.+)")), ended(tmp_path, "loss 0.25"))
    assert {name: one.value for name, one in read.items()} == {"wall": 2.5, "loss": 0.25}
