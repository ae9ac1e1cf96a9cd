"""All cards and roofs of a fleet as one family."""

from __future__ import annotations

import pytest

from gpulift.fleet.family import Family, Seen, family_of
from tests.fleet.made import MEMORY, PRODUCT


def seen(node: str, value: float, check: str = MEMORY, **other: object) -> Seen:
    near = other.pop("near", value * 1.0005)
    told = {"card": "", "model": "nvidia-h200", "unit": "B/s", "tolerance": None, **other}
    return Seen(node=node, check=check, value=value, near=near, **told)  # type: ignore[arg-type]


def fleet(count: int, spread: float = 0.0005) -> list[Seen]:
    return [seen(f"n{i}", 4e12 * (1 + spread * (i % 7 - 3))) for i in range(count)]


def named(*every: Seen) -> list[str]:
    return [place.seen.node for place in family_of(every).places if place.named]


def test_a_slow_one_of_many_is_named_and_a_fast_one_is_not() -> None:
    assert named(*fleet(100), seen("slow", 3.88e12), seen("fast", 4.2e12)) == ["slow"]


def test_one_launch_or_an_interval_that_holds_the_median_names_none() -> None:
    assert named(*fleet(100), seen("a", 3.6e12, near=None), seen("b", 3.6e12, near=4.1e12)) == []


def test_where_sound_ones_lie_apart_a_slow_one_is_not_named() -> None:
    assert named(*fleet(100, spread=0.005), seen("slow", 3.88e12)) == []


def test_a_larger_family_asks_for_more() -> None:
    apart = seen("slow", 4e12 * 0.979)
    assert named(*fleet(25), apart) == ["slow"]
    others = [seen(f"n{i}", 1e12, f"roof/{j}") for i in range(50) for j in range(100)]
    assert named(*fleet(25), apart, *others) == []


def test_few_have_the_tolerance_of_their_model() -> None:
    few = [seen(name, 4e12, tolerance=0.05) for name in "abc"]
    assert named(*few, seen("d", 3.9e12)) == []
    assert named(*few, seen("d", 3.7e12)) == ["d"]


def test_models_and_checks_are_held_against_their_own() -> None:
    other = [seen(f"h{i}", 3e12, model="nvidia-h100") for i in range(3)]
    products = [seen(f"n{i}", 8e14, PRODUCT, unit="FLOP/s") for i in range(3)]
    found = family_of([*fleet(3), *other, *products, seen("lone", 1e12, model="nvidia-b200")])
    assert not any(place.named for place in found.places)
    assert [(one.model, one.check, one.count) for one in found.roofs] == [
        ("nvidia-h100", MEMORY, 3),
        ("nvidia-h200", MEMORY, 3),
        ("nvidia-h200", PRODUCT, 3),
    ]
    assert "lone" not in {place.seen.node for place in found.places}


def test_a_roof_says_from_where_on_one_is_named() -> None:
    found = family_of(fleet(100))
    (roof,) = found.roofs
    assert roof.median == pytest.approx(4e12)
    below, above = (4e12 * (1 - roof.smallest * factor) for factor in (1.02, 0.98))
    assert named(*fleet(99), seen("x", below, near=below)) == ["x"]
    assert named(*fleet(99), seen("x", above, near=above)) == []


def test_nothing_is_a_family_of_none() -> None:
    assert family_of([]) == Family()
