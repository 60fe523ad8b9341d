"""The answers to a batch, as messages of the contract (docs/program.md)."""

from __future__ import annotations

import json
from typing import Any

from changefeed._errors import Failure, Poison, Untried, text_of

_MAX_TEXT = 8 << 10  # the processor keeps no more
_MAX_TEXTS = 2 << 20  # of all items: a character has up to 6 bytes, and the processor refuses a message above 16 MB
_MAX_AFTER = 24 * 3600


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
    text = "" if error.args == ("",) else _text(error)
    if text or not error.items:
        message["error"] = text
    if error.done:
        message["done"] = error.done
    if error.items:
        most = min(_MAX_TEXT, _MAX_TEXTS // len(error.items))
        message["items"] = [_item(index, cause, most) for index, cause in sorted(error.items.items())]
    if error.poison:
        message["poison"] = True
    if error.outage:
        message["outage"] = True
    if error.after:
        message["after"] = error.after
    return message


def _item(index: int, cause: BaseException | str, most: int) -> dict[str, Any]:
    item: dict[str, Any] = {"index": index, "error": _text(cause)[:most]}
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
    if not _is_whole(error.done) or (error.done and not 0 < error.done < changes):
        return f"Failure.done is {error.done!r}: the batch has {changes} changes, of which one has failed"
    for index in error.items:
        if not (_is_whole(index) and 0 <= index < changes):
            return f"Failure.items has the index {index!r}: the batch has {changes} changes"
    if not (isinstance(error.after, int | float) and 0 <= error.after <= _MAX_AFTER):
        return f"Failure.after is {error.after!r}: want seconds, from 0 to {_MAX_AFTER}"
    return None


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
