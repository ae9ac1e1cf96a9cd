"""Whether results stay what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpulift.advise import results
from gpulift.advise.evidence import BASELINE, Check, Process
from tests.advise.made import LOSSES, STEP_S, silent, turn

NEAR = Check(arm="tf32", losses=(1.0, 1.0001), gradient=2e-3, band=1e-2)
SAME = Check(arm="tf32", bits=True)
NULL = Check(arm=BASELINE, bits=True)


def of_arm(*launches: Sequence[Check]) -> str:
    said = [replace(silent(), checks={one.arm: one for one in checks}) for checks in launches]
    return results.of_arm(said, "tf32")


def test_same_bits_in_all_launches() -> None:
    assert of_arm([SAME, NULL], [SAME, NULL]) == "same bits"


def test_bits_that_are_equal_by_chance_are_the_same_step() -> None:
    assert of_arm([SAME, NULL], [SAME, Check(arm=BASELINE)]) == "same step"
    assert of_arm([SAME]) == "same step"


def test_gradients_within_the_band_in_all_launches() -> None:
    assert of_arm([NEAR, NULL], [SAME, NULL]) == "same step"


def test_losses_where_there_is_no_gradient() -> None:
    assert of_arm([Check(arm="tf32", losses=(1.0, 1.001), band=1e-2), NULL]) == "same step"
    assert of_arm([Check(arm="tf32", losses=(1.0, 1.1), band=1e-2), NULL]) == "differs by 0.1"


def test_the_worst_launch_counts() -> None:
    far = Check(arm="tf32", gradient=0.3, band=1e-2)
    assert of_arm([NEAR, NULL], [far, NULL]) == "differs by 0.3"
    lost = Check(arm="tf32", gradient=math.nan, band=1e-2)
    assert of_arm([far, NULL], [lost, NULL]) == "differs by nan"


def test_a_step_that_is_not_even_itself_compares_with_nothing() -> None:
    far = Check(arm="tf32", gradient=0.3, band=1e-2)
    assert of_arm([far, Check(arm=BASELINE, gradient=0.2)]) == "not comparable"


def test_other_random_numbers_cannot_be_compared() -> None:
    drawn = Check(
        arm="tf32", losses=(1.0, 1.2), why="it draws other random numbers, as for dropout"
    )
    assert of_arm([drawn, NULL]) == "not comparable"


def test_a_step_that_was_not_checked() -> None:
    assert of_arm([NULL]) == "not checked"
    assert of_arm([NEAR], [Check(arm="tf32", why="no loss was seen")]) == "not checked"


def pairs(
    own: Sequence[Sequence[float]], base: Sequence[Sequence[float]]
) -> list[tuple[Process, list[Process]]]:
    return [
        (
            turn("workers_8", number, STEP_S, losses=losses),
            [turn(BASELINE, number, STEP_S, losses=base[number])],
        )
        for number, losses in enumerate(own)
    ]


NOISY = [2.0, 1.9, 1.0]
ANEW = [2.0, 1.54, 1.0]  # 0.9 % from LOSSES, as of a script whose first weights have no seed


@pytest.mark.parametrize(
    ("own", "base", "result"),
    [
        ([LOSSES, LOSSES], [LOSSES, LOSSES], "same bits"),
        ([LOSSES[:2], LOSSES], [LOSSES, LOSSES], "same bits"),
        ([[2.0, 1.51, 1.0], LOSSES], [LOSSES, LOSSES], "same course"),
        ([[2.0, 1.95, 1.0], LOSSES], [LOSSES, LOSSES], "differs by 10 %"),
        ([[2.0, math.nan, 1.0], LOSSES], [LOSSES, LOSSES], "differs by nan %"),
        ([NOISY, NOISY], [LOSSES, NOISY], "not comparable"),
        ([[2.0, 1.6, 1.0], ANEW], [LOSSES, ANEW], "not comparable"),
        ([[2.0, 1.65, 1.0], ANEW], [LOSSES, ANEW], "differs by 3.3 %"),
        ([[], LOSSES], [LOSSES, LOSSES], "not checked"),
        ([[0.0], LOSSES], [[0.0], LOSSES], "same bits"),
        ([[1.0], [1.0]], [[0.0], [0.0]], "differs by inf %"),
    ],
)
def test_losses_of_rounds(
    own: Sequence[Sequence[float]], base: Sequence[Sequence[float]], result: str
) -> None:
    assert results.of_setting(pairs(own, base), "bits") == result


def test_other_work_is_not_compared() -> None:
    assert results.of_setting(pairs([LOSSES], [LOSSES]), "work") == "other work"


def test_a_course_that_rounding_turns_as_far_is_the_same() -> None:
    turned = replace(turn(BASELINE, 1, STEP_S, losses=[2.0, 1.56, 1.0]), rounded=True)
    far = pairs([[2.0, 1.65, 1.0]], [LOSSES])
    alone = results.rounding([turn(BASELINE, 0, STEP_S), turned])
    assert alone == pytest.approx(0.06 / 4.5)
    assert results.of_setting(far, "step", alone) == "same course"
    assert results.of_setting(far, "step", alone / 2) == "differs by 3.3 %"


def test_no_course_is_held_against_one_that_was_rounded() -> None:
    turned = replace(turn(BASELINE, 1, STEP_S, losses=NOISY), rounded=True)
    own = turn("workers_8", 1, STEP_S)
    assert results.of_setting([*pairs([LOSSES], [LOSSES]), (own, [turned])], "bits") == "same bits"
    assert results.of_setting([(own, [turned])], "bits") == "not checked"
    assert results.rounding([turned]) == 0.0
