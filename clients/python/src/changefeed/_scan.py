"""Finds the text of documents in a message, without parsing them."""

from __future__ import annotations

import json
import re
from typing import Any

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')
_CHANGE_DEPTH = 3  # the message, its changes, a change

Span = tuple[int, int]


_NAME = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_NEXT = re.compile(r"[\s,]*")
_decode = json.JSONDecoder().raw_decode


def spans(line: str) -> list[dict[str, Span]]:
    """For each change of a batch: where the values of its members stand in the line."""
    try:
        return _spans_of_parsed(line)
    except (ValueError, RecursionError):  # a document that Python cannot parse
        return _spans_of_tokens(line)


def _spans_of_parsed(line: str) -> list[dict[str, Span]]:
    """The fast way, which parses values to find their ends."""
    found: list[dict[str, Span]] = []
    name, at = _name(line, line.index("{") + 1)
    while name != "changes":
        name, at = _name(line, _decode(line, at)[1])
    at = _after(line, at + 1)
    while line[at] != "]":
        members: dict[str, Span] = {}
        at = _after(line, at + 1)
        while line[at] != "}":
            name, start = _name(line, at)
            end = _decode(line, start)[1]
            members[name] = (start, end)
            at = _after(line, end)
        found.append(members)
        at = _after(line, at + 1)
    return found


def _name(line: str, at: int) -> tuple[str, int]:
    """The name of the next member, and where its value begins."""
    match = _NAME.match(line, at)
    if match is None:
        raise ValueError(f"there is no member at {at}")
    return match[1], match.end()


def _after(line: str, at: int) -> int:
    """The place after spaces and commas."""
    match = _NEXT.match(line, at)
    return at if match is None else match.end()


def _spans_of_tokens(line: str) -> list[dict[str, Span]]:
    """The slow way, which parses nothing."""
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
