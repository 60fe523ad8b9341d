"""Threads for plain functions. They are daemons: a function that hangs does not keep the process from its end."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[[], Any], asyncio.Future[Any]]


class Threads:
    """Up to `most` threads, which are started when they are needed and end with close."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._count = 0  # of threads
        self._busy = 0  # jobs that are not finished

    async def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Calls a function in a thread. The function goes on if the caller is canceled."""
        future: asyncio.Future[Any] = self._loop.create_future()
        context = contextvars.copy_context()
        self._jobs.put((lambda: context.run(function, argument), future))
        self._busy += 1
        future.add_done_callback(self._finished)
        if self._busy > self._count and self._count < self._most:
            self._count += 1
            threading.Thread(target=self._work, name=f"changefeed {self._count}", daemon=True).start()
        return await asyncio.shield(future)

    def close(self) -> None:
        """Ends the threads when they have finished their jobs."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _finished(self, future: asyncio.Future[Any]) -> None:
        self._busy -= 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future = job
            result, error = None, None
            try:
                result = function()
            except BaseException as raised:
                error = raised
            try:
                self._loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # the loop has ended
                return


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # which no future can have
        future.set_exception(RuntimeError("the handler has raised StopIteration"))
    else:
        future.set_exception(error)
