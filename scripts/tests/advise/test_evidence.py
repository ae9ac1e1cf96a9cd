"""What is read of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.advise.evidence import Process, read_process
from gpulift.ground.errors import GpuliftError

HELLO = '{"say": "hello", "torch": "2.11.0", "device": "cpu", "cores": 2, "world": 1}\n'


def read(tmp_path: Path, content: str) -> Process:
    file = tmp_path / "said.jsonl"
    file.write_text(content, encoding="utf-8")
    return read_process("as it is", 3, file)


def window(block: int, place: int, arm: str = "as it is") -> str:
    return (
        f'{{"say": "window", "arm": "{arm}", "block": {block}, "place": {place}, "steps": 8,'
        ' "seconds": 1.5, "issued_s": 1, "peak_bytes": 0}\n'
    )


def test_messages_by_their_kinds(tmp_path: Path) -> None:
    content = (
        f"{HELLO}\n"
        '{"say": "arm", "arm": "fused", "label": "fused", "state": "tried", "keeps": "step"}\n'
        '{"say": "arm", "arm": "fused", "label": "fused", "state": "failed", "why": "OOM"}\n'
        '{"say": "live", "steps_s": [1, 2], "waits_s": [0, 0]}\n'
        '{"say": "live", "steps_s": [3]}\n'
        '{"say": "course", "losses": [NaN, 1.5]}\n'
        '{"say": "course", "losses": [2]}\n'
        '{"say": "end", "steps": 8}\n'
    )
    process = read(tmp_path, content)
    assert (process.setting, process.turn) == ("as it is", 3)
    assert process.hello is not None
    assert process.hello.torch == "2.11.0"
    assert not process.on_gpu
    assert process.arms["fused"].why == "OOM"  # the later of two
    assert process.steps_s == [1, 2, 3]
    assert process.losses[1:] == (1.5, 2)
    assert process.ended is not None
    assert process.facts is None
    assert process.memory is None


def test_windows_in_the_order_in_which_they_were_taken(tmp_path: Path) -> None:
    process = read(tmp_path, window(1, 0) + window(0, 1) + window(0, 0))
    assert [(one.block, one.place) for one in process.windows] == [(0, 0), (0, 1), (1, 0)]


def test_what_a_newer_probe_says_is_passed_over(tmp_path: Path) -> None:
    newer = HELLO.replace("}", ', "moon": "full"}') + '{"say": "moon"}\n{"other": 1}\n'
    assert read(tmp_path, newer).hello is not None


def test_a_process_that_never_imported_torch_said_nothing(tmp_path: Path) -> None:
    process = read_process("as it is", 0, tmp_path / "none")
    assert process.hello is None
    assert not process.on_gpu
    assert process.ended is None


@pytest.mark.parametrize(
    "cut", ['{"say": "en', '{"say": "end"}', '{"say": "phase", "text": "\u00fc']
)
def test_a_last_line_that_is_cut(tmp_path: Path, cut: str) -> None:
    file = tmp_path / "said.jsonl"
    file.write_bytes((HELLO + cut).encode()[: -1 if cut.endswith("\u00fc") else None])
    process = read_process("as it is", 0, file)
    assert process.hello is not None
    assert process.ended is None


@pytest.mark.parametrize(
    "line", ["Epoch 1", "[1]", '{"say": "end"}', '{"say": "live", "steps_s": [0]}']
)
def test_what_is_no_message_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(GpuliftError, match=r"said\.jsonl:2: is no message"):
        read(tmp_path, f"{HELLO}{line}\n{HELLO}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="cannot be read"):
        read_process("as it is", 0, tmp_path)
