"""A change feed processor in this process: its engine is the binary changefeed, a child process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import types
from collections.abc import Callable
from typing import Literal

from changefeed import _binary, _child, _credential, _options, _signals, _status
from changefeed._child import Event
from changefeed._connection import Connection, Handler
from changefeed._errors import ChangefeedError, Seconds, seconds_of

log = logging.getLogger("changefeed")

_FIRST_POLL, _LAST_POLL = 0.05, 1.0  # seconds between two looks at the lag
_KILL_AFTER = 5.0  # seconds, when the pipes are closed


class Processor:
    """Calls a handler with each batch of changes of a container.

    All processors of a name, wherever they run, share the work. The handler is a coroutine function, which is canceled
    when its batch is, or a plain function, which runs in a thread and looks at batch.cancelled. If it returns, the
    batch is done; if it raises, the batch has failed (see Failure and Poison) and comes again.

    start is where a NEW unit begins. If it is None, the binary begins at the beginning of the feed (mode="all": now).
    A unit that has begun continues at its position, and refuses another start.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str,
        handler: Handler,
        leases: str | None = None,
        create_leases: bool = False,
        instance: str | None = None,
        start: _options.Start | None = None,
        mode: Literal["latest", "all"] = "latest",
        batches: int = 8,
        batch_size: int | None = None,
        concurrency: int | None = None,
        manual: bool = False,
        max_attempts: int | None = None,
        max_age: Seconds | None = None,
        max_set_aside: int | None = None,
        dead_letters: str | None = None,
        hold: bool = False,
        once: bool = False,
        timeout: Seconds | None = None,
        drain: Seconds | None = None,
        expiration: Seconds | None = None,
        renew: Seconds | None = None,
        acquire: Seconds | None = None,
        poll: Seconds | None = None,
        min_leases: int | None = None,
        share_by_load: bool = False,
        weight: int | None = None,
        variant: str | None = None,
        credential: str | _credential.TokenCredential | None = None,
        connection_string: str | None = None,
        endpoint: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        context: str | None = None,
        binary: str | os.PathLike[str] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        if not callable(handler):
            raise TypeError(f"handler is {handler!r}: want a function of a batch")
        if batches < 1:
            raise ValueError(f"batches is {batches}: want 1 or more")
        self.name, self.source = name, source
        self._handler, self._batches, self._on_event = handler, batches, on_event
        self._leases, self._given_binary = leases, binary
        self._account = _options.flags({"ca": None if ca is None else os.fspath(ca), "context": context})
        key = credential if isinstance(credential, str) else None
        identity = None if isinstance(credential, str) else credential
        self._token = None if identity is None else _credential.tokens_of(identity)
        self._env = _options.environment(key, connection_string, endpoint)
        self._flags = _options.flags(
            {
                "source": source,
                "name": name,
                "leases": leases,
                "create_leases": create_leases,
                "instance": instance,
                "from": _options.start(start),
                "mode": mode,
                "batch_size": batch_size,
                "concurrency": concurrency,
                "manual": manual,
                "max_attempts": max_attempts,
                "max_age": _options.duration("max_age", max_age),
                "max_set_aside": max_set_aside,
                "dead_letters": dead_letters,
                "hold": hold,
                "once": once,
                "timeout": _options.duration("timeout", timeout),
                "drain": _options.duration("drain", drain),
                "expiration": _options.duration("expiration", expiration),
                "renew": _options.duration("renew", renew),
                "acquire": _options.duration("acquire", acquire),
                "poll": _options.duration("poll", poll),
                "min_leases": min_leases,
                "share_by_load": share_by_load,
                "weight": weight,
                "token_from_program": self._token is not None,
                "variant": variant or f"{getattr(handler, '__module__', '')}.{_name_of(handler)}",
            }
        )
        self._child: _child.Child | None = None
        self._asked = False  # to stop
        self._hurried = asyncio.Event()  # nobody waits for handlers any more

    @property
    def running(self) -> bool:
        """Whether the processor has started and has not ended."""
        return self._child is not None and not self._child.over.done()

    async def start(self) -> None:
        """Starts the processor; returns when it has opened its containers. Raises ChangefeedError if it cannot."""
        if self._child is not None:
            raise RuntimeError("the processor has been started before: make another one")
        verbose = "-vv" if log.isEnabledFor(logging.DEBUG) else "-v"
        command = [
            _binary.find(self._given_binary),
            "run",
            *self._flags,
            *self._account,
            "--stdio",
            "-o",
            "json",
            verbose,
        ]

        def connect(child: _child.Child) -> Connection:
            return Connection(
                self._handler, batches=self._batches, write=child.write, on_event=child.heard, token=self._token
            )

        self._child = child = await _child.start(command, self._env, self._on_event, connect)
        assert child.connection is not None
        if self._asked:
            child.connection.stop()
        try:
            await child.begun(ready=self._token is not None)
        except asyncio.CancelledError:
            await self._abandon()
            raise
        if child.over.done() and not child.connection.greeted.done():
            await self.wait()
            if not self._asked:
                raise ChangefeedError("the binary has ended before it said hello")
        if child.over.done() and self._token is not None and not child.ready.done():
            await self.wait()

    async def wait(self) -> None:
        """Waits for the end of the processor. Raises ChangefeedError if it ends with an error."""
        child = self._started()
        await asyncio.shield(child.over)
        assert child.connection is not None
        await _first(child.connection.idle, self._hurried)
        error = child.error()
        if error is not None:
            raise error

    async def stop(self) -> None:
        """Ends the processor in order: batches in hand have `drain` to finish, and positions are stored."""
        self._started()
        self._ask_to_stop()
        try:
            await self.wait()
        except asyncio.CancelledError:
            await self._abandon()
            raise

    async def run(self) -> None:
        """Runs the processor until SIGTERM or SIGINT, as the binary does; a second signal ends everything at once."""
        with _signals.caught(asyncio.get_running_loop(), self._ask_to_stop, self._hurry):
            await self.start()
            try:
                await self.wait()
            except asyncio.CancelledError:
                await self.stop()
                raise

    def run_sync(self) -> None:
        """The same in a program without a loop."""
        asyncio.run(self.run())

    async def __aenter__(self) -> Processor:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        try:
            await self.stop()
        except ChangefeedError:
            if error is None:
                raise
            log.exception("the processor has ended with an error")

    async def status(self) -> _status.Status:
        """The leases of the unit, and what is still to come. What is not known is None."""
        connection = self._open()
        if connection is not None:
            try:
                return _status.status_in(self.name, (await connection.ask("status"))["status"])
            except ChangefeedError:
                if not connection.ended:
                    raise
        if self._token is not None:
            raise ChangefeedError(
                "changefeed leases cannot use the credential of this process",
                code="usage",
                hint="Call status() while the processor runs, or give it a key.",
            )
        arguments = ["leases", _options.beside(self.source, self._leases), "--source", self.source, *self._account]
        try:
            rows = await _binary.run_async(_binary.find(self._given_binary), arguments, env=self._env)
        except ChangefeedError as error:
            if error.code != "missing" or error.error.startswith(("--ca ", "--context ")):
                raise
            rows = []  # the lease container is not there yet
        return _status.status_of(self.name, self.source, rows)

    async def lag(self) -> int | None:
        """How many changes are still to come; None if that is unknown, never 0."""
        return (await self.status()).pending

    async def caught_up(self, timeout: Seconds | None = None) -> None:
        """Waits until every change written before the call is handled; raises TimeoutError after so many seconds."""
        seconds = None if timeout is None else seconds_of(timeout)
        connection = self._open()
        if connection is not None:
            try:
                await connection.ask("caughtup", seconds)
                return
            except ChangefeedError as error:
                if error.code == "timeout":
                    rest = _rest(await self.status())
                    raise TimeoutError(f"not caught up after {seconds} s: {rest}") from None
                if not connection.ended:
                    raise
        await self._poll_until_caught_up(seconds)

    def _open(self) -> Connection | None:
        """The connection of a processor that runs."""
        if self._child is None or self._child.connection is None or self._child.connection.ended:
            return None
        return self._child.connection

    async def _poll_until_caught_up(self, seconds: float | None) -> None:
        status = None
        pause = _FIRST_POLL

        async def poll() -> None:
            nonlocal status, pause
            while True:
                status = await self.status()
                if status.caught_up:
                    return
                if self._child is not None and self._child.over.done():
                    await self.wait()
                    raise ChangefeedError(f"the processor has ended before it had caught up: {_rest(status)}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LAST_POLL)

        try:
            await asyncio.wait_for(poll(), seconds)
        except asyncio.TimeoutError:
            raise TimeoutError(f"not caught up after {seconds} s: {_rest(status)}") from None

    def _started(self) -> _child.Child:
        if self._child is None:
            raise RuntimeError("the processor has not been started")
        return self._child

    def _ask_to_stop(self) -> None:
        self._asked = True
        if self._child is not None and self._child.connection is not None:
            self._child.connection.stop()

    def _hurry(self) -> None:
        """Ends everything at once: batches in hand come again."""
        self._hurried.set()
        if self._child is not None:
            self._child.close()

    async def _abandon(self) -> None:
        """Ends the binary without waiting for batches: its leases are free at once."""
        child = self._started()
        child.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(child.over), _KILL_AFTER)
        child.kill()


async def _first(*events: asyncio.Event) -> None:
    """Waits for one of the events."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _rest(status: _status.Status | None) -> str:
    if status is None:
        return "the status is unknown"
    if status.pending is None:
        return f"the number of changes to come is unknown ({status.unknown})"
    return f"{status.pending} changes are still to come" + (f" ({', '.join(status.stuck)})" if status.stuck else "")


def _name_of(handler: Handler) -> str:
    return str(getattr(handler, "__qualname__", type(handler).__qualname__))
