"""No cheat is believed, and no honest speed-up is refused."""

from __future__ import annotations

from collections import Counter

import pytest

from gpulift.judge.side import RefusedError
from gpulift.judge.trials import MOST_BLOCKS
from gpulift.verdicts.decision import IMPROVED, SLOWER
from proof import judged
from proof.judged import HONEST, PASSES, Cheat, base_text, cheats, honest, verdict_on

pytestmark = pytest.mark.world

FEWER_PASSES = ("NEEDLESS = 200", "NEEDLESS = 10")


@pytest.mark.parametrize("cheat", cheats(), ids=lambda cheat: cheat.name)
def test_no_cheat_is_accepted(cheat: Cheat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a base that is shorter than the page's: what a launch takes is not what is tried."""
    monkeypatch.setattr(judged, "base_text", lambda name: base_text(name).replace(*FEWER_PASSES))
    found = verdict_on(cheat.task, cheat.source)
    # Of 72 calls one in four is checked, and a gate finds a change in equal sides at times.
    if not isinstance(found, RefusedError) and (cheat.refused or found.verdict == IMPROVED):
        found = verdict_on(cheat.task, cheat.source, blocks=MOST_BLOCKS)
    if isinstance(found, RefusedError):
        assert found.side == "head"
        assert cheat.refused, f"it does what the base does, and was refused: {found}"
    else:
        assert not cheat.refused, f"it is wrong, and came out as {found.verdict}"
        assert found.verdict != IMPROVED


@pytest.mark.parametrize("name", [*(one for one in HONEST if one not in PASSES), [*PASSES][-1]])
def test_no_honest_speed_up_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many are found stands in the committed page: a busy host tells none, and starts a thread
    late. Those that spare fewer passes differ by nothing else."""
    monkeypatch.setattr(judged, "LOOKS", judged.LOOKS[:1])
    found = verdict_on(*honest(name), blocks=1)
    assert not isinstance(found, RefusedError), found
    assert name == "joins its threads" or not found.reason.startswith(f"looked {SLOWER}")


def test_the_set_is_as_large_as_it_says() -> None:
    families = Counter(cheat.name.partition("/")[0] for cheat in cheats())
    assert (len(families), families.total(), len(HONEST)) == (12, 80, 20)
    assert all(cheat.says.endswith(".") for cheat in cheats())
