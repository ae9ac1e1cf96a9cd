"""Files of records: `<theme>.<name>.jsonl` while a run writes them, `.jsonl.zst` once published."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpulift.errors import GpuliftError, RecordError

WRITTEN = ".jsonl"
PUBLISHED = ".jsonl.zst"
LEVEL = 19  # a third smaller than the default, and read as fast


def record_files(folder: Path) -> list[Path]:
    """Those of a run folder, by technique; of one technique what was published comes first."""
    return _sorted(folder.glob("*.jsonl*"))


def record_files_below(above: Path) -> list[Path]:
    """Those of all folders below."""
    return _sorted(above.rglob("*.jsonl*"))


def stem_of(file: Path) -> str:
    """`theme.name`, whether it was published or not."""
    return file.name.removesuffix(".zst").removesuffix(WRITTEN)


def is_published(file: Path) -> bool:
    """Whether it is compressed."""
    return file.name.endswith(PUBLISHED)


def size_of(file: Path) -> int:
    """Its bytes. Raises GpuliftError where there is none, as behind a link that leads nowhere."""
    try:
        return file.stat().st_size
    except OSError as error:
        raise _unreadable(file, error) from None


def content_of(file: Path) -> bytes:
    """What was written to it, decompressed. Raises GpuliftError where it cannot be read."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise _unreadable(file, error) from None
    return decompressed(content, str(file)) if is_published(file) else content


def compressed(content: bytes) -> bytes:
    """As one Zstandard frame."""
    import pyarrow as arrow  # type: ignore[import-untyped]  # takes longer to import than most commands take

    made: bytes = arrow.Codec("zstd", LEVEL).compress(content, asbytes=True)
    return made


def decompressed(content: bytes, place: str) -> bytes:
    """The whole content of a Zstandard file. Raises RecordError where it is damaged."""
    import pyarrow as arrow

    if not content:
        raise RecordError(f"{place}: cannot be decompressed: it is empty; copy it again")
    try:
        with arrow.CompressedInputStream(arrow.BufferReader(content), "zstd") as stream:
            made: bytes = stream.read()
            return made
    except (OSError, ValueError) as error:
        cause = str(error).partition("\n")[0]
        raise RecordError(f"{place}: cannot be decompressed: {cause}; copy it again") from None


def _sorted(files: Iterable[Path]) -> list[Path]:
    kept = [file for file in files if file.name.endswith((WRITTEN, PUBLISHED))]
    return sorted(kept, key=lambda file: (file.parent, stem_of(file), not is_published(file)))


def _unreadable(path: Path, error: OSError) -> GpuliftError:
    return GpuliftError(f"{path}: cannot be read: {error.strerror}")
