"""Linear layers in FP8, and casts to 8 and 4 bits, by the library people use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

E4M3 = torch.float8_e4m3fn
BLOCK = 128  # numbers of a row, or of rows and columns, that share a scale of 32 bits
MX_BLOCK = 32
NV_BLOCK = 16


def convert_to_fp8(model: nn.Module, recipe: str, *, small: bool = True) -> None:
    """Its linear layers multiply in FP8, scaled as it comes by a recipe of torchao's. The output
    layer, whose weight is the embedding's, stays in BF16, as is usual. Without `small` so do those
    of at most 4096 inputs and 1024 outputs, by torchao's filter: their casts cost more than FP8
    saves. It is the one for scales by tensor with any recipe, so that these differ in no more."""
    from torchao import float8

    float8.convert_to_float8_training(
        model,
        config=float8.Float8LinearConfig.from_recipe_name(recipe),
        module_filter_fn=None if small else float8._auto_filter_for_recipe("tensorwise", []),
    )


Made = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Cast:
    """A cast of a matrix as torchao has it, to be compiled, and what the copies say."""

    run: Callable[[torch.Tensor], Made]
    restored: Callable[[Made], list[torch.Tensor]]  # each as the original lies

    def error(self, original: torch.Tensor, made: Made) -> float:
        """The largest difference of any copy, relative or of numbers below 1 absolute."""
        differences = [
            ((original.float() - said).abs() / said.abs().clamp(min=1)).max()
            for said in self.restored(made)
        ]
        return float(torch.stack(differences).max())


def scaled(matrix: torch.Tensor, along: int | None = None) -> Made:
    """E4M3 by the largest number of all, or along a dimension, and what it was multiplied by."""
    from torchao.float8.config import ScalingGranularity
    from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated

    which = ScalingGranularity.TENSORWISE if along is None else ScalingGranularity.AXISWISE
    scale = tensor_to_scale(matrix, E4M3, scaling_granularity=which, axiswise_dim=along)
    return to_fp8_saturated(matrix.to(torch.float32) * scale, E4M3), scale


def by_tensor(matrix: torch.Tensor) -> Made:
    """One scale for all."""
    return scaled(matrix)


def by_rows(matrix: torch.Tensor) -> Made:
    """A scale for each row."""
    return scaled(matrix, -1)


def by_tensor_both_ways(matrix: torch.Tensor) -> Made:
    """The matrix and its transpose, as products of the backward pass want it."""
    numbers, scale = scaled(matrix)
    return numbers, scale, numbers.t().contiguous(), scale


def by_rows_both_ways(matrix: torch.Tensor) -> Made:
    """Each by scales of its own rows."""
    across, scale_across = scaled(matrix, -1)
    down, scale_down = scaled(matrix, 0)
    return across, scale_across, down.t().contiguous(), scale_down.t()


def by_vectors(matrix: torch.Tensor) -> Made:
    """A scale for each 128 numbers of a row."""
    from torchao.prototype.blockwise_fp8_training import kernels

    made: Made = kernels.triton_fp8_blockwise_act_quant_lhs(matrix, BLOCK)
    return made


def by_tiles(matrix: torch.Tensor) -> Made:
    """A scale for each 128 x 128; in memory the numbers lie as the matrix does."""
    from torchao.prototype.blockwise_fp8_training import kernels

    made: Made = kernels.triton_fp8_blockwise_weight_quant_transposed_rhs(matrix, BLOCK)
    return made


def to_mxfp8(matrix: torch.Tensor) -> Made:
    """Scales rounded up, in the order in which cuBLASLt reads them."""
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    scales, numbers = to_mx(
        matrix, E4M3, MX_BLOCK, ScaleCalculationMode.RCEIL, is_swizzled_scales=True
    )
    return numbers, scales


def to_nvfp4(matrix: torch.Tensor) -> Made:
    """So too, with a scale for all."""
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale
    from torchao.prototype.mx_formats.utils import to_blocked

    of_tensor = per_tensor_amax_to_scale(matrix.abs().max())
    scales, numbers = nvfp4_quantize(matrix, NV_BLOCK, of_tensor)
    return numbers, to_blocked(scales), of_tensor


def divided(made: Made) -> list[torch.Tensor]:
    """Of one copy, or of two, whose second is transposed."""
    copies = [made[0].float() / made[1]]
    if len(made) > 2:
        copies.append((made[2].float() / made[3]).t())
    return copies


def times_vectors(made: Made) -> list[torch.Tensor]:
    """Of scales that the numbers are multiplied by again."""
    return [made[0].float() * made[1].repeat_interleave(BLOCK, 1)]


def times_tiles(made: Made) -> list[torch.Tensor]:
    """Transposed, as the kernel says it is."""
    scales = made[1].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return [(made[0].float() * scales).t()]


def times_blocks(numbers: torch.Tensor, scales: torch.Tensor, block: int) -> torch.Tensor:
    """Of scales in cuBLASLt's order."""
    from torchao.prototype.mx_formats.utils import from_blocked

    rows, columns = numbers.shape
    ordered = from_blocked(scales.flatten(), rows, columns // block).float()
    return numbers * ordered.repeat_interleave(block, 1)


def of_mxfp8(made: Made) -> list[torch.Tensor]:
    """What MXFP8 says."""
    return [times_blocks(made[0].float(), made[1], MX_BLOCK)]


def of_nvfp4(made: Made) -> list[torch.Tensor]:
    """What NVFP4 says."""
    from torchao.prototype.mx_formats.kernels import f4_unpacked_to_f32, unpack_uint4

    numbers = f4_unpacked_to_f32(unpack_uint4(made[0]))
    return [times_blocks(numbers, made[1], NV_BLOCK) * made[2]]


CASTS = {
    "tensor": Cast(by_tensor, divided),
    "row": Cast(by_rows, divided),
    "vector_128": Cast(by_vectors, times_vectors),
    "tile_128": Cast(by_tiles, times_tiles),
    "tensor_both_ways": Cast(by_tensor_both_ways, divided),
    "row_both_ways": Cast(by_rows_both_ways, divided),
    "mxfp8": Cast(to_mxfp8, of_mxfp8),
    "nvfp4": Cast(to_nvfp4, of_nvfp4),
}
