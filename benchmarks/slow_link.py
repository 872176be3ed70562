"""A TCP link that is as slow as one to a data centre: run as a program, prints its port.

    python -m benchmarks.slow_link PORT DELAY_MS MIB_PER_S

Each connection waits ``DELAY_MS`` before its first byte comes back, and carries ``MIB_PER_S`` in
each direction. Several connections do not slow each other down, as with S3 and unlike a disk.
"""

import asyncio
import sys

_CHUNK_BYTES = 64 * 1024
_CATCH_UP_S = 0.02
"""Delay caused by the machine that a connection may make up for."""


class Link:
    """Forwards connections to ``port`` of this machine."""

    def __init__(self, port: int, delay_s: float, bytes_per_s: float) -> None:
        self._port = port
        self._delay_s = delay_s
        self._bytes_per_s = bytes_per_s

    async def serve(self) -> None:
        """Print the port, then forward until the process is ended."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0, limit=_CHUNK_BYTES)
        print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - this is its answer
        await server.serve_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        asked = asyncio.Event()
        try:
            await asyncio.gather(
                self._forward(reader, up_writer, asked), self._answer(up_reader, writer, asked)
            )
        except OSError:
            pass  # One side went away; so does the other.
        finally:
            up_writer.close()
            writer.close()

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: asyncio.Event
    ) -> None:
        free_at = 0.0
        while data := await source.read(_CHUNK_BYTES):
            asked.set()
            free_at = await self._carry(data, target, free_at)
        target.close()

    async def _answer(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: asyncio.Event
    ) -> None:
        free_at = 0.0
        while data := await source.read(_CHUNK_BYTES):
            if asked.is_set():  # The first of an answer.
                asked.clear()
                await asyncio.sleep(self._delay_s)
            free_at = await self._carry(data, target, free_at)
        target.close()

    async def _carry(self, data: bytes, target: asyncio.StreamWriter, free_at: float) -> float:
        """Hand ``data`` on when the link is free; returns when it is free again."""
        clock = asyncio.get_running_loop().time
        free_at = max(free_at, clock() - _CATCH_UP_S) + len(data) / self._bytes_per_s
        await asyncio.sleep(max(0.0, free_at - clock()))
        target.write(data)
        await target.drain()
        return free_at


if __name__ == "__main__":
    to_port, delay_ms, mib_per_s = sys.argv[1:]
    link = Link(int(to_port), float(delay_ms) / 1000, float(mib_per_s) * 1024**2)
    asyncio.run(link.serve())
