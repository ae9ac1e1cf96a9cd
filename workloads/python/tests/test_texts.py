"""Of texts: which files they are made of, which rows are drawn, and what a table has of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import texts  # noqa: E402
from gpulift_worker import Skip  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(name="library")
def twenty_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each of one letter; the tenth and the last are held out."""
    monkeypatch.setattr(texts, "LEAST_BYTES", 100)
    for number in range(20):
        (tmp_path / f"{number:02}.py").write_text(chr(ord("a") + number) * 10)
    return tmp_path


def test_whole_files_are_held_out(library: Path) -> None:
    text = texts.sources_of_python(CPU, library)
    assert bytes(text.held_out.tolist()) == b"j" * 10 + b"\0" + b"t" * 10 + b"\0"
    letters = set(bytes(text.training.tolist()).decode()) - {"\0"}
    assert letters == set("abcdefghiklmnopqrs")


def test_it_says_which_text_it_is(library: Path) -> None:
    first = texts.sources_of_python(CPU, library).notes
    assert first == texts.sources_of_python(CPU, library).notes
    assert first["text_bytes"] == str(20 * 11)
    (library / "00.py").write_text("A" * 10)
    assert texts.sources_of_python(CPU, library).notes["text_sha256"] != first["text_sha256"]


@pytest.mark.parametrize(
    "name",
    ["test/a.py", "site-packages/b/c.py", "json/tests/d.py", "_sysconfigdata__linux.py", "e.txt"],
)
def test_what_is_no_source_of_the_library_is_left_out(library: Path, name: str) -> None:
    expected = texts.sources_of_python(CPU, library).notes
    (library / name).parent.mkdir(parents=True, exist_ok=True)
    (library / name).write_text("x" * 50)
    assert texts.sources_of_python(CPU, library).notes == expected


def test_a_python_without_sources_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    with pytest.raises(Skip, match="have 2 bytes here, too few") as skipped:
        texts.sources_of_python(CPU, tmp_path)
    assert "whole library" in skipped.value.remedy


def test_rows_are_windows_that_a_seed_draws() -> None:
    text = texts.Text(torch.arange(200, dtype=torch.uint8), torch.zeros(9, dtype=torch.uint8), {})

    def draw(seed: int) -> Any:
        return text.draw(64, 150, torch.Generator().manual_seed(seed))

    rows = draw(7)
    assert rows.dtype == torch.int64
    assert bool((rows.diff(dim=1) == 1).all())
    assert {0, 50} <= set(rows[:, 0].tolist()) <= set(range(51))  # from the first to the last place
    assert torch.equal(rows, draw(7))
    assert not torch.equal(rows, draw(8))


def test_rows_to_judge_by_reach_from_the_beginning_to_the_end() -> None:
    text = texts.Text(torch.zeros(9, dtype=torch.uint8), torch.arange(101, dtype=torch.uint8), {})
    rows = text.held_out_rows(5, 21)
    assert rows[:, 0].tolist() == [0, 20, 40, 60, 80]
    assert rows[-1, -1] == 100


def test_a_table_of_bytes_knows_how_often_each_comes() -> None:
    training = torch.tensor([65] * 3_000_000 + [66] * 1_000_000, dtype=torch.uint8)
    held_out = torch.tensor([65, 65, 66, 66], dtype=torch.uint8)
    expected = -(math.log(0.75) + math.log(0.25)) / 2
    assert texts.Text(training, held_out, {}).single_byte_loss() == pytest.approx(
        expected, abs=1e-3
    )
