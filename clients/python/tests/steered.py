"""The handler of `changefeed program test` (docs/program.md): each document says what to do with it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from changefeed import Batch, ChangefeedError, Failure, Poison
from changefeed.program import serve


class Steered:
    """Does what the documents say."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.meeting = 0
        self.met = asyncio.Event()

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


if __name__ == "__main__":
    serve(Steered())
