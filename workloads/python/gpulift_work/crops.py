"""Crops of a whole batch at once, on whatever device its images are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from gpulift_work.feeding import PIXELS, Place


def cropped(images: Iterable[torch.Tensor], places: Sequence[Place]) -> torch.Tensor:
    """All crops at once, flipped or not [batch, 3, PIXELS, PIXELS]: no crop is as large as another,
    so that one by one a thread would launch each, in Python's lock. Rows and columns are weighed by
    a product each."""
    parts = [
        image[:, place.top : place.top + place.height, place.left : place.left + place.width]
        for image, place in zip(images, places, strict=True)
    ]
    device = parts[0].device
    kind = torch.float16 if device.type == "cuda" else torch.float32  # exact of bytes
    heights = torch.tensor([place.height for place in places])
    widths = torch.tensor([place.width for place in places])
    flipped = torch.tensor([place.flipped for place in places])
    shape = (len(parts), 3, int(heights.max()), int(widths.max()))
    together = torch.zeros(shape, dtype=kind, device=device)
    torch._foreach_copy_(
        [
            one[:, : part.shape[1], : part.shape[2]]
            for one, part in zip(together, parts, strict=True)
        ],
        parts,
    )
    columns = weights_of(widths.to(device), shape[3])
    columns = torch.where(flipped.to(device)[:, None, None], columns.flip(1), columns)
    rows = weights_of(heights.to(device), shape[2])
    return rows.to(kind)[:, None] @ together @ columns.to(kind)[:, None].mT


def weights_of(sizes: torch.Tensor, most: int) -> torch.Tensor:
    """What each of `most` pixels has in each of PIXELS [batch, PIXELS, most], as Pillow's bilinear
    resizing has it: a triangle around the pixel, as wide as it covers, or one to either side."""
    scale = (sizes / PIXELS)[:, None, None]
    given, made = (torch.arange(count, device=sizes.device) + 0.5 for count in (most, PIXELS))
    away = (given - made[:, None] * scale) / scale.clamp(min=1)
    weights = (1 - away.abs()).clamp(min=0) * (given < sizes[:, None, None])
    return weights / weights.sum(-1, keepdim=True)
