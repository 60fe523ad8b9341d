"""Finds the text of documents in a message, without parsing them."""

from __future__ import annotations

import json
import re
from typing import Any

_DOCUMENTS = ("document", "previous")
_COLUMN_DEPTH = 3  # the message, its changes, a column

Span = tuple[int, int]

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')
_NAME = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_NEXT = re.compile(r"[\s,]*")
_decode = json.JSONDecoder().raw_decode


def spans(line: str) -> dict[str, list[Span]]:
    """For each column of documents of a batch: where its elements stand in the line."""
    try:
        return _spans_of_parsed(line)
    except (ValueError, RecursionError):  # a document that Python cannot parse
        return _spans_of_tokens(line)


def _spans_of_parsed(line: str) -> dict[str, list[Span]]:
    """The fast way, which parses values to find their ends."""
    found: dict[str, list[Span]] = {}
    name, at = _name(line, line.index("{") + 1)
    while name != "changes":
        name, at = _name(line, _decode(line, at)[1])
    at = _after(line, at + 1)
    while line[at] != "}":
        name, at = _name(line, at)
        if name in _DOCUMENTS:
            found[name] = []
            at = _after(line, at + 1)
            while line[at] != "]":
                end = _decode(line, at)[1]
                found[name].append((at, end))
                at = _after(line, end)
            at = _after(line, at + 1)
        else:
            at = _after(line, _decode(line, at)[1])
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


def _spans_of_tokens(line: str) -> dict[str, list[Span]]:
    """The slow way, which parses nothing."""
    found: dict[str, list[Span]] = {}
    depth = 0
    member, column, last = "", "", ""  # of the message; of its changes; the last text
    start = 0  # of an element
    for token in _TOKEN.finditer(line):
        text = token.group()
        is_element = depth == _COLUMN_DEPTH and member == "changes" and column in _DOCUMENTS
        if text == ":":
            if depth == 1:
                member = last
            elif depth == 2:
                column = last
        elif text in "{[":
            depth += 1
            if depth == _COLUMN_DEPTH and member == "changes" and column in _DOCUMENTS:
                found[column], start = [], token.end()
        elif text in "}],":
            if is_element:
                if line[start : token.start()].strip():
                    found[column].append((start, token.start()))
                start = token.end()
            if text != ",":
                depth -= 1
        else:
            last = json.loads(text) if depth in (1, 2) else ""
    return found


def without_documents(line: str) -> Any:
    """The message with null in place of documents: for documents that Python cannot parse."""
    parts: list[str] = []
    at = 0
    for start, end in sorted(span for column in spans(line).values() for span in column):
        parts += [line[at:start], "null"]
        at = end
    parts.append(line[at:])
    return json.loads("".join(parts))
