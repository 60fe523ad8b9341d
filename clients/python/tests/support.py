"""What the tests share: one server for all of them."""

from __future__ import annotations

import contextlib
import logging
import os
import unittest
from collections.abc import Iterator
from typing import Any, ClassVar

from changefeed.testing import AsyncServer, server

logging.getLogger("changefeed").addHandler(logging.NullHandler())  # warnings of the binary are expected

logging.getLogger("asyncio").setLevel(logging.ERROR)  # a busy machine is slow

LIMIT = 20.0  # seconds for a step of a test


class WithServer(unittest.IsolatedAsyncioTestCase):
    """A test with a server in memory."""

    running: ClassVar[server]
    account: ClassVar[AsyncServer]

    @classmethod
    def setUpClass(cls) -> None:
        cls.running = server()
        cls.account = cls.running.__enter__().aio

    @classmethod
    def tearDownClass(cls) -> None:
        cls.running.__exit__(None, None, None)


@contextlib.contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Sets variables of the environment, and removes those that are None."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def documents(count: int, key: str = "a") -> list[dict[str, Any]]:
    """Documents with the ids 0, 1, 2 and so on."""
    return [{"id": str(n), "pk": key, "n": n} for n in range(count)]
