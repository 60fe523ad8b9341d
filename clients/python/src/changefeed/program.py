"""A long-lived program of `changefeed run --long-lived -- python3 app.py`.

import changefeed.program

async def handle(batch):
    for change in batch:
        print(change.id)

changefeed.program.serve(handle)
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

from changefeed._connection import Connection, Handler

__all__ = ["serve", "serve_async"]

_CHUNK = 1 << 20  # bytes of a read, at most
_VERSION = "1"  # of the contract


def serve(handler: Handler, *, batches: int = 8) -> None:
    """Handles batches until the processor ends or wants this program to end.

    The processor is told of no signal: it sends a message when it stops, so SIGINT and SIGTERM are left to it.
    """
    for name in ("SIGINT", "SIGTERM"):
        if threading.current_thread() is threading.main_thread():
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    asyncio.run(serve_async(handler, batches=batches))


async def serve_async(handler: Handler, *, batches: int = 8) -> None:
    """The same in a loop of yours, which has to be free for heartbeats. Leaves signals alone."""
    read_fd, write_fd = _descriptors()
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    connection = Connection(handler, batches=batches, write=_writer(write_fd))
    connection.start()

    def take(data: bytes) -> None:
        if over.done():
            return
        try:
            if data:
                connection.feed(data)
            else:
                over.set_result(None)
        except Exception as error:
            over.set_exception(error)

    def read() -> None:
        data = b"first"
        while data:
            try:
                data = os.read(read_fd, _CHUNK)
            except OSError:
                data = b""
            try:
                loop.call_soon_threadsafe(take, data)
            except RuntimeError:  # the loop has ended
                return

    threading.Thread(target=read, name="changefeed pipe", daemon=True).start()
    try:
        await over
    finally:
        connection.end("stopped" if connection.stopping else "lost")
    await connection.idle.wait()


def _descriptors() -> tuple[int, int]:
    version = os.environ.get("CHANGEFEED_CONTRACT")
    if version is None:
        raise SystemExit(
            "CHANGEFEED_CONTRACT is not set: this program is started by "
            f"`changefeed run --long-lived -- python3 {os.path.basename(sys.argv[0])}`"
        )
    if version != _VERSION:
        raise SystemExit(f"CHANGEFEED_CONTRACT is {version}: this library speaks version {_VERSION}")
    return int(os.environ["CHANGEFEED_READ_FD"]), int(os.environ["CHANGEFEED_WRITE_FD"])


def _writer(fd: int) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError:  # the processor has died: the end of the other pipe says so
            pass

    return write
