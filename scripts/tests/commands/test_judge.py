"""`gpulift judge`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift.cli import main
from gpulift.judge import trials
from gpulift.judge.run import named
from gpulift.judge.task import Source
from proof.judged import SOFTMAX, TASKS, base_text

pytestmark = pytest.mark.world

TASK = ("--task", str(TASKS / "softmax.py"))
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(trials, "LAUNCH_S", 0.0)  # launches have the fewest blocks that they may


@pytest.fixture
def base(tmp_path: Path) -> str:
    """Of few passes: how long a call takes is not what is asked."""
    file = tmp_path / "base.py"
    file.write_text(base_text(SOFTMAX).replace("NEEDLESS = 200", "NEEDLESS = 10"), encoding="utf-8")
    return str(file)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    file = tmp_path / "wrong.py"
    file.write_text("def run(x): return x\n", encoding="utf-8")
    return str(file)


def test_a_head_that_is_wrong(capsys: Said, base: str, wrong: str) -> None:
    assert main(["judge", base, wrong, *TASK]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("refused      head: output 0 is wrong: ")
    assert "; the base takes " in said[0]
    names = [line.partition(":")[0].partition(" ")[0] for line in said[1:]]
    assert names == ["task", "clock", "roofs", "isolated"]


def test_a_base_that_is_wrong_as_json(capsys: Said, base: str, wrong: str) -> None:
    assert main(["judge", wrong, base, *TASK, "--json"]) == 4
    said = json.loads(capsys.readouterr().out)
    assert [said[one] for one in ("verdict", "side", "other")] == ["refused", "base", "head"]
    assert (said["exit_code"], said["other_s"] > 0) == (4, True)


def test_equal_sides_get_a_gates_verdict(capsys: Said, base: str, tmp_path: Path) -> None:
    """Any but a refusal: how much a machine varies is not ours, nor how long it takes."""
    wide = ("--threshold", "0.9", "--budget", "9h", "--out", str(tmp_path / "out"))
    code = main(["judge", base, base, *TASK, *wide])
    said = capsys.readouterr().out
    assert code in (0, 3, 5)
    assert "control rows: passed" in said
    assert "refused" not in said
    assert (tmp_path / "out" / "gate.json").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--threshold", "2"), "--threshold 2: a fraction"),
        (("--timeout", "0"), "--timeout must be more than 0"),
        (("--bandwidth", "-1"), "--bandwidth must be more than 0"),
        (("--flops", "nan"), "--flops must be more than 0"),
        (("--budget", "long"), "--budget long: give a time"),
        (("--out", str(TASKS)), "is there already"),
    ],
)
def test_what_is_refused_before_anything_runs(
    capsys: Said, base: str, options: tuple[str, str], said: str
) -> None:
    assert main(["judge", base, base, *TASK, *options]) == 2
    assert said in capsys.readouterr().err


def test_files_are_named_with_their_hashes() -> None:
    assert named(Source("head", "a.py", b"")) == "a.py (e3b0c44298fc)"
