"""An object store of our own machine: what it serves, how many requests at once, and its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

pytest.importorskip("s3fs")

from gpulift_work import late_proxy, object_store
from gpulift_work.object_store import ObjectStore

IN_FLIGHT = 16


@pytest.fixture(name="folder")
def folder_with_a_bucket(tmp_path: Path) -> Path:
    """Of two objects."""
    bucket = tmp_path / "store" / "samples"
    bucket.mkdir(parents=True)
    for number in range(2):
        (bucket / f"{number}.bin").write_bytes(bytes([number]) * 1000)
    return bucket.parent


def served(folder: Path, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> ObjectStore:
    """The test is skipped without the server's package."""
    try:
        return ObjectStore(folder, delay_s, bytes_per_s)
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))


def test_it_serves_whole_objects_and_parts_of_them(folder: Path) -> None:
    files = served(folder).files(IN_FLIGHT)
    names = [f"samples/{number}.bin" for number in range(2)]
    assert files.cat(names) == {names[0]: bytes(1000), names[1]: b"\1" * 1000}
    assert files.cat_file(names[1], start=10, end=30) == b"\1" * 20


def test_it_answers_nobody_else(folder: Path) -> None:
    store = served(folder)
    with pytest.raises(HTTPError, match=r"40[03]"):
        urlopen(f"{store.address}/samples/0.bin")


def test_a_proxy_of_the_machine_is_not_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert served(folder).files(1).cat_file("samples/0.bin") == bytes(1000)


def test_a_late_network_takes_its_time_of_each_request(folder: Path) -> None:
    store = served(folder, 0.05)
    assert store.notes["network"] == "emulated: a proxy hands each request on 50 ms late"
    files = store.files(1, max_concurrency=1)
    start_s = monotonic()
    files.cat(["samples/0.bin", "samples/1.bin"])
    assert monotonic() - start_s >= 0.1


def test_a_server_hands_out_no_more_than_its_rate_but_for_a_burst(folder: Path) -> None:
    size = object_store.BURST_BYTES + 1_000_000
    (folder / "samples" / "large.bin").write_bytes(bytes(size))
    store = served(folder, bytes_per_s=2e6)
    assert store.notes["network"] == "emulated: the server hands out 2 MB/s, 4 MiB of them at once"
    start_s = monotonic()
    assert store.files(1).cat_file("samples/large.bin") == bytes(size)
    assert monotonic() - start_s >= 0.45


def test_a_server_that_ends_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_proxy, "LOCAL", "no address")
    with pytest.raises(RuntimeError, match=r"rclone does not serve: .*no address"):
        served(folder)


def test_no_server_is_left_behind(folder: Path) -> None:
    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    before = children()
    store = served(folder, 0.001)
    assert len(children() - before) == 2
    del store
    assert children() == before


@pytest.fixture(name="meeting")
def server_that_waits_for_all() -> Iterator[str]:
    """Its address: it answers when so many ask at once."""
    together = threading.Barrier(IN_FLIGHT, timeout=30)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            together.wait()
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"here")

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_as_many_requests_are_in_flight_as_were_asked_for(folder: Path, meeting: str) -> None:
    store = served(folder)
    store.address = meeting
    names = [f"samples/{number}.bin" for number in range(IN_FLIGHT)]
    found = store.files(IN_FLIGHT, max_concurrency=1).cat(names)
    assert found == dict.fromkeys(names, b"here")
