"""Compressed records: what is damaged, has no checksum or unpacks beyond all bounds is refused."""

from __future__ import annotations

import random

import pytest
import zstandard

from gpulift.ground.errors import RecordError
from gpulift.records.files import LARGEST_BYTES, compressed, decompressed

CONTENT = b'{"device_s": [0.0012345, 0.0012361]}\n' * 50


def test_what_is_written_comes_back() -> None:
    assert decompressed(compressed(CONTENT), "a.jsonl.zst") == CONTENT
    assert decompressed(compressed(b""), "a.jsonl.zst") == b""


def test_no_single_flipped_bit_is_read_silently() -> None:
    """Some flips are of bits that say nothing; none may change what is read."""
    whole = compressed(CONTENT)
    places = random.Random(7).sample(range(8 * len(whole)), 400)
    refused = 0
    for place in places:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        try:
            assert decompressed(bytes(damaged), "a.jsonl.zst") == CONTENT
        except RecordError:
            refused += 1
    assert refused > 0.9 * len(places)


def test_without_a_checksum_nobody_knows() -> None:
    silent = zstandard.ZstdCompressor(write_checksum=False).compress(CONTENT)
    with pytest.raises(RecordError, match=r"no checksum: unpack it \(zstd -d\) and publish"):
        decompressed(silent, "a.jsonl.zst")


def test_what_unpacks_to_gigabytes_is_refused_before() -> None:
    chunks = (bytes(2**20) for _ in range(LARGEST_BYTES // 2**20 + 1))
    told = zstandard.ZstdCompressor(write_checksum=True).compressobj(size=LARGEST_BYTES + 2**20)
    bomb = b"".join(map(told.compress, chunks)) + told.flush()
    assert len(bomb) < 2**16
    with pytest.raises(RecordError, match="no size of at most 268,435,456 bytes"):
        decompressed(bomb, "a.jsonl.zst")
    untold = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    with pytest.raises(RecordError, match="no size of at most"):
        decompressed(untold.compress(CONTENT), "a.jsonl.zst")
