"""The flags of `changefeed run` for the options of a processor."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from typing import Any

from changefeed._errors import Seconds, seconds_of

Start = str | datetime.datetime | datetime.timedelta


def flags(options: Mapping[str, Any]) -> list[str]:
    """The flags for options by their names; None and False are left out."""
    found: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            found.append(flag)
        else:
            found.append(f"{flag}={value}")
    return found


def duration(name: str, value: Seconds | None) -> str | None:
    """The duration of an option as the binary reads it."""
    if value is None:
        return None
    try:
        nanoseconds = round(seconds_of(value) * 1e9)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is {value!r}: want seconds or a timedelta") from error
    return f"{nanoseconds}ns"


def start(value: Start | None) -> str | None:
    """The value of --from."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime.timedelta):
        return duration("start", value)
    if value.tzinfo is None:
        raise ValueError(
            f"start is {value.isoformat()}, a time without a zone: want such as datetime.now(timezone.utc)"
        )
    return value.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def environment(credential: str | None, connection_string: str | None, endpoint: str | None) -> dict[str, str]:
    """The environment of the binary. Keys are never arguments, which other users of the machine can see."""
    env = dict(os.environ)
    if credential is not None and connection_string is not None:
        raise ValueError("credential and connection_string are set: want one of them")
    if connection_string is not None:
        env.pop("COSMOS_KEY", None)
        env.pop("COSMOS_ENDPOINT", None)
        env["COSMOS_CONNECTION_STRING"] = connection_string
    if credential is not None:
        env.pop("COSMOS_CONNECTION_STRING", None)  # its key would be taken
        env.pop("COSMOS_ENDPOINT", None)  # the key would be sent there only
        env["COSMOS_KEY"] = credential
    if endpoint is not None:
        env["COSMOS_ENDPOINT"] = endpoint
    return env


def beside(source: str, leases: str | None) -> str:
    """The address of the lease container: by default the container leases beside the source."""
    if leases is not None:
        return leases
    return re.sub(r"[^/#]*$", "leases", source, count=1)
