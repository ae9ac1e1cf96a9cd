"""Images of ten kinds of shapes, drawn as they are asked for: a task to learn, and no download."""

from __future__ import annotations

from collections.abc import Callable

import torch

PIXELS = 32
NOISE = 0.3

# Where the shape is, by its own coordinates: it reaches from -1 to 1.
SHAPES: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
    lambda u, v: u**2 + v**2 < 1,  # disc
    lambda u, v: ((u**2 + v**2) - 0.7).abs() < 0.3,  # ring
    lambda u, v: torch.maximum(u.abs(), v.abs()) < 0.85,  # square
    lambda u, v: (torch.maximum(u.abs(), v.abs()) - 0.7).abs() < 0.2,  # frame
    lambda u, v: u.abs() + v.abs() < 1.1,  # diamond
    lambda u, v: (torch.minimum(u.abs(), v.abs()) < 0.25) & (torch.maximum(u.abs(), v.abs()) < 1),
    lambda u, v: (u.abs() < 0.3) & (v.abs() < 1),  # upright bar
    lambda u, v: (u.abs() < 1) & (v.abs() < 0.3),  # level bar
    lambda u, v: (v < 0.8) & (u.abs() < 0.5 * (v + 1)),  # triangle
    lambda u, v: (u * v > 0) & (torch.maximum(u.abs(), v.abs()) < 0.9),  # two squares
)


def draw(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """So many images on the generator's device, and the number of the shape in each: of any place,
    size, colours and, within limits, angle, brighter than what is around it, with noise."""
    device = generator.device

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator, device=device)

    kinds = torch.randint(len(SHAPES), (count,), generator=generator, device=device)
    axis = torch.linspace(-1, 1, PIXELS, device=device)
    x, y = axis - uniform(-0.3, 0.3, 1, 1), axis[:, None] - uniform(-0.3, 0.3, 1, 1)
    angle, size = uniform(-0.3, 0.3, 1, 1), uniform(0.4, 0.7, 1, 1)
    u = (x * angle.cos() + y * angle.sin()) / size
    v = (y * angle.cos() - x * angle.sin()) / size
    inside = torch.zeros_like(u, dtype=torch.bool)
    for kind, is_inside in enumerate(SHAPES):
        inside |= (kinds == kind)[:, None, None] & is_inside(u, v)
    images = uniform(-1, 0, 3, 1, 1) + inside[:, None] * uniform(0.5, 1.5, 3, 1, 1)
    return images + NOISE * torch.randn(images.shape, generator=generator, device=device), kinds
