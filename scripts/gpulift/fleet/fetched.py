"""What a node sends of its results: believed to be files, and nothing else of it."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from gpulift.fleet.kept import RESULTS
from gpulift.ground.errors import GpuliftError, write_error

MOST_FILES = 10_000
LONGEST_PATH = 512


def unpack(packed: bytes, folder: Path, most_bytes: int) -> None:
    """Replaces the folder's results by those of a tar archive. Raises GpuliftError where that holds
    anything but regular files and folders below results/, or more than it may, or is cut short;
    then there are none."""
    results = folder / RESULTS
    shutil.rmtree(results, ignore_errors=True)
    with ExitStack() as undone:
        undone.callback(shutil.rmtree, results, ignore_errors=True)
        try:
            results.mkdir()
            for path, content in _files(packed, most_bytes):
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("xb") as written:  # no name comes twice
                    written.write(content)
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise GpuliftError(f"they are no whole archive: {error}") from None
        except OSError as error:
            raise write_error(results, error) from None
        undone.pop_all()


def _files(packed: bytes, most_bytes: int) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Their paths and contents."""
    total = 0
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
        for number, member in enumerate(archive):
            path = PurePosixPath(member.name)
            name = repr(member.name[:LONGEST_PATH])
            is_below = path.parts[:1] == (RESULTS,) and ".." not in path.parts
            if not is_below or len(member.name) > LONGEST_PATH:
                raise GpuliftError(f"{name} is not below {RESULTS}/")
            if not (member.isreg() or member.isdir()) or member.issparse():
                raise GpuliftError(f"{name} is neither a file nor a folder")
            total += member.size
            if number == MOST_FILES or total > most_bytes:
                raise GpuliftError(f"more than {MOST_FILES} files or {most_bytes >> 20} MiB came")
            content = archive.extractfile(member)
            if content is not None:
                yield path, content.read()
