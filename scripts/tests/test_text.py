"""Messages of JSON and TOML that cannot be read: whole sentences, with the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift.errors import GpuliftError
from gpulift.text import json_problem
from gpulift.toml import parsed


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
    ],
)
def test_what_is_wrong_with_toml_has_its_place(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(GpuliftError) as caught:
        parsed(tmp_path / "x.toml")
    assert str(caught.value).startswith(said)
