"""A server for tests: an account in memory, or in a directory, which unmodified SDKs use.

    with changefeed.testing.server() as account:               # async with: the same with await
        orders = account.fresh_container(partition_key="/pk")

The server ends with this process, also if the process is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import tempfile
import time
import types
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import IO, Any

from changefeed import _binary, _options, _status
from changefeed._errors import ChangefeedError, Seconds, seconds_of

__all__ = ["AsyncServer", "Container", "Server", "server"]

_POLL = 0.05  # seconds between two looks at the lag
_END_LIMIT = 10.0  # seconds


class Container(str):
    """The address of a container, for Processor and the command."""

    @property
    def database(self) -> str:
        """The name of the database."""
        return self.rsplit("/", 2)[1]

    @property
    def name(self) -> str:
        """The name of the container."""
        return self.rsplit("/", 1)[1]

    @property
    def leases(self) -> str:
        """The address of the lease container that a processor uses by default."""
        return _options.beside(self, None)


class Server:
    """A running server. Each method waits until the work is done: in a coroutine use `aio`."""

    def __init__(
        self, dir: str | os.PathLike[str] | None, binary: str | os.PathLike[str] | None, flags: dict[str, Any]
    ) -> None:
        self._binary = _binary.find(binary)
        self._flags = _options.flags(
            {"db": None if dir is None else os.fspath(dir), "http": True, "faults": True, **flags}
        )
        self._keeps = dir is not None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self.endpoint = ""
        self.key = ""
        self.connection_string = ""
        self.aio = AsyncServer(self)

    @property
    def pid(self) -> int | None:
        """The id of the process; None if it is not running."""
        return None if self._process is None else self._process.pid

    def start(self, listen: str = "127.0.0.1:0") -> None:
        """Starts the server, and waits until it is ready."""
        command = [self._binary, "serve", "--listen", listen, *self._flags, "-o", "json", "--until-stdin-closes"]
        pipe = subprocess.PIPE
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, **_binary.isolated())
        assert process.stdout is not None
        row = _binary.parse(process.stdout.readline().decode())
        if row is None:
            self._process = process
            raise self._end() or ChangefeedError("changefeed serve has ended before it was ready")
        self._process = process
        self.endpoint, self.key = row["endpoint"], row["key"]
        self.connection_string = row["connection_string"]

    def stop(self) -> None:
        """Ends the server in order."""
        self._end()

    def restart(self, *, kill: bool = False) -> None:
        """Ends the server, in order or at once, and starts it again at the same address with the same data."""
        if not self._keeps:
            raise ValueError("the server has its data in memory: want server(dir=...)")
        if kill and self._process is not None:
            self._process.kill()
        self._end()
        self.start(self.endpoint.split("://")[1].strip("/"))

    def fresh_container(self, partition_key: str = "/pk", *, ranges: int = 1, **flags: Any) -> Container:
        """A new container in a database of its own; flags are those of `changefeed create`."""
        address = Container(f"{self.endpoint.rstrip('/')}/test-{secrets.token_hex(4)}/items")
        self._run(["create", address, *_options.flags({"pk": partition_key, "ranges": ranges, **flags})])
        return address

    def put(self, container: str, *documents: dict[str, Any]) -> None:
        """Creates or replaces documents, in their order."""
        self._run(["put", container, "-"], "\n".join(json.dumps(document) for document in documents))

    def ranges(self, container: str) -> list[dict[str, Any]]:
        """The physical partitions: id, range, parents."""
        return self._run(["ranges", container])

    def split(self, container: str, range: str | None = None) -> list[dict[str, Any]]:
        """Splits a physical partition in two; range is its id, needed if there are several."""
        return self._run(["split", container, *([] if range is None else [range])])

    def merge(self, container: str, first: str, second: str) -> list[dict[str, Any]]:
        """Merges two neighbouring physical partitions."""
        return self._run(["merge", container, first, second])

    def fail(
        self,
        status: int | None = None,
        *,
        sub_status: int | None = None,
        retry_after: Seconds | None = None,
        lose: bool = False,
        delay: Seconds | None = None,
        container: str | None = None,
        method: str | None = None,
        times: int = 1,
    ) -> None:
        """Lets the next requests fail: with a status such as 429 (sub_status 3200), 410 (1002), 503 or 449.

        lose: the request is carried out, and there is no answer. delay: it is carried out so much later.
        """
        order: dict[str, Any] = {"status": status, "sub_status": sub_status, "method": method, "times": times}
        order["container"] = None if container is None else "/".join(container.rsplit("/", 2)[-2:])
        order["lose"] = lose or None
        for name, seconds in (("retry_after", retry_after), ("delay", delay)):
            order[name] = None if seconds is None else seconds_of(seconds)
        self._faults("POST", {name: value for name, value in order.items() if value is not None})

    def faults(self) -> Any:
        """The faults that are left."""
        return json.loads(self._faults("GET") or b"null")

    def heal(self) -> None:
        """Removes the faults that are left."""
        self._faults("DELETE")

    def _faults(self, method: str, order: dict[str, Any] | None = None) -> bytes:
        request = urllib.request.Request(
            f"{self.endpoint.rstrip('/')}/_faults",
            method=method,
            headers={"Authorization": f"Bearer {self.key}"},
            data=None if order is None else json.dumps(order).encode(),
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=_END_LIMIT) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            raise ChangefeedError(f"the fault is refused: {text}", code="usage") from error

    def status(self, container: str, name: str) -> _status.Status:
        """What is known of the unit of a name that reads a container."""
        try:
            rows = self._run(["leases", _options.beside(container, None), "--source", container])
        except ChangefeedError as error:
            if error.code != "missing":
                raise
            rows = []
        return _status.status_of(name, container, rows)

    def caught_up(self, container: str, name: str, timeout: Seconds = 20) -> None:
        """Waits until the unit of a name has handled every change of a container."""
        seconds = seconds_of(timeout)
        end = time.monotonic() + seconds
        while not (status := self.status(container, name)).caught_up:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} has not caught up after {seconds} s: {status}")
            time.sleep(_POLL)

    def _run(self, arguments: Sequence[str], stdin: str = "") -> list[dict[str, Any]]:
        return _binary.run(self._binary, list(arguments), env=_options.environment(self.key, None, None), stdin=stdin)

    def _end(self) -> ChangefeedError | None:
        process, self._process = self._process, None
        errors, self._errors = self._errors, None
        if process is None or errors is None:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_END_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        with errors:
            errors.seek(0)
            return _binary.error_in(errors.read().decode("utf-8", "replace").splitlines())


class AsyncServer:
    """The same server with methods to await."""

    def __init__(self, plain: Server) -> None:
        self.plain = plain

    @property
    def endpoint(self) -> str:
        """The address of the account."""
        return self.plain.endpoint

    @property
    def key(self) -> str:
        """The key of the account."""
        return self.plain.key

    @property
    def connection_string(self) -> str:
        """Endpoint and key in one text."""
        return self.plain.connection_string

    async def restart(self, *, kill: bool = False) -> None:
        """See Server."""
        await asyncio.to_thread(self.plain.restart, kill=kill)

    async def fresh_container(self, partition_key: str = "/pk", *, ranges: int = 1, **flags: Any) -> Container:
        """See Server."""
        return await asyncio.to_thread(self.plain.fresh_container, partition_key, ranges=ranges, **flags)

    async def put(self, container: str, *documents: dict[str, Any]) -> None:
        """See Server."""
        await asyncio.to_thread(self.plain.put, container, *documents)

    async def ranges(self, container: str) -> list[dict[str, Any]]:
        """See Server."""
        return await asyncio.to_thread(self.plain.ranges, container)

    async def split(self, container: str, range: str | None = None) -> list[dict[str, Any]]:
        """See Server."""
        return await asyncio.to_thread(self.plain.split, container, range)

    async def merge(self, container: str, first: str, second: str) -> list[dict[str, Any]]:
        """See Server."""
        return await asyncio.to_thread(self.plain.merge, container, first, second)

    async def fail(self, status: int | None = None, **order: Any) -> None:
        """See Server."""
        await asyncio.to_thread(lambda: self.plain.fail(status, **order))

    async def heal(self) -> None:
        """See Server."""
        await asyncio.to_thread(self.plain.heal)

    async def status(self, container: str, name: str) -> _status.Status:
        """See Server."""
        return await asyncio.to_thread(self.plain.status, container, name)

    async def caught_up(self, container: str, name: str, timeout: Seconds = 20) -> None:
        """See Server."""
        await asyncio.to_thread(self.plain.caught_up, container, name, timeout)


class server:  # a function in all but name
    """Starts a server: `with server() as s` or `async with server() as s`.

    dir is the directory of the store (else the store is in memory); flags are those of `changefeed serve`.
    """

    def __init__(
        self,
        dir: str | os.PathLike[str] | None = None,
        *,
        binary: str | os.PathLike[str] | None = None,
        **flags: Any,
    ) -> None:
        self._server = Server(dir, binary, flags)

    def __enter__(self) -> Server:
        self._server.start()
        return self._server

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._server.stop()

    async def __aenter__(self) -> AsyncServer:
        await asyncio.to_thread(self._server.start)
        return self._server.aio

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._server.stop)
