"""torch's TCPStore, through which ranks speak: who listens, and lines of messages in it."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from datetime import timedelta
from functools import cache
from threading import Event, Lock, Thread
from typing import Any

from gpulift.ground.errors import GpuliftError
from gpulift.ranks import key as keys
from gpulift.ranks.launched import LOOPBACK, Launched

MEETING_S = 50.0  # for all ranks to come
RETRY_S = 0.3
LOOK_S = 1.0  # between two looks at whether waits are to end
LEAST_S = 0.01  # of a wait: without any it would never end
LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"

Json = dict[str, Any]


class Lost(Exception):
    """The store is gone, and with it the rank or launcher that held it."""


class Forged(Lost):
    """A message that who has the key did not sign."""


@cache  # so that no thread changes the environment: the first store is made before there are any
def _torch_distributed() -> Any:
    """Loaded such that it does not log each wait that comes to nothing. Throws GpuliftError."""
    before = os.environ.get(LOG_LEVEL)
    os.environ[LOG_LEVEL] = "ERROR"
    try:
        import torch.distributed
    except ModuleNotFoundError:
        raise GpuliftError("--ranks given: needs torch in the Python that runs gpulift") from None
    finally:
        del os.environ[LOG_LEVEL]
        if before is not None:
            os.environ[LOG_LEVEL] = before
    return torch.distributed


class Store:
    """A connection of its own to what all ranks share; each thread that waits needs one. Waits of
    all of them end when one is closed. Who reaches the port can write there, too: messages are
    signed, each for its own key of the store."""

    def __init__(
        self, place: Launched, secret: bytes, *, serves: bool = False, closed: Event | None = None
    ) -> None:
        self._closed = closed or Event()
        self._place, self._secret = place, secret
        self._prefix = f"gpulift/{place.attempt}/"
        self._store = _torch_distributed().TCPStore(
            place.address,
            place.port,
            is_master=serves,
            timeout=timedelta(seconds=MEETING_S),
            wait_for_workers=False,
            master_listen_fd=_listening(place) if serves else None,
        )

    def again(self) -> Store:
        """Another connection. Throws Lost."""
        try:
            return Store(self._place, self._secret, closed=self._closed)
        except RuntimeError as error:
            raise Lost from error

    def bind(self, nonces: Sequence[str]) -> None:
        """From now on messages are of this run, also those of connections that are made then."""
        self._secret = keys.of_run(self._secret, nonces)

    def close(self) -> None:
        """Ends waits: a thread that waits in torch when Python ends would end it by a signal."""
        self._closed.set()

    def put(self, key: str, message: Json) -> None:
        """Throws Lost."""
        name = self._prefix + key
        try:
            self._store.set(name, keys.sealed(self._secret, name, json.dumps(message)))
        except RuntimeError as error:
            raise Lost from error

    def wait(self, key: str, limit_s: float) -> bool:
        """Whether it came within the limit. Throws Lost."""
        until_s = time.monotonic() + limit_s
        while not self._closed.is_set():
            left_s = max(until_s - time.monotonic(), LEAST_S)
            try:
                wait = timedelta(seconds=min(left_s, LOOK_S))
                self._store.wait([self._prefix + key], wait)
            except RuntimeError as error:
                if "timeout" not in str(error):
                    raise Lost from error
            else:
                return True
            if left_s <= LOOK_S:
                return False
        raise Lost

    def get(self, key: str, limit_s: float) -> Json | None:
        """What came within the limit. Throws Lost, and Forged of what was not signed."""
        if not self.wait(key, limit_s):
            return None
        name = self._prefix + key
        try:
            came: bytes = self._store.get(name)
        except RuntimeError as error:
            raise Lost from error
        text = keys.opened(self._secret, name, came.decode("utf-8", "replace"))
        if text is None:
            raise Forged
        message: Json = json.loads(text)
        return message

    def take(self, key: str, limit_s: float) -> Json | None:
        """The same, which is then gone."""
        message = self.get(key, limit_s)
        if message is not None:
            self.drop(key)
        return message

    def drop(self, key: str) -> None:
        """It is no longer needed."""
        with suppress(RuntimeError):
            self._store.delete_key(self._prefix + key)


class Writer:
    """One end of a line of messages; several threads may write."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._lock, self._count = Lock(), 0

    def put(self, message: Json) -> None:
        """The next. Throws Lost."""
        with self._lock:
            self._store.put(f"{self._name}/{self._count}", message)
            self._count += 1


class Reader:
    """The other end, of one thread."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._count = 0

    def take(self, limit_s: float) -> Json | None:
        """The next, if it comes within the limit. Throws Lost."""
        message = self._store.take(f"{self._name}/{self._count}", limit_s)
        if message is not None:
            self._count += 1
        return message


def meet(place: Launched, secret: bytes) -> Store:
    """The store of all ranks, which rank 0 holds where the launcher has none. Throws GpuliftError
    where the host's name says nothing, or nobody listens at the port."""
    serves = place.rank == 0 and not place.store_is_there
    try:
        socket.getaddrinfo(place.address, place.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise GpuliftError(
            f"--ranks given: MASTER_ADDR {place.address} does not resolve on the host of rank"
            f" {place.rank}: {error.strerror}"
        ) from None
    _torch_distributed()
    if not serves:
        _require_listening(place)
    try:
        return Store(place, secret, serves=True) if serves else _joined(place, secret)
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise GpuliftError(
            f"--ranks given: rank {place.rank} cannot meet the others at"
            f" {place.address}:{place.port}: {why}"
        ) from None


def _joined(place: Launched, secret: bytes) -> Store:
    """Throws OSError where who listens is no store: torch would wait for its answer without end;
    or RuntimeError."""
    joined: Future[Store] = Future()

    def join() -> None:
        try:
            joined.set_result(Store(place, secret))
        except Exception as error:
            joined.set_exception(error)

    Thread(target=join, daemon=True).start()
    try:
        return joined.result(MEETING_S)
    except FutureTimeout:
        raise OSError(errno.ETIMEDOUT, "who listens there is no store") from None


def _listening(place: Launched) -> int:
    """On all addresses, by which other hosts may know this one; where there are none, on that."""
    if place.address == LOOPBACK:
        return socket.create_server((LOOPBACK, place.port)).detach()
    has_both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if has_both else socket.AF_INET
    listening = socket.create_server(("", place.port), family=family, dualstack_ipv6=has_both)
    return listening.detach()


def _require_listening(place: Launched) -> None:
    """Waits until somebody does."""
    until_s = time.monotonic() + MEETING_S
    while True:
        try:
            limit_s = max(RETRY_S, until_s - time.monotonic())
            socket.create_connection((place.address, place.port), timeout=limit_s).close()
            return
        except OSError as error:
            if time.monotonic() + RETRY_S >= until_s:
                why = error.strerror or "no answer"
                raise GpuliftError(
                    f"--ranks given: rank {place.rank} does not reach rank 0 at"
                    f" {place.address}:{place.port} ({why}): is the port open between the hosts,"
                    " and did rank 0 start?"
                ) from None
        time.sleep(RETRY_S)
