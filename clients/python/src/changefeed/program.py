"""A long-lived program of `changefeed run --long-lived -- python3 app.py`.

import changefeed.program

async def handle(batch):
    for change in batch:
        print(change.id)

changefeed.program.serve(handle)
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from changefeed import _status
from changefeed._child import Event, event_of
from changefeed._connection import Connection, Handler, Token
from changefeed._errors import ChangefeedError, Seconds, seconds_of

__all__ = ["Unit", "serve", "serve_async"]

log = logging.getLogger("changefeed")

_CHUNK = 1 << 20  # bytes of a read, at most
_VERSION = "1"  # of the contract


class Unit:
    """Asks the processor of a program about its unit: all its instances. Give it to serve()."""

    def __init__(self) -> None:
        self._connection: Connection | None = None

    def _open(self) -> Connection:
        if self._connection is None:
            raise ChangefeedError("no program has this unit", code="usage", hint="Give it to serve() before.")
        return self._connection

    async def status(self) -> _status.Status:
        """The leases of the unit, and what is still to come. What is not known is None."""
        connection = self._open()
        answer = await connection.ask("status")
        return _status.status_in(connection.unit, answer["status"])

    async def caught_up(self, timeout: Seconds | None = None) -> None:
        """Waits until everything is handled that was written before the call; timeout in seconds, or a timedelta."""
        await self._open().ask("caughtup", None if timeout is None else seconds_of(timeout))


def serve(
    handler: Handler,
    *,
    batches: int = 8,
    on_event: Callable[[Event], None] | None = None,
    unit: Unit | None = None,
) -> None:
    """Handles batches until the processor ends or wants this program to end.

    The processor is told of no signal: it sends a message when it stops, so SIGINT and SIGTERM are left to it.
    """
    for name in ("SIGINT", "SIGTERM"):
        if threading.current_thread() is threading.main_thread():
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    asyncio.run(serve_async(handler, batches=batches, on_event=on_event, unit=unit))


async def serve_async(
    handler: Handler,
    *,
    batches: int = 8,
    on_event: Callable[[Event], None] | None = None,
    unit: Unit | None = None,
) -> None:
    """The same in a loop of yours, which has to be free for heartbeats. Leaves signals alone."""
    await speak(handler, batches, on_event, unit, None)


async def speak(
    handler: Handler,
    batches: int,
    on_event: Callable[[Event], None] | None,
    unit: Unit | None,
    token: Token | None,
) -> None:
    """Speaks the contract over the pipes of this process. The processor of a program asks for no token."""
    read_fd, write_fd = _descriptors()
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    hear = None if on_event is None else _hearer(on_event)
    connection = Connection(handler, batches=batches, write=_writer(write_fd), on_event=hear, token=token)
    if unit is not None:
        unit._connection = connection
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


def _hearer(on_event: Callable[[Event], None]) -> Callable[[dict[str, Any]], None]:
    def hear(message: dict[str, Any]) -> None:
        try:
            on_event(event_of(message))
        except Exception:
            log.exception("on_event has failed at %r", message["type"])

    return hear


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
