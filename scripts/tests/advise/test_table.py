"""The answer on the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gpulift.advise.advice import Advice, Row, Span
from gpulift.advise.judge import advise
from gpulift.advise.table import print_advice

MIB = 1 << 20
ROWS = (
    Row("input", "input: a fast loader", "upper bound", Span(1.45, 1.43, 1.47), 0.1024),
    Row(
        *("workers_8", "num_workers 4 -> 8", "helps", Span(1.23, 1.2, 1.25), 0.121),
        *("same bits", None, 1900 * MIB),
    ),
    Row("compile", "torch.compile", "already on", Span(1.31, 1.29, 1.33), result="same step"),
    Row(
        *("fused", "fused AdamW", "no change", Span(1.0, 0.994, 1.006), 0.1481, "same step"),
        least=0.006,
    ),
    Row(
        *("batch_2x", "batch [32] -> 64", "other work", Span(1.1, 1.0, 1.2), 0.3, "other work"),
        why="per item",
    ),
    Row("bf16", "BF16", "undecided", Span(1.1, None, None), 0.00012, "same step", -300 * MIB),
    Row("tf32", "TF32", "failed", why="no kernel\x1b[2J"),
    Row("vary_1", "--x", "not set", why="swallowed"),
    Row("cudnn_search", "cuDNN", "not applicable", why="no convolution ran"),
)


def advice(rows: tuple[Row, ...] = ROWS, do: tuple[str, ...] = ("workers",)) -> Advice:
    return Advice(
        device="NVIDIA H200",
        torch="2.11.0",
        launches=4,
        steps=812,
        step_s=Span(0.1483, 0.1479, 0.1488),
        cached_s=Span(0.1024, 0.102, 0.103),
        wait_share=Span(0.31, 0.29, 0.33),
        bound="input takes 31 % [29, 33] of the step",
        probe_share=0.002,
        rows=rows,
        together=Row("together", "all", "helps", Span(1.51, 1.49, 1.54), 0.0979, "same course"),
        do=do,
        not_tried=("cuDNN: no convolution ran",),
        notes=("the script is not deterministic",),
    )


def shown(made: Advice, width: int = 200) -> list[str]:
    file = io.StringIO()
    print_advice(made, Console(file=file, width=width, highlight=False))
    return file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("change", "cells"),
    [
        ("input", ["102.4 ms", "upper bound: 1.45× [1.43, 1.47]"]),
        ("num_workers", ["121.0 ms", "helps: 1.23× [1.20, 1.25]", "same bits", "+1.86 GiB host"]),
        ("torch.compile", ["already on; worth 1.31× [1.29, 1.33]"]),
        ("fused", ["no change: 1.000× [0.994, 1.006], below 0.6 % not seen"]),
        ("batch [32]", ["300.0 ms", "1.10× [1.00, 1.20] per item", "other work"]),
        ("BF16", ["120.0 µs", "undecided: 1.10×", "-300 MiB"]),
        ("all", ["97.90 ms", "helps: 1.51× [1.49, 1.54]", "same course"]),
    ],
)
def test_a_row_for_each_change_with_a_gain(change: str, cells: list[str]) -> None:
    (line,) = (line for line in shown(advice()) if line.startswith(change))
    for cell in cells:
        assert cell in line


def test_what_stands_around_the_table() -> None:
    lines = shown(advice())
    assert lines[0] == (
        "NVIDIA H200, torch 2.11.0, 812 steps, 4 launches (gain: more than 1 is faster)"
    )
    assert lines[-6:] == [
        "step 148.3 ms [147.9, 148.8]; 102.4 ms [102.0, 103.0] where its batch is there;"
        " input takes 31 % [29, 33] of the step; the probe takes 0.2 % of it",
        r"failed: TF32: no kernel\x1b[2J",
        "not set: --x: swallowed",
        "note: the script is not deterministic",
        "not tried: cuDNN: no convolution ran",
        "do: workers",
    ]


def test_it_fits_on_a_screen() -> None:
    lines = shown(advice(), width=80)
    assert len(lines) < 30
    assert lines[1].split() == ["change", "step", "gain", "result", "memory"]


def test_nothing_helps() -> None:
    undecided = "undecided: BF16: more --launches may tell"
    assert shown(advice(do=()))[-1] == f"do: nothing is shown to help; {undecided}"
    decided = tuple(row for row in ROWS if row.verdict != "undecided")
    assert shown(advice(decided, do=()))[-1] == "do: nothing that was tried helps"


def test_nothing_was_measured() -> None:
    assert shown(advise((), (), (), ())) == ["no step was measured"]
