"""A text that every machine with Python has: the sources of Python's own library, as bytes."""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from gpulift_worker import Skip

WORDS = 256  # as many as there are bytes
# Tests repeat what they test, and tables of encodings are no text; packages differ by machine.
LEFT_OUT = frozenset(
    {"test", "tests", "idle_test", "encodings", "site-packages", "dist-packages", "__pycache__"}
)
HELD_OUT_OF = 10  # files, of which one is held out
LEAST_BYTES = 4_000_000  # the library of CPython 3.10 to 3.14 has 8 to 10 million
END = b"\0"  # of a file, in which there is none


@dataclass(frozen=True)
class Text:
    """Bytes to learn from, and those of other files to judge by."""

    training: torch.Tensor
    held_out: torch.Tensor
    notes: Mapping[str, str]  # which text it is: another Python has another

    def draw(self, rows: int, tokens: int, generator: torch.Generator) -> torch.Tensor:
        """Rows of so many bytes behind one another, from places that the generator draws."""
        last = len(self.training) - tokens
        starts = torch.randint(last + 1, (rows,), generator=generator, device=generator.device)
        return windows(self.training, starts, tokens)

    def held_out_rows(self, rows: int, tokens: int) -> torch.Tensor:
        """Rows to judge by, the same for all, from places at equal distances."""
        last = len(self.held_out) - tokens
        starts = torch.arange(rows, device=self.held_out.device) * last // max(1, rows - 1)
        return windows(self.held_out, starts, tokens)

    def single_byte_loss(self) -> float:
        """Nats a byte of what is held out, by how often each comes: what is learned at once."""
        counts = torch.bincount(self.training.int(), minlength=WORDS) + 1.0
        chances = (counts / counts.sum()).log()
        return float(-chances[self.held_out.int()].mean())


def windows(text: torch.Tensor, starts: torch.Tensor, tokens: int) -> torch.Tensor:
    """A row of so many bytes from each start."""
    return text[starts[:, None] + torch.arange(tokens, device=text.device)].long()


def sources_of_python(device: torch.device, folder: Path | None = None) -> Text:
    """Of the library in use, or the folder. Throws Skip where it came without its sources."""
    files = list(files_of(folder or Path(sysconfig.get_path("stdlib"))))
    parts = [
        b"".join(file.read_bytes() + END for number, file in enumerate(files) if which(number))
        for which in (lambda number: not is_held_out(number), is_held_out)
    ]
    text_bytes = sum(map(len, parts))
    if text_bytes < LEAST_BYTES:
        raise Skip(
            f"the sources of Python's library have {text_bytes} bytes here, too few to learn from",
            "take a Python with its whole library, such as python.org's",
        )
    training, held_out = (
        torch.frombuffer(bytearray(part), dtype=torch.uint8).to(device) for part in parts
    )
    notes = {
        "text": f"library of Python {platform.python_version()}",
        "text_bytes": str(text_bytes),
        "text_sha256": hashlib.sha256(b"".join(parts)).hexdigest(),
    }
    return Text(training, held_out, notes)


def files_of(folder: Path) -> Iterator[Path]:
    """Its sources in a fixed order, without those that the machine itself made."""
    for file in sorted(folder.rglob("*.py")):
        if not LEFT_OUT & set(file.relative_to(folder).parts) and "_sysconfigdata" not in file.name:
            yield file


def is_held_out(number: int) -> bool:
    """Whether the file of this number is."""
    return number % HELD_OUT_OF == HELD_OUT_OF - 1
