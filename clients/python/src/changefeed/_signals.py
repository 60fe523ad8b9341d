"""SIGINT and SIGTERM end a processor in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def caught(loop: asyncio.AbstractEventLoop, first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Calls a function in the loop at the first signal, and another one at each further signal."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    count = 0

    def act() -> None:
        nonlocal count
        count += 1
        (first if count == 1 else second)()

    def take(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(act)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            try:
                loop.add_signal_handler(number, act)
            except NotImplementedError:  # Windows
                signal.signal(number, take)
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
