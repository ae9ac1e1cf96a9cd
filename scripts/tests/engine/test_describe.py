"""What the real gpulift-bench says of this machine can be read, whatever is set here."""

from __future__ import annotations

import pytest

from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError


@pytest.mark.parametrize("value", ["0", "GPU-3a2b1c4d-0011-2233-4455-66778899aabb", ""])
def test_a_selection_of_cards_is_mentioned_and_not_told(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    try:
        bench = machine.find_bench()
    except GpuliftError as error:
        pytest.skip(str(error))
    assert machine.describe(bench).environment["CUDA_VISIBLE_DEVICES"] == "set"
