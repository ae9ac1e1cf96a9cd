"""Of casts by torchao: how far they are from the original, and that wrong ones are found."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

from gpulift_work.fp8 import CASTS  # noqa: E402
from gpulift_work.training import poison  # noqa: E402

ON_THE_HOST = ["tensor", "row", "tensor_both_ways", "row_both_ways", "mxfp8"]
TRITON = ["vector_128", "tile_128"]
HALF_A_STEP = 1 / 16  # of E4M3, relative
HALF_A_STEP_OF_E2M1 = 1 / 4


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same numbers each time."""
    torch.manual_seed(7)


def matrix(device: str = "cpu") -> Any:
    return torch.randn(128, 256, device=device, dtype=torch.bfloat16)


def half_a_step(name: str) -> float:
    return HALF_A_STEP_OF_E2M1 if name == "nvfp4" else HALF_A_STEP


@pytest.mark.parametrize("name", [*ON_THE_HOST, "nvfp4"])
def test_a_cast_is_half_a_step_of_its_format_off_at_most(name: str) -> None:
    original = matrix()
    error = CASTS[name].error(original, CASTS[name].run(original))
    assert 0.9 * half_a_step(name) < error < 1.001 * half_a_step(name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's kernels need a GPU")
@pytest.mark.parametrize("name", TRITON)
def test_so_is_a_cast_by_a_kernel_of_triton(name: str) -> None:
    original = matrix("cuda")
    error = CASTS[name].error(original, CASTS[name].run(original))
    assert 0.9 * HALF_A_STEP < error < 1.001 * HALF_A_STEP


@pytest.mark.parametrize("name", ["tensor_both_ways", "row_both_ways"])
@pytest.mark.parametrize("copy", [0, 2])
def test_a_wrong_number_in_either_copy_is_found(name: str, copy: int) -> None:
    original = matrix()
    made = list(CASTS[name].run(original))
    made[copy] = made[copy].float().roll(1, 0).to(made[copy].dtype)
    assert CASTS[name].error(original, tuple(made)) > 1


@pytest.mark.parametrize("name", [*ON_THE_HOST, "nvfp4"])
def test_wrong_scales_are_found(name: str) -> None:
    original = matrix()
    made = list(CASTS[name].run(original))
    made[1] = (made[1].float() / 2).to(made[1].dtype)
    assert CASTS[name].error(original, tuple(made)) > 1.5 * half_a_step(name)


def test_what_is_no_number_is_none_in_the_error() -> None:
    original = matrix()
    numbers, scale = CASTS["tensor"].run(original)
    assert not CASTS["tensor"].error(original, (numbers, scale * torch.nan)) < 1


@pytest.mark.parametrize("name", [*ON_THE_HOST, "nvfp4"])
def test_so_are_results_that_are_poisoned(name: str) -> None:
    original = matrix()
    made = CASTS[name].run(original)
    poison(made)
    assert not CASTS[name].error(original, made) < 1


def test_the_transpose_lies_by_its_own_rows() -> None:
    for name in ("tensor_both_ways", "row_both_ways"):
        transposed = CASTS[name].run(matrix())[2]
        assert transposed.shape == (256, 128)
        assert transposed.is_contiguous()
