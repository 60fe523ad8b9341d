"""The child process `changefeed run --stdio`: its pipes, its log and its end."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import sys
from collections.abc import Callable
from typing import Any, cast

from changefeed import _binary
from changefeed._connection import Connection
from changefeed._errors import ChangefeedError

if sys.platform == "linux":
    import fcntl

log = logging.getLogger("changefeed")

_LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}
_STDOUT, _STDERR = 1, 2
_F_SETPIPE_SZ = 1031  # fcntl has a name for it since Python 3.10, but not on every Linux
_PIPE = 1 << 20  # bytes, which is what a user without rights may ask for


@dataclasses.dataclass(frozen=True)
class Event:
    """What has happened in the processor: docs/program.md lists the events and their members.

    name is ready, lease, parked, outage or problem; fields has the other members.
    """

    name: str
    fields: dict[str, Any]


def event_of(message: dict[str, Any]) -> Event:
    """The event of a message."""
    return Event(str(message["type"]), {key: value for key, value in message.items() if key != "type"})


class Child(asyncio.SubprocessProtocol):
    """A running binary. Its log goes to logging.getLogger("changefeed")."""

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._rest = b""
        self._last: collections.deque[str] = collections.deque(maxlen=20)  # lines that are no log
        self._error: ChangefeedError | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self.connection: Connection | None = None
        self.over: asyncio.Future[int] = loop.create_future()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._broken: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        _enlarge(self._transport.get_pipe_transport(_STDOUT))

    def write(self, data: bytes) -> None:
        """Sends a message."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    def close(self) -> None:
        """Ends the connection at once: the binary frees its leases and ends."""
        if self._stdin is not None:
            self._stdin.close()

    def kill(self) -> None:
        """Ends the binary at once, if it is still there."""
        if self._transport is not None and not self.over.done():
            self._transport.kill()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            for line in lines:
                self._logged(line.decode("utf-8", "replace"))
        elif self.connection is not None and self._broken is None:
            try:
                self.connection.feed(data)
            except Exception as error:  # a message that this library cannot read
                self._broken = error
                self.close()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDOUT and self.connection is not None:
            self.connection.end("stopped" if self.connection.stopping else "lost")

    def connection_lost(self, exc: Exception | None) -> None:
        """All pipes are closed and the process has ended."""
        if self._rest:
            self._logged(self._rest.decode("utf-8", "replace"))
        code = None
        if self._transport is not None:
            code = self._transport.get_returncode()
            self._transport.close()
        if not self.over.done():
            self.over.set_result(-1 if code is None else code)

    async def begun(self, *, ready: bool = False) -> None:
        """Waits for the hello, or for the leases of the unit, or for the end."""
        assert self.connection is not None
        waiting: list[asyncio.Future[Any]] = [self.over, self.ready if ready else self.connection.greeted]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    def error(self) -> ChangefeedError | None:
        """Why the binary has ended; None if in order."""
        if self._broken is not None:
            error = ChangefeedError(f"a message of the binary cannot be read: {self._broken}")
            error.__cause__ = self._broken
            return error
        code = self.over.result()
        if code == 0:
            return None
        if self.connection is not None and self.connection.failure is not None:
            return self.connection.failure
        if self._error is not None:
            return self._error
        return ChangefeedError(" ".join([f"the binary has ended with {code}", *self._last]))

    def _logged(self, line: str) -> None:
        row = _binary.parse(line)
        if row is None:
            if line.strip():
                self._last.append(line)
                log.warning("%s", line)
        elif row.get("kind") == "error":
            self._error = _binary.error_in([line])
        elif "msg" in row:
            self._event(row)
        elif "text" in row:
            log.info("%s", row["text"])

    def _event(self, row: dict[str, Any]) -> None:
        level = _LEVELS.get(str(row.pop("level", "INFO")), logging.INFO)
        name = str(row.pop("msg"))
        row.pop("time", None)
        if log.isEnabledFor(level):
            fields = " ".join(f"{key}={value}" for key, value in row.items())
            log.log(level, "%s %s", name, fields, extra={"changefeed": row})

    def heard(self, message: dict[str, Any]) -> None:
        """Hands an event of the processor on."""
        name = str(message["type"])
        if name == "ready" and not self.ready.done():
            self.ready.set_result(None)
        if self._on_event is not None:
            try:
                self._on_event(event_of(message))
            except Exception:
                log.exception("on_event has failed at %r", name)


def _enlarge(transport: asyncio.BaseTransport | None) -> None:
    """Lets a batch fit into the pipe, where the system can."""
    pipe = None if transport is None else transport.get_extra_info("pipe")
    if sys.platform == "linux" and pipe is not None:
        # The user may have too many pipes already, and a processor that is canceled at its start has closed this one.
        with contextlib.suppress(OSError, ValueError):
            fcntl.fcntl(pipe.fileno(), _F_SETPIPE_SZ, _PIPE)


async def start(
    command: list[str],
    env: dict[str, str],
    on_event: Callable[[Event], None] | None,
    connect: Callable[[Child], Connection],
) -> Child:
    """Starts a binary and says hello."""
    loop = asyncio.get_running_loop()
    child = Child(on_event)

    def protocol() -> Child:
        child.connection = connect(child)
        return child

    await loop.subprocess_exec(protocol, *command, env=env, **_binary.isolated())
    assert child.connection is not None
    child.connection.start()
    return child
