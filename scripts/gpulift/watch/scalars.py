"""Samples as scalars of TensorBoard, written by torch's own writer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from gpulift.engine import packages
from gpulift.ground.errors import GpuliftError, write_error
from gpulift.ground.text import visible
from gpulift.watch.cards import Card
from gpulift.watch.samples import Sample

WRITER = "torch.utils.tensorboard"
PACKAGES = ("torch", "tensorboard")  # torch has the writer, which needs the other
BEGINNING, END = "events.out.tfevents.", ".gpulift-watch"  # of each file of ours
FLUSH_S = 10


def require_folder(folder: Path, force: bool) -> None:
    """Raises GpuliftError where a package is missing, or the folder holds what is not of a watch;
    scalars of an earlier one are written over by force alone."""
    for package in PACKAGES:
        if not packages.is_installed(package):
            install = shlex.join([sys.executable, "-m", "pip", "install", package])
            raise GpuliftError(f"--tensorboard: {packages.missing(package)}: {install}")
    name = visible(str(folder))
    try:
        if not folder.parent.is_dir():
            raise GpuliftError(f"{name}: cannot be written: there is no such folder")
        if folder.exists() and not folder.is_dir():
            raise GpuliftError(f"{name}: is no folder")
        held = list(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise write_error(folder, error) from None
    if not all(map(_is_ours, held)):
        raise GpuliftError(f"{name}: holds files of others; name an empty folder")
    if held and not force:
        raise GpuliftError(f"{name}: has scalars already; --force writes over them")


def _is_ours(file: Path) -> bool:
    return file.name.startswith(BEGINNING) and file.name.endswith(END) and file.is_file()


class Scalars:
    """A folder that TensorBoard reads: a scalar for each quantity of the job and of each GPU."""

    def __init__(self, folder: Path) -> None:
        try:
            for file in filter(_is_ours, folder.iterdir() if folder.is_dir() else ()):
                file.unlink()  # TensorBoard would draw both as one line
            made: Any = import_module(WRITER)
            self._writer = made.SummaryWriter(str(folder), filename_suffix=END, flush_secs=FLUSH_S)
        except OSError as error:
            raise write_error(folder, error) from None
        except ImportError as error:
            raise GpuliftError(f"--tensorboard: {error}") from None
        self._samples = 0

    def write(self, sample: Sample, cards: Sequence[Card]) -> None:
        """The newest sample; a step is a sample."""
        for tag, value in tagged(sample, cards):
            self._writer.add_scalar(tag, value, self._samples)
        self._samples += 1

    def close(self) -> None:
        """What is still in memory is written."""
        with suppress(OSError):
            self._writer.close()


def tagged(sample: Sample, cards: Sequence[Card]) -> Iterator[tuple[str, float]]:
    """TensorBoard groups by what is before the slash."""
    for quantity, value in sample.job.items():
        yield f"job/{quantity}", value
    for card, gpu in zip(cards, sample.gpus, strict=True):
        for quantity, value in gpu.items():
            yield f"gpu{card.index}/{quantity}", value
