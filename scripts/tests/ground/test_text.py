"""Labels of cases with their units; what is wrong with JSON and TOML, in whole sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import case_label, counted, json_problem
from gpulift.ground.toml import parsed


@pytest.mark.parametrize(
    ("case_id", "label", "brief"),
    [
        ("direction:h2d/bytes:65536", "direction h2d, 64 KiB", "h2d, 64 KiB"),
        ("bytes:1000", "1000 B", "1000 B"),
        ("mebibytes:40", "40 MiB", "40 MiB"),
        ("kilobytes:760/threads:one", "760 kB, threads one", "760 kB, one"),
        ("kibibytes:4", "4 KiB", "4 KiB"),
        ("piece_bytes:4096/pieces:16", "piece 4 KiB, pieces 16", "piece 4 KiB, pieces 16"),
        ("working_set_mib:24", "working_set 24 MiB", "working_set 24 MiB"),
        ("kernel_us:1234567", "kernel 1234567 µs", "kernel 1234567 µs"),
        ("bytes:all", "bytes all", "all"),
        ("bus:2", "bus 2", "bus 2"),
        ("", "", ""),
    ],
)
def test_the_axes_of_a_case_have_their_units(case_id: str, label: str, brief: str) -> None:
    assert case_label(case_id) == label
    assert case_label(case_id, short=True) == brief


def test_one_thing_has_no_plural() -> None:
    counts = [counted(1, "case"), counted(0, "case"), counted(2, "process", "processes")]
    assert counts == ["1 case", "0 cases", "2 processes"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"a\tb"', "Invalid control character"),
        ('"a', "Unterminated string"),
        ('{"a" 1}', "Expecting ':' delimiter"),
        ("[1] 2", "Extra data"),
    ],
)
def test_what_is_wrong_with_json_does_not_end_in_the_middle(text: str, said: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(text)
    assert json_problem(caught.value) == said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = 1 2", "x.toml: not TOML: Expected newline or end of document after a statement"),
        (b"a = 1\nb = '\xff'", "x.toml: not TOML: byte 11 is not UTF-8"),
        (b"a = " + b"[" * 3000 + b"]" * 3000, "x.toml: not TOML: it is nested too deeply"),
    ],
)
def test_what_is_wrong_with_toml_has_its_place(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(GpuliftError) as caught:
        parsed(tmp_path / "x.toml")
    assert str(caught.value).startswith(said)
