"""A TCP proxy that is some time away: ``python -m benchmarks.harness.delay_proxy``.

What comes from either side is passed on so many seconds later, in its order. It waits side by side
and not in turn, so that a long answer takes the delay once. Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from functools import partial

_PIECE = 1 << 16  # bytes
_AHEAD = 256  # pieces that may wait


async def serve(listen: tuple[str, int], target: tuple[str, int], delay: float) -> asyncio.Server:
    """A server on `listen` whose connections reach `target`, each way `delay` seconds later."""
    return await asyncio.start_server(partial(_connected, target, delay), *listen)


async def _connected(
    target: tuple[str, int],
    delay: float,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection(*target)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pass_on(reader, far_writer, delay), _pass_on(far_reader, writer, delay))
    for each in (writer, far_writer):
        each.close()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float
) -> None:
    """Pass on all that comes, and its end."""
    clock = asyncio.get_running_loop().time
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_AHEAD)
    writing = asyncio.create_task(_write_when_due(waiting, writer))
    piece = b"some"
    while piece:
        try:
            piece = await reader.read(_PIECE)
        except OSError:
            piece = b""
        await waiting.put((clock() + delay, piece))
    await writing


async def _write_when_due(
    waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        due, piece = await waiting.get()
        if (early := due - clock()) > 0:
            await asyncio.sleep(early)
        with contextlib.suppress(OSError):  # the other side has gone
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()


async def _forever(listen: tuple[str, int], target: tuple[str, int], delay: float) -> None:
    server = await serve(listen, target, delay)
    print("listens", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until it is killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--listen", required=True, help="HOST:PORT")
    parser.add_argument("--target", required=True, help="HOST:PORT")
    parser.add_argument("--delay-ms", type=float, required=True, help="each way")
    given = parser.parse_args()
    if given.delay_ms < 0:
        parser.error("--delay-ms: what was sent cannot come earlier")
    asyncio.run(_forever(_address(given.listen), _address(given.target), given.delay_ms / 1000))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    main()
