"""No cheat is believed, and no honest speed-up is refused."""

from __future__ import annotations

from collections import Counter

import pytest

from gpulift.judge.side import RefusedError
from gpulift.judge.trials import MOST_BLOCKS
from gpulift.verdicts.decision import IMPROVED, REGRESSED
from proof.judged import HONEST, Cheat, cheats, honest, verdict_on
from tests.judge.test_breaks import alone  # noqa: F401

pytestmark = pytest.mark.world


@pytest.mark.parametrize("cheat", cheats(), ids=lambda cheat: cheat.name)
def test_no_cheat_is_accepted(cheat: Cheat) -> None:
    found = verdict_on(cheat.task, cheat.source)
    if cheat.refused and not isinstance(found, RefusedError):  # of 72 calls one in four is checked
        found = verdict_on(cheat.task, cheat.source, blocks=MOST_BLOCKS)
    if isinstance(found, RefusedError):
        assert found.side == "head"
        assert cheat.refused, f"it does what the base does, and was refused: {found}"
    else:
        assert not cheat.refused, f"it is wrong, and came out as {found.verdict}"
        assert found.verdict != IMPROVED


@pytest.mark.parametrize("name", HONEST)
def test_no_honest_speed_up_is_refused(name: str) -> None:
    """How many are found stands in the committed page: a busy host tells none."""
    found = verdict_on(*honest(name))
    assert not isinstance(found, RefusedError), found
    assert found.verdict != REGRESSED


def test_the_set_is_as_large_as_it_says() -> None:
    families = Counter(cheat.name.partition("/")[0] for cheat in cheats())
    assert (len(families), families.total(), len(HONEST)) == (12, 80, 20)
    assert all(cheat.says.endswith(".") for cheat in cheats())
