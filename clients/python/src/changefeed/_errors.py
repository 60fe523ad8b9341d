"""What a handler raises, and what a processor raises."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

Seconds = float | datetime.timedelta


class Poison(Exception):
    """A retry cannot help: raise it in a handler, or give it for a change in Failure(items=...)."""

    def __init__(self, cause: BaseException | str) -> None:
        super().__init__(text_of(cause))


class Untried(Exception):
    """For Failure(items=...): the change was not tried, because another has failed."""

    def __init__(self) -> None:
        super().__init__("not tried")


class Failure(Exception):
    """A batch, or a part of it, has failed.

    done: the first `done` changes are handled, and the others are not.
    items: exactly the changes with these indexes have failed; all others are handled.
    poison: a retry of the batch cannot help.
    outage: no change is at fault, a dependency does not answer; nothing counts as an attempt.
    after: the shortest pause before the next attempt.
    """

    def __init__(
        self,
        error: BaseException | str = "",
        *,
        done: int = 0,
        items: Mapping[int, BaseException | str] | None = None,
        poison: bool = False,
        outage: bool = False,
        after: Seconds = 0.0,
    ) -> None:
        if done and items:
            raise ValueError("done and items are set: want one of them")
        super().__init__(text_of(error) if error else "")
        self.done = done
        self.items = dict(items or {})
        self.poison = poison or isinstance(error, Poison)
        self.outage = outage
        self.after = seconds_of(after)


class ChangefeedError(Exception):
    """The binary has ended with an error.

    code is failed, usage, missing, refused, found or interrupted; hint says what to do next, if that is known.
    reason is a word for the cause, such as no-start, start-ignored, leases-gone or throttled; None if there is none.
    """

    def __init__(self, error: str, *, code: str = "failed", hint: str | None = None, reason: str | None = None) -> None:
        super().__init__(error if hint is None else f"{error} ({hint})")
        self.error = error
        self.code = code
        self.hint = hint
        self.reason = reason


class BinaryNotFound(ChangefeedError):
    """There is no binary changefeed."""


def text_of(error: BaseException | str) -> str:
    """The text of an error, which is never empty, and can be made of every error."""
    if isinstance(error, str):
        return error
    try:
        text = str(error)
    except Exception as unreadable:
        text = f"its text cannot be read: {type(unreadable).__name__}"
    if isinstance(error, Failure | Poison | Untried | ChangefeedError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def seconds_of(duration: Seconds) -> float:
    """A duration in seconds."""
    return duration.total_seconds() if isinstance(duration, datetime.timedelta) else float(duration)
