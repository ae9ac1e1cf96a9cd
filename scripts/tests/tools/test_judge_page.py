"""certificates/judge.md: what it says of verdicts, and that it has the cheats that there are."""

from __future__ import annotations

import pytest

from gpulift.judge.side import RefusedError
from gpulift.verdicts.decision import IMPROVED, REGRESSED, Verdict
from proof.judged import HONEST, cheats
from tests.conftest import CHECKOUT
from tools import judge_page
from tools.judge_page import Row

MAKE_ANEW = "run python -m tools.judge_page in scripts/, commit what it writes"


@pytest.fixture(scope="module")
def committed() -> str:
    return (CHECKOUT / "results" / judge_page.PAGE).read_text("utf-8")


def test_the_committed_page_has_every_cheat(committed: str) -> None:
    for one in cheats():
        assert f"| `{one.name}` | {one.says} | " in committed, MAKE_ANEW
    for name in HONEST:
        assert f"| `{name}` | " in committed, MAKE_ANEW


def test_no_cheat_was_accepted_and_no_honest_one_refused(committed: str) -> None:
    cheating, true = committed.split("## Honest speed-ups")
    assert f"| {IMPROVED}" not in cheating
    assert "| refused" not in true


def test_what_is_accepted_or_refused_is_counted() -> None:
    refused = RefusedError("head", "reads\x1b |pipes|")
    cheating = [Row.of("a/b", "Wins.", Verdict(IMPROVED)), Row.of("a/c", "Loses.", refused)]
    true = [Row.of(word, "", Verdict(word)) for word in (IMPROVED, REGRESSED)]
    true.append(Row.of("x", "", refused))
    page = judge_page.page(cheating, true, "isolated: not at all", 0.25)
    assert "Of 2 cheats 1 was accepted" in page
    assert "Of 3 honest speed-ups 1 was refused; 1\nwere found, 1 came out slower" in page
    assert "| `a/c` | Loses. | refused: reads\\x1b /pipes/ |" in page
    assert "processes kept 0.2 cores busy ahead of it. Isolated: not at all." in page
