"""What is known of a unit: its leases, and what is still to come."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from changefeed._batch import parse_time


@dataclasses.dataclass(frozen=True)
class Lease:
    """A lease. None is unknown, never 0."""

    lease: str
    range: str | None
    owner: str | None
    epoch: int | None
    position: str | None
    state: str
    attempts: int | None
    held: int | None
    set_aside: int | None
    lag: int | None
    lag_exact: bool
    lag_seconds: float | None
    stuck: tuple[str, ...]
    watermark: datetime.datetime | None
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Status:
    """A unit. None is unknown, never 0."""

    name: str
    instances: int
    pending: int | None
    pending_exact: bool
    oldest_seconds: float | None
    stuck: tuple[str, ...]
    watermark: datetime.datetime | None
    unknown: str | None
    leases: tuple[Lease, ...]

    @property
    def caught_up(self) -> bool:
        """Whether every change is handled."""
        return self.pending == 0 and bool(self.leases)


def status_in(name: str, unit: dict[str, Any]) -> Status:
    """The status in the answer of a processor."""
    return _status(name, unit, unit["leases"])


def status_of(name: str, source: str, rows: list[dict[str, Any]]) -> Status:
    """The status of the unit of a name and a source in the rows of `changefeed leases`."""
    rows = [row for row in rows if row.get("processor") == name]
    if len({row["container"] for row in rows}) > 1:  # units of one name, of several containers
        address = "/" + source.replace("#", "/")
        rows = [row for row in rows if address.endswith("/" + row["container"])]
    unit = next((row for row in rows if row["kind"] == "unit"), None)
    if unit is None:
        return Status(name, 0, None, False, None, (), None, "the unit has no leases yet", ())
    return _status(name, unit, [row for row in rows if row["kind"] == "lease"])


def _status(name: str, unit: dict[str, Any], leases: list[dict[str, Any]]) -> Status:
    return Status(
        name=name,
        instances=unit["instances"],
        pending=unit["pending"],
        pending_exact=unit["pending_exact"] and not unit["pending_shared"],
        oldest_seconds=unit["oldest_seconds"] if unit["pending"] is not None else None,
        stuck=tuple(unit["stuck"]),
        watermark=_time(unit["watermark"]),
        unknown=unit["unknown"],
        leases=tuple(_lease(row) for row in leases),
    )


def _lease(row: dict[str, Any]) -> Lease:
    return Lease(
        lease=row["lease"],
        range=row["range"],
        owner=row["owner"],
        epoch=row["epoch"],
        position=row["position"],
        state=row["state"],
        attempts=row["attempts"],
        held=row["held"],
        set_aside=row["set_aside"],
        lag=row["lag"],
        lag_exact=row["lag_exact"] and not row["lag_shared"],
        lag_seconds=row["lag_seconds"] if row["lag"] is not None else None,
        stuck=tuple(row["stuck"]),
        watermark=_time(row["watermark"]),
        notes=tuple(row["notes"]),
    )


def _time(text: str | None) -> datetime.datetime | None:
    return None if text is None else parse_time(text)
