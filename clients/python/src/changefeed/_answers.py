"""The answers to a batch, as messages of the contract (docs/program.md)."""

from __future__ import annotations

import json
from typing import Any

from changefeed._errors import Failure, Poison, Untried, text_of

_MAX_TEXT = 8 << 10  # the processor keeps no more


def encode(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace") + b"\n"


def failed(batch_id: int, error: BaseException) -> dict[str, Any]:
    """The answer to a batch whose handler has raised an error."""
    message: dict[str, Any] = {"type": "failed", "id": batch_id}
    if not isinstance(error, Failure):
        message["error"] = _text(error)
        if isinstance(error, Poison):
            message["poison"] = True
        return message
    if str(error) or not error.items:
        message["error"] = str(error)[:_MAX_TEXT]
    if error.done:
        message["done"] = error.done
    if error.items:
        message["items"] = [_item(index, cause) for index, cause in sorted(error.items.items())]
    if error.poison:
        message["poison"] = True
    if error.outage:
        message["outage"] = True
    if error.after:
        message["after"] = error.after
    return message


def _item(index: int, cause: BaseException | str) -> dict[str, Any]:
    item: dict[str, Any] = {"index": index, "error": _text(cause)}
    if isinstance(cause, Poison):
        item["poison"] = True
    if isinstance(cause, Untried):
        item["untried"] = True
    return item


def _text(error: BaseException | str) -> str:
    return text_of(error)[:_MAX_TEXT]


def mistake(error: BaseException, changes: int) -> str | None:
    """What would break the contract in a Failure; None if nothing."""
    if not isinstance(error, Failure):
        return None
    if error.done and not 0 < error.done < changes:
        return f"Failure.done is {error.done}: the batch has {changes} changes, of which one has failed"
    for index in error.items:
        if not (isinstance(index, int) and 0 <= index < changes):
            return f"Failure.items has the index {index!r}: the batch has {changes} changes"
    if not 0 <= error.after <= 24 * 3600:
        return f"Failure.after is {error.after}: want seconds, from 0 to 86400"
    return None
