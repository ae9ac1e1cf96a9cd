"""What a watch reads of GPUs, from a made-up NVML."""

from __future__ import annotations

import importlib
import re
import sys

import pytest

from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.watch import cards
from tests.fake_nvml import FakeNvml, Metric

MEBI = float(1 << 20)


def test_activities_are_those_between_two_readings() -> None:
    card = cards.Card(FakeNvml(), 0)
    first, second = card.reading(), card.reading()
    assert "sm_activity" not in first
    assert second["sm_activity"] == pytest.approx(0.95)
    assert second["tensor_activity"] == pytest.approx(0.92)
    assert second["dram_activity"] == pytest.approx(0.24)
    assert second["pcie_received_bytes_per_s"] == 15 * MEBI
    assert second["pcie_sent_bytes_per_s"] == 3 * MEBI


def test_what_the_card_does_not_count_is_not_there() -> None:
    card = cards.Card(FakeNvml(), 0)
    card.reading()
    found = card.reading()
    assert found["nvlink_received_bytes_per_s"] == 7 * MEBI
    assert "nvlink_sent_bytes_per_s" not in found


def test_a_reading_that_failed_is_not_compared_with() -> None:
    nvml = FakeNvml()
    nvml.failing = {2}
    card = cards.Card(nvml, 0)
    seen = ["sm_activity" in card.reading() for _ in range(4)]
    assert seen == [False, False, False, True]


def test_power_clock_memory_and_what_held_the_clock_down() -> None:
    found = cards.Card(FakeNvml(), 0).reading()
    assert found["power_w"] == 612
    assert found["sm_clock_hz"] == 1.755e9
    assert found["temperature_c"] == 61
    assert found["memory_used_bytes"] == 12 * 1024 * MEBI
    assert found["memory_bytes"] == 80 * 1024 * MEBI
    assert found["throttle_sw_power_cap"] == 1
    assert found["throttle_hw_slowdown"] == 0


def test_an_older_card_tells_its_utilisation_and_no_throttling() -> None:
    card = cards.Card(FakeNvml(), 1)
    card.reading()
    found = card.reading()
    assert not card.has_activities
    assert found["utilisation"] == 0.25
    assert card.energy_j() is None
    assert not [name for name in found if "activity" in name or "throttle" in name]


def test_the_energy_is_the_cards_counter() -> None:
    card = cards.Card(FakeNvml(), 0)
    before = card.energy_j()
    after = card.energy_j()
    assert before is not None
    assert after is not None
    assert after - before == 500


def test_all_cards_are_opened_or_those_that_are_named() -> None:
    labels = [card.label for card in cards.open_cards(FakeNvml(), None)]
    assert labels == ["GPU 0 NVIDIA H100 80GB HBM3", "GPU 1 Tesla V100"]
    assert [card.index for card in cards.open_cards(FakeNvml(), "1")] == [1]


def test_a_card_is_named_by_what_its_uuid_begins_with() -> None:
    assert [card.index for card in cards.open_cards(FakeNvml(), "GPU-3A2C,GPU-3a2b")] == [1, 0]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("2", "--gpus 2: there is no such GPU; this machine has 2, numbered from 0"),
        ("GPU-4", "--gpus GPU-4: no GPU has this UUID; nvidia-smi -L lists them"),
        ("GPU-3a", "--gpus GPU-3a: several GPUs begin so; give more of the UUID"),
        ("MIG-3a2b", "--gpus MIG-3a2b: a MIG instance is not watched; name its GPU"),
        ("0,GPU-3a2b", "--gpus 0,GPU-3a2b: name each GPU once, as in 0,1"),
    ],
)
def test_a_card_that_is_not_there_is_refused(wanted: str, says: str) -> None:
    with pytest.raises(GpuliftError, match=re.escape(says)) as one:
        cards.open_cards(FakeNvml(), wanted)
    assert one.value.exit_code == USAGE


def test_a_card_that_does_not_answer_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    nvml = FakeNvml()
    nvml.lost = {0}
    assert [card.index for card in cards.open_cards(nvml, None)] == [1]
    said = "gpulift: warning: GPU 0 is not watched: NVML: GPU is lost\n"
    assert capsys.readouterr().err == said
    assert [card.index for card in cards.open_cards(nvml, "GPU-3a2c")] == [1]
    with pytest.raises(GpuliftError, match="--gpus 0: NVML: GPU is lost"):
        cards.open_cards(nvml, "0")


def test_why_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(driver=False))
    assert cards.load() == (None, "NVML: Driver Not Loaded")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    library, why = cards.load()
    assert library is None
    assert why == "the Python package nvidia-ml-py is not installed; ./gpulift setup installs it"


def test_the_package_has_all_that_is_used_of_the_made_up_one() -> None:
    real = importlib.import_module("pynvml")
    names = [name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML", "c_nvml"))]
    assert [name for name in names if not hasattr(real, name)] == []
    numbers = [name for name in names if isinstance(getattr(FakeNvml, name), int)]
    assert {name: getattr(real, name) for name in numbers} == {
        name: getattr(FakeNvml, name) for name in numbers
    }
    asked = real.c_nvmlGpmMetricsGet_t()
    assert len(asked.metrics) >= len(cards.ACTIVITIES)
    assert {name for name, _ in Metric._fields_} <= {name for name, *_ in asked.metrics[0]._fields_}
