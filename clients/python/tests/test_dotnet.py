"""A unit that the .NET processor has begun."""

from __future__ import annotations

from typing import Any

from support import LIMIT, WithServer, documents

from changefeed import Batch, Processor, _binary, _options

_CUT = "20000000000000000000000000000000"
_RANGES = (("", _CUT), (_CUT, "FF"))


class DotNet(WithServer):
    async def records(self, leases: str) -> list[dict[str, Any]]:
        return await _binary.run_async(
            _binary.find(), ["query", leases, "SELECT * FROM c"], env=_options.environment(self.account.key, None, None)
        )

    async def test_continues_a_unit_and_hands_it_back(self) -> None:
        orders = await self.account.fresh_container(ranges=2)
        leases, probe = await self.account.fresh_container("/id"), await self.account.fresh_container("/id")
        seen: list[str] = []

        async def handle(batch: Batch) -> None:
            seen.extend(change.id for change in batch)

        async def run(where: str) -> None:
            async with Processor(orders, name="m", handler=handle, leases=where) as p:
                await p.caught_up(timeout=LIMIT)

        await run(probe)  # how the ids of this unit begin
        made = [row["id"] for row in await self.records(probe)]
        prefix = next(name for name in made if ".." in name).split("..")[0]
        await self.account.put(orders, *[document | {"pk": document["id"]} for document in documents(10)])
        await self.account.put(leases, {"id": prefix + ".info"})
        for token, (low, high) in enumerate(_RANGES):
            lease = {"id": f"{prefix}..{token}", "version": 0, "LeaseToken": str(token), "Owner": None}
            lease |= {"FeedRange": {"Range": {"min": low, "max": high}}, "ContinuationToken": '"10"', "properties": {}}
            lease |= {"timestamp": "2026-11-22T03:04:39.9045171Z", "Mode": "Incremental Feed"}
            await self.account.put(leases, lease)
        later = [{"id": str(n), "pk": str(n)} for n in range(10, 20)]
        await self.account.put(orders, *later)
        await run(leases)
        self.assertEqual(sorted(seen), [document["id"] for document in later])
        for row in await self.records(leases):
            if ".." in row["id"]:
                got = (row["version"], row["Owner"], row["ContinuationToken"], row["Mode"])
                self.assertEqual(got, (0, None, '"20"', "Incremental Feed"))
                self.assertEqual(row["FeedRange"]["Range"]["min"], _RANGES[int(row["LeaseToken"])][0])
