"""Finds the text of documents in a message, without parsing them."""

from __future__ import annotations

import json
import re
from typing import Any

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')
_CHANGE_DEPTH = 3  # the message, its changes, a change

Span = tuple[int, int]


def spans(line: str) -> list[dict[str, Span]]:
    """For each change of a batch: where the values of its members stand in the line."""
    found: list[dict[str, Span]] = []
    depth = 0
    member, name, start = "", "", 0  # of the message; of a change, and where its value starts
    last = ""
    for token in _TOKEN.finditer(line):
        text = token.group()
        if text == ":":
            if depth == 1:
                member = last
            elif depth == _CHANGE_DEPTH and member == "changes":
                name, start = last, token.end()
        elif text in "{[":
            depth += 1
            if depth == _CHANGE_DEPTH and member == "changes":
                found.append({})
        elif text in "}],":
            if depth == _CHANGE_DEPTH and member == "changes":
                found[-1][name] = (start, token.start())
            if text != ",":
                depth -= 1
        else:
            last = json.loads(text) if depth in (1, _CHANGE_DEPTH) else ""
    return found


def without_documents(line: str) -> Any:
    """The message with null in place of documents: for documents that Python cannot parse."""
    parts: list[str] = []
    at = 0
    for change in spans(line):
        for name in ("document", "previous"):
            if name in change:
                start, end = change[name]
                parts += [line[at:start], "null"]
                at = end
    parts.append(line[at:])
    return json.loads("".join(parts))
