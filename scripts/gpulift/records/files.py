"""Files of records: `<theme>.<name>.jsonl` while a run writes them, `.jsonl.zst` once published."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import zstandard

from gpulift.ground.errors import GpuliftError, RecordError
from gpulift.ground.whole import is_aside, read_whole

WRITTEN = ".jsonl"
PUBLISHED = ".jsonl.zst"
LEVEL = 19  # a third smaller than the default, and read as fast
LARGEST_BYTES = 2**28  # of a file's content: more than a hundred times the largest committed


def record_files(folder: Path) -> list[Path]:
    """Those of a run folder, by technique; of one technique what was published comes first."""
    return _sorted(folder.glob("*.jsonl*"))


def record_files_below(above: Path) -> list[Path]:
    """Those of all folders below that are whole."""
    return _sorted(file for file in above.rglob("*.jsonl*") if not is_aside(file.parent))


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
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None


def content_of(file: Path) -> bytes:
    """What was written to it, decompressed. Raises GpuliftError where it cannot be read."""
    content = read_whole(file)
    return decompressed(content, str(file)) if is_published(file) else content


def compressed(content: bytes) -> bytes:
    """As one Zstandard frame with a checksum of the content."""
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(content)


def decompressed(content: bytes, place: str) -> bytes:
    """The whole content of a Zstandard file, which tells its size and has a checksum. Raises
    RecordError where it is damaged, or unpacks to more than any record file."""
    try:
        frame = zstandard.get_frame_parameters(content)
        if not frame.has_checksum:
            raise RecordError(f"{place}: has no checksum: unpack it (zstd -d) and publish it again")
        if frame.content_size > LARGEST_BYTES:
            raise RecordError(f"{place}: tells no size of at most {LARGEST_BYTES:,} bytes")
        return zstandard.ZstdDecompressor().decompress(
            content, max_output_size=LARGEST_BYTES, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise RecordError(f"{place}: cannot be decompressed: {error}; copy it again") from None


def _sorted(files: Iterable[Path]) -> list[Path]:
    kept = [file for file in files if file.name.endswith((WRITTEN, PUBLISHED))]
    return sorted(kept, key=lambda file: (file.parent, stem_of(file), not is_published(file)))
