"""What runs of both sides must have alike (`--same`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.gate.metrics import Finished
from gpulift.gate.same import MOST_BYTES, Outputs
from gpulift.ground.errors import NOT_COMPARABLE, USAGE, GpuliftError

LOSS = "stdout:loss: (.*)"


def ran(folder: Path, content: bytes | str, began_ns: int = 0) -> Finished:
    """A run that printed and wrote it."""
    folder.mkdir(exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    (folder / "out").write_bytes(data)
    printed = data.decode("utf-8", "replace")
    return Finished(1.0, printed, "", folder, folder / "unused", began_ns)


@pytest.mark.parametrize(
    ("first", "other", "tolerance", "said"),
    [
        ("loss: 1.5", "loss: 1.5", 0.0, ""),
        ("loss: 1.5", "loss: 1.50", 0.0, "has '{}1.50', the first run of the base '{}1.5' (line 1"),
        ("loss: 1.5", "loss: 1.50", 1e-9, ""),
        ("loss: -1e3", "loss: -1.001e3", 1e-2, ""),
        ("loss: 1.5", "loss: 1.6", 1e-2, "(line 1, beyond 0.01)"),
        ("loss: 1.5", "loss: nan", 0.5, "has '{}nan'"),
        ("loss: nan", "loss: nan", 0.0, ""),
        ("loss: inf", "loss: 1e300", 0.5, "has '{}1e300'"),
        ("loss: 1\nloss: 2", "loss: 1", 0.5, "has 1 lines, the first run of the base 2"),
        ("loss: 1 a", "loss: 1 b", 0.5, "has '{}1 b'"),
    ],
)
def test_numbers_are_within_the_tolerance_and_words_are_equal(
    tmp_path: Path, first: str, other: str, tolerance: float, said: str
) -> None:
    for source, shown in (("out", "loss: "), (LOSS, "")):
        outputs = Outputs((source,), tolerance)
        outputs.require_equal(ran(tmp_path / "base", first))
        if not said:
            outputs.require_equal(ran(tmp_path / "head", other))
            continue
        with pytest.raises(GpuliftError) as error:
            outputs.require_equal(ran(tmp_path / "head", other))
        assert str(error.value).startswith(f"not comparable: --same {source}: a run of the head ")
        assert said.replace("{}", shown) in str(error.value)
        assert error.value.exit_code == NOT_COMPARABLE


@pytest.mark.parametrize(
    ("source", "content", "began_ns", "said"),
    [
        ("none", "x", 0, "none: after the first run of the base: No such file"),
        ("out", "x", 2**62, "out: the first run of the base did not write it"),
        (LOSS, "x", 0, "stands nowhere in what the first run of the base prints"),
        ("out", b"x" * (MOST_BYTES + 1), 0, "has more than 64 MiB: name a digest of it"),
    ],
)
def test_what_is_not_there_is_said(
    tmp_path: Path, source: str, content: bytes | str, began_ns: int, said: str
) -> None:
    with pytest.raises(GpuliftError, match=said):
        Outputs((source,)).require_equal(ran(tmp_path / "base", content, began_ns))


def test_bytes_that_are_no_text_are_equal_or_not(tmp_path: Path) -> None:
    outputs = Outputs(("out",), 0.1)
    outputs.require_equal(ran(tmp_path / "base", b"\xff1"))
    outputs.require_equal(ran(tmp_path / "head", b"\xff1"))
    with pytest.raises(GpuliftError, match=r"a later run has other bytes .* allow for noise by"):
        outputs.require_equal(ran(tmp_path / "base", b"\xff2"))
    assert [one.source for one in outputs.equal] == ["out"]


@pytest.mark.parametrize(
    ("source", "tolerance", "said"),
    [("stdout:(", 0.0, "--same 'stdout:('"), ("out", 1.0, "--tolerance 1: a fraction")],
)
def test_what_cannot_be_asked_for(source: str, tolerance: float, said: str) -> None:
    with pytest.raises(GpuliftError) as error:
        Outputs((source,), tolerance)
    assert said in str(error.value)
    assert error.value.exit_code == USAGE
