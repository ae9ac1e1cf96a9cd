"""Rank 0's end: passes on what gpulift-bench and workers elsewhere say to each other, through the
store, and tells the clocks of other hosts."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from gpulift.ranks.clocks import Clock, RoundTrip
from gpulift.ranks.relay import ENDED
from gpulift.ranks.store import LOOK_S, Lost, Reader, Store, Writer

Json = dict[str, Any]

SIGN_S = 5.0  # between two signs of life
SILENCE_S = 20.0  # after which a rank counts as dead
TRIPS = 8  # behind a window, of which the shortest counts
GONE = "the process that its launcher started no longer answers"


class Rank:
    """Another rank as rank 0 knows it: whether it lives, what its clock is, its lines so far."""

    def __init__(self, store: Store, rank: int, *, own_clock: bool) -> None:
        self.rank = rank
        self.clock = Clock() if own_clock else None  # one host has one
        self.dead = Event()
        self._store = store
        self._sessions, self._trips = 0, 0
        self._counting, self._asking = Lock(), Lock()

    def begin_session(self, store: Store) -> int:
        """The number of a new one, of which the rank hears."""
        with self._counting:
            number = self._sessions
            self._sessions += 1
        store.put(f"{self.rank}/session/{number}", {"session": number})
        return number

    def leave(self, store: Store, code: int) -> None:
        """There are no more, and it ends with this exit code."""
        store.put(f"{self.rank}/session/{self._sessions}", {"bye": code})

    def ask_clock(self, trips: int = 1) -> None:
        """Round trips; without an answer in time it is dead."""
        with self._asking:
            for _ in range(trips):
                trip = None if self.dead.is_set() else self._round_trip()
                if trip is None:
                    self.dead.set()
                elif self.clock is not None:
                    self.clock.hear(trip)

    def _round_trip(self) -> RoundTrip | None:
        number = self._trips
        self._trips += 1
        ping, pong = (f"{self.rank}/{way}/{number}" for way in ("ping", "pong"))
        try:
            sent_s = time.monotonic()
            self._store.put(ping, {})
            came = self._store.wait(pong, SILENCE_S)
            received_s = time.monotonic()
            answer = self._store.take(pong, SILENCE_S) if came else None
        except Lost:
            return None
        self._store.drop(ping)
        return None if answer is None else RoundTrip(sent_s, answer["s"], received_s)

    def on_own_clock(self, answer: Json) -> Json:
        """A window as this host's clock tells it."""
        if self.clock is None or "start_s" not in answer:
            return answer
        self.ask_clock(TRIPS)
        start_s, error_s = self.clock.here(answer["start_s"])
        return {**answer, "start_s": start_s, "clock_error_s": error_s}


class Hub:
    """Listens at a socket in the folder for relays, one for each worker elsewhere."""

    def __init__(self, store: Store, folder: Path, nodes: Sequence[int]) -> None:
        self.path = folder / "hub"
        self._store = store
        self._ranks: Mapping[int, Rank] = {
            rank: Rank(store.again(), rank, own_clock=node != nodes[0])
            for rank, node in enumerate(nodes)
            if rank > 0
        }
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.path))
        self._listening.listen(len(nodes))
        self._closed = Event()
        self._threads: list[Thread] = []
        self._start(self._accept)
        for rank in self._ranks.values():
            self._start(self._keep, rank)

    def close(self, code: int) -> None:
        """Lets all ranks end with this exit code, and waits for those that live."""
        self._closed.set()
        alive = [rank for rank in self._ranks.values() if not rank.dead.is_set()]
        with suppress(Lost):
            for rank in alive:
                rank.leave(self._store, code)
            until_s = time.monotonic() + SIGN_S
            for rank in alive:
                self._store.wait(f"{rank.rank}/left", until_s - time.monotonic())
        self._store.close()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(SIGN_S)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = Thread(target=work, args=arguments, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _keep(self, rank: Rank) -> None:
        """Asks now and then for a sign of life."""
        while not rank.dead.is_set():
            rank.ask_clock()
            if self._closed.wait(SIGN_S):
                return

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                relay, _ = self._listening.accept()
                self._start(self._serve, relay)

    def _serve(self, relay: socket.socket) -> None:
        with relay, relay.makefile("rb") as questions, suppress(OSError, ValueError):
            rank = self._ranks[int(questions.readline())]
            try:
                session = Session(rank, self._store.again(), self._store.again())
                asking = Thread(target=session.ask, args=(questions,), daemon=True)
                asking.start()
                session.answer(relay)
                relay.shutdown(socket.SHUT_RD)  # which ends the questions
                asking.join()
            except Lost:
                relay.sendall(_line({"error": GONE}))


class Session:
    """A worker elsewhere, from the start to its end."""

    def __init__(self, rank: Rank, down: Store, up: Store) -> None:
        number = rank.begin_session(down)
        self._rank = rank
        self._down = Writer(down, f"{rank.rank}/{number}/down")
        self._up = Reader(up, f"{rank.rank}/{number}/up")

    def ask(self, questions: Any) -> None:
        """What gpulift-bench says, until it says no more or is gone: the worker then ends, too."""
        with suppress(Lost):
            with suppress(OSError, ValueError):
                for line in questions:
                    self._down.put({"line": line.decode()})
            self._down.put({"end": True})

    def answer(self, relay: socket.socket) -> None:
        """What the worker says, and at last how it ended. Throws Lost."""
        while not self._rank.dead.is_set():
            message = self._up.take(LOOK_S)
            if message is None:
                continue
            if "ended" in message:
                relay.sendall(ENDED + str(message["ended"]).encode() + b"\n")
                return
            relay.sendall(self._told(message["line"]))
        relay.sendall(_line({"error": GONE}))

    def _told(self, line: str) -> bytes:
        try:
            answer = json.loads(line)
        except ValueError:
            return line.encode()
        return _line(self._rank.on_own_clock(answer)) if "start_s" in answer else line.encode()


def _line(message: Json) -> bytes:
    return json.dumps(message).encode() + b"\n"
