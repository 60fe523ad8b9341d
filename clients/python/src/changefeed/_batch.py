"""Batches and their changes."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, cast

from changefeed import _scan

Op = Literal["upsert", "create", "replace", "delete"]
Cause = Literal["lost", "timeout", "stopped"]

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


def parse_time(text: str) -> datetime.datetime:
    """A time of RFC 3339, cut to microseconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time: want RFC 3339, such as 2026-01-31T12:00:00Z")
    fraction = (match[2] or "")[:6].ljust(6, "0")
    return datetime.datetime.fromisoformat(f"{match[1]}.{fraction}{match[3].replace('Z', '+00:00')}")


Columns = dict[str, list[Any]]
"""The changes of a batch as the contract has them: for each member a list with the values of all changes.

A column that is not there: op is "upsert", and no change has the others.
"""


class _Text:
    """The text of a batch, in which the documents are found when somebody asks."""

    __slots__ = ("_line", "_spans", "parsed")

    def __init__(self, line: str, parsed: bool) -> None:
        self._line = line
        self._spans: dict[str, list[_scan.Span]] | None = None
        self.parsed = parsed  # else the columns of documents are empty

    def of(self, index: int, name: str) -> str | None:
        if self._spans is None:
            self._spans = _scan.spans(self._line)
        if name not in self._spans:
            return None
        start, end = self._spans[name][index]
        text = self._line[start:end].strip()
        return None if text == "null" else text


class Change:
    """A change of a document.

    Do not modify document and previous: a batch that comes again is another batch, but your own later code sees it.
    """

    __slots__ = ("_columns", "_index", "_text")  # a dataclass takes twice as long to make

    def __init__(self, columns: Columns, index: int = 0, text: _Text | None = None) -> None:
        self._columns = columns
        self._text = text
        self._index = index

    def _member(self, name: str) -> Any:
        column = self._columns.get(name)
        return None if column is None else column[self._index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Change):
            return NotImplemented
        names = self._columns.keys() | other._columns.keys()
        return all(self._member(name) == other._member(name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(
        cls,
        document: Any = None,
        *,
        lsn: int = 1,
        op: Op = "upsert",
        id: str | None = None,
        key: list[Any] | None = None,
        time: datetime.datetime | None = None,
        **more: Any,
    ) -> Change:
        """A change for the tests of a handler."""
        members: dict[str, Any] = {"lsn": lsn, "op": op, "key": key or [], "document": document, **more}
        members["id"] = id if id is not None else str((document or {}).get("id", ""))
        members["time"] = (time or datetime.datetime.now(datetime.timezone.utc)).isoformat()
        return cls({name: [value] for name, value in members.items()})

    @property
    def lsn(self) -> int:
        """The log sequence number of the change in its partition."""
        return int(self._columns["lsn"][self._index])

    @property
    def time(self) -> datetime.datetime:
        """When the change was committed."""
        return parse_time(self._columns["time"][self._index])

    @property
    def op(self) -> Op:
        """The operation: upsert if the feed does not know more (mode="latest")."""
        return cast(Op, self._member("op") or "upsert")

    @property
    def id(self) -> str:
        """The id of the document."""
        return str(self._columns["id"][self._index])

    @property
    def key(self) -> list[Any]:
        """The value of the partition key, one element for each path."""
        key = self._columns["key"][self._index]
        return key if isinstance(key, list) else [key]

    @property
    def document(self) -> Any:
        """The document as parsed JSON; None for a delete. Numbers with a point are floats: see json."""
        if self._text is None or self._text.parsed:
            return self._columns["document"][self._index]
        return self._parsed("document")

    @property
    def json(self) -> str | None:
        """The text of the document as stored; None for a delete."""
        return self._raw("document")

    @property
    def previous(self) -> Any:
        """The document before the change, as parsed JSON; None if the feed does not say (mode="all")."""
        return self._parsed("previous")

    @property
    def previous_json(self) -> str | None:
        """The text of the document before the change."""
        return self._raw("previous")

    @property
    def previous_lsn(self) -> int | None:
        """The number of the change before; None if the feed does not say (mode="all")."""
        lsn = self._member("previous_lsn")
        return int(lsn) if lsn else None

    @property
    def expired(self) -> bool:
        """Whether a delete came from the time to live of the document (mode="all")."""
        return bool(self._member("expired"))

    def _parsed(self, name: str) -> Any:
        if self._text is not None and not self._text.parsed:
            text = self._text.of(self._index, name)
            return None if text is None else json.loads(text)
        return self._member(name)

    def _raw(self, name: str) -> str | None:
        if self._text is not None:
            return self._text.of(self._index, name)
        value = self._member(name)
        return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def __repr__(self) -> str:
        return f"Change(lsn={self.lsn}, op={self.op!r}, id={self.id!r}, key={self.key!r})"


class Cancellation:
    """Whether a batch is canceled: like a threading.Event that only the library sets."""

    __slots__ = ("_event", "cause")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.cause: Cause | None = None

    def is_set(self) -> bool:
        """Whether the batch is canceled."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the batch is canceled, or for so many seconds; says whether the batch is canceled."""
        return self._event.wait(timeout)

    def set(self, cause: Cause) -> None:
        """Cancels the batch, as the library does; for tests of handlers."""
        self.cause = cause
        self._event.set()


async def _no_checkpoint() -> None:
    raise RuntimeError("the processor is not manual: a batch is confirmed when the handler returns")


@dataclasses.dataclass(frozen=True)
class Batch:
    """Changes of a lease, in order."""

    changes: tuple[Change, ...]
    lease: str = ""
    range: str = ""
    instance: str = ""
    epoch: int = 0
    attempt: int = 1
    cut: bool = False
    redriven: bool = False
    manual: bool = False
    session: str | None = None
    position: str | None = None
    head: int | None = None
    charge: float | None = None
    seconds: float | None = None
    id: int = 0
    cancelled: Cancellation = dataclasses.field(default_factory=Cancellation, repr=False, compare=False)
    _checkpoint: Callable[[], Awaitable[None]] = dataclasses.field(default=_no_checkpoint, repr=False, compare=False)

    @property
    def canceled(self) -> Cause | None:
        """Why the batch is canceled: "lost", "timeout" or "stopped"; None if it is not."""
        return self.cancelled.cause

    async def checkpoint(self) -> None:
        """Stores the position of the batch (manual=True); raises ChangefeedError if that is refused."""
        await self._checkpoint()

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


def read_message(line: memoryview) -> tuple[dict[str, Any], _Text]:
    """A message of the processor, and its text."""
    text = str(line, "utf-8", "replace")
    try:
        return json.loads(text), _Text(text, True)
    except (ValueError, RecursionError):  # such as a number of 5,000 digits: the handler of this change shall see it
        return _scan.without_documents(text), _Text(text, False)


def batch_of(message: dict[str, Any], text: _Text, checkpoint: Callable[[], Awaitable[None]]) -> Batch:
    """The batch of a message."""
    columns = message["changes"]
    return Batch(
        changes=tuple([Change(columns, index, text) for index in range(len(columns["lsn"]))]),
        lease=message["lease"],
        range=message["range"],
        instance=message["instance"],
        epoch=message["epoch"],
        attempt=message["attempt"],
        cut=message.get("cut", False),
        redriven=message.get("redriven", False),
        manual=message.get("manual", False),
        session=message.get("session"),
        position=message.get("position"),
        head=message.get("head"),
        charge=message.get("charge"),
        seconds=message.get("seconds"),
        id=message["id"],
        _checkpoint=checkpoint if message.get("manual", False) else _no_checkpoint,
    )
