"""The handler of `changefeed program test` (docs/program.md): each document says what to do with it.

With the argument --tokens it gives tokens, as a Processor does that has a credential.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import sys
from typing import Any

from changefeed import Batch, ChangefeedError, Event, Failure, Poison, program

EXPIRES = datetime.datetime(2040, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)


class Steered:
    """Does what the documents say."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.meeting = 0
        self.met = asyncio.Event()
        self.unit = program.Unit()
        self.texts: list[str] = []  # of the events
        self.told = asyncio.Event()

    def hear(self, event: Event) -> None:
        fields = event.fields
        if event.name == "lease":
            self.texts.append(f"lease {fields['lease']} {fields['what']}")
        elif event.name == "parked":
            self.texts.append(f"parked {fields['item']}: {fields['cause']}")
        elif event.name == "outage":
            self.texts.append(f"outage {fields['what']}")
        elif event.name == "problem":
            self.texts.append(f"problem {fields['code']}: {fields['error']}")
        self.told.set()

    async def __call__(self, batch: Batch) -> None:
        items: dict[int, BaseException | str] = {}
        for index, change in enumerate(batch):
            if change.document is None:
                continue
            document: dict[str, Any] = change.document
            do, text = document.get("do", ""), document.get("error", "")
            if do == "fail":
                items[index] = text
            elif do == "poison":
                items[index] = Poison(text)
            elif do == "stop":
                raise Failure(text, done=index)
            elif do == "outage":
                raise Failure(text, done=index, outage=True, after=document.get("seconds", 0))
            elif do in ("heard", "status", "caughtup"):
                await self.able(do, document)
            else:
                await self.obey(batch, do, document)
        if items:
            raise Failure(items=items)

    async def obey(self, batch: Batch, do: str, document: dict[str, Any]) -> None:
        if do == "fail all":
            raise Failure(document["error"])
        if do == "poison all":
            raise Poison(document["error"])
        if do == "sleep":
            await asyncio.sleep(document["seconds"])
        elif do == "wait":
            await asyncio.Event().wait()
        elif do == "exit":
            os._exit(document["code"])
        elif do == "print":
            print(document["error"], flush=True)
        elif do == "count":
            last = self.counts.get(document["key"], 0)
            if document["n"] != last + 1:
                raise Failure(f"{document['key']}: {document['n']} comes after {last}")
            self.counts[document["key"]] = document["n"]
        elif do == "meet":
            met = self.met
            self.meeting += 1
            if self.meeting == document["n"]:
                met.set()
                self.meeting, self.met = 0, asyncio.Event()
            await met.wait()
        elif do == "checkpoint":
            try:
                await batch.checkpoint()
            except ChangefeedError as error:
                raise Failure(error.error) from error

    async def able(self, do: str, document: dict[str, Any]) -> None:
        if do == "heard":
            while len(self.texts) < document["n"]:
                self.told.clear()
                await self.told.wait()
            raise Failure("; ".join(self.texts))
        try:
            if do == "caughtup":
                await self.unit.caught_up(document.get("seconds"))
                return
            status = await self.unit.status()
        except ChangefeedError as error:
            raise Failure(error.error) from error
        counts = [("pending", status.pending), *((lease.lease, lease.lag) for lease in status.leases)]
        raise Failure("; ".join(f"{name} {'null' if count is None else count}" for name, count in counts))


async def token(scope: str) -> tuple[str, float]:
    if scope == "none":
        raise RuntimeError("no token")
    return scope, EXPIRES.timestamp()


if __name__ == "__main__":
    steered = Steered()
    if "--tokens" in sys.argv:
        asyncio.run(program.speak(steered, 8, steered.hear, steered.unit, token))
    else:
        program.serve(steered, on_event=steered.hear, unit=steered.unit)
