"""The plugin for pytest: the fixture changefeed_server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from changefeed.testing import Server, server


@pytest.fixture(scope="session")
def changefeed_server() -> Iterator[Server]:
    """A server in memory for the whole session; take a fresh_container in each test."""
    with server() as started:
        yield started
