"""A proxy on the loopback that hands on late what a client sends: a network's latency, emulated.

A process of its own: `python late_proxy.py PORT SECONDS`, which prints where it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

LOCAL = "127.0.0.1"
PIECE_BYTES = 1 << 16


async def hand_on(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, late_s: float
) -> None:
    """Until the source ends."""
    with contextlib.suppress(ConnectionError), contextlib.closing(target):
        while piece := await source.read(PIECE_BYTES):
            await asyncio.sleep(late_s)
            target.write(piece)
            await target.drain()


async def serve(port: int, late_s: float) -> None:
    """Connections do not wait for each other; answers are handed on at once."""

    async def connected(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            answers, asked = await asyncio.open_connection(LOCAL, port)
        except ConnectionError:
            target.close()
            return
        await asyncio.gather(hand_on(source, asked, late_s), hand_on(answers, target, 0.0))

    server = await asyncio.start_server(connected, LOCAL, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
