"""What the tests share: one server for all of them."""

from __future__ import annotations

import logging
import unittest
from typing import Any, ClassVar

from changefeed.testing import AsyncServer, server

logging.getLogger("changefeed").addHandler(logging.NullHandler())  # warnings of the binary are expected

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


def documents(count: int, key: str = "a") -> list[dict[str, Any]]:
    """Documents with the ids 0, 1, 2 and so on."""
    return [{"id": str(n), "pk": key, "n": n} for n in range(count)]
