"""Tokens of a Markov chain: the least loss that a model of them can have is known."""

from __future__ import annotations

import torch

SUCCESSORS = 16  # of each word; the n-th is as likely as 1 / n says


class Chain:
    """Words each of which is followed by one of a few, drawn from a seed."""

    def __init__(self, words: int, seed: int, device: torch.device) -> None:
        drawn = torch.Generator().manual_seed(seed)
        self.words = words
        # The largest of random values are at places that differ.
        self.next = torch.rand(words, words, generator=drawn).topk(SUCCESSORS).indices.to(device)
        likely = 1 / torch.arange(1, SUCCESSORS + 1, dtype=torch.float64)
        self.likely = (likely / likely.sum()).to(device)

    @property
    def entropy(self) -> float:
        """Nats a token: no model is below it but by chance."""
        return float(-(self.likely * self.likely.log()).sum())

    def draw(self, rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
        """Rows of so many tokens, on the generator's device."""
        device = generator.device
        places = torch.multinomial(
            self.likely, rows * length, replacement=True, generator=generator
        ).view(rows, length)
        word = torch.randint(self.words, (rows,), generator=generator, device=device)
        found = []
        for place in places.unbind(1):
            found.append(word)
            word = self.next[word, place]
        return torch.stack(found, dim=1)
