"""The newest sample as Prometheus text: a file for node_exporter, or a port to scrape."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import label_value
from gpulift.ground.whole import write_whole
from gpulift.watch.cards import Card
from gpulift.watch.samples import Sample

PREFIX = "gpulift_watch_"
BEGINNING = f"# HELP {PREFIX}".encode()  # of every file of gauges
ADDRESS = "127.0.0.1"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LARGEST_PORT = 65535


def gauges(sample: Sample, cards: Sequence[Card]) -> str:
    """A gauge for each quantity; of GPUs with index and name."""
    labelled: dict[str, list[tuple[str, float]]] = {}
    for quantity, value in sample.job.items():
        labelled[f"job_{quantity}"] = [("", value)]
    for card, gpu in zip(cards, sample.gpus, strict=True):
        labels = f'{{gpu="{card.index}",name="{label_value(card.name)}"}}'
        for quantity, value in gpu.items():
            labelled.setdefault(f"gpu_{quantity}", []).append((labels, value))
    return "".join(f"{line}\n" for line in _lines(labelled))


def _lines(labelled: dict[str, list[tuple[str, float]]]) -> Iterator[str]:
    for quantity, values in labelled.items():
        yield f"# HELP {PREFIX}{quantity} Mean of the newest sample; shares and activities of 1."
        yield f"# TYPE {PREFIX}{quantity} gauge"
        for labels, value in values:
            yield f"{PREFIX}{quantity}{labels} {value!r}"


class GaugeFile:
    """A file that always holds a whole sample, and is gone when the job is."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._is_ours = False

    def write(self, content: str) -> None:
        """Replaces what was there before."""
        write_whole(content, self._file, lasting=False)  # the job's disk is not kept waiting
        self._is_ours = True

    def close(self) -> None:
        """Gauges of a job that has ended would be read as if it went on."""
        if self._is_ours:
            with suppress(OSError):
                self._file.unlink()


class GaugePort:
    """Answers on a port of this machine with the newest sample."""

    def __init__(self, port: int) -> None:
        gauge_port = self
        self._content = b""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(gauge_port._content)))
                self.end_headers()
                self.wfile.write(gauge_port._content)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: it would be among the job's output."""

        try:
            self._server = ThreadingHTTPServer((ADDRESS, port), Handler)
        except OSError as error:
            raise GpuliftError(f"--prometheus {port}: {error.strerror}") from None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """The one that was asked for, or what the kernel chose for 0."""
        return int(self._server.server_address[1])

    def write(self, content: str) -> None:
        """What is answered from now on."""
        self._content = content.encode()

    def close(self) -> None:
        """No more answers."""
        self._server.shutdown()
        self._server.server_close()


def opened(target: str) -> GaugeFile | GaugePort:
    """Of `--prometheus`: a number is a port, all else a file."""
    file = file_of(target)
    if file is None:
        if int(target) > LARGEST_PORT:
            raise GpuliftError(f"--prometheus {target}: a port is at most {LARGEST_PORT}")
        return GaugePort(int(target))
    return GaugeFile(file)


def file_of(target: str) -> Path | None:
    """What `--prometheus` names; None where it is a port."""
    return None if target.isdecimal() else Path(target)
