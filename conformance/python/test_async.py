"""The asynchronous client, which has code of its own, in short."""

import asyncio
import unittest

import aiohttp
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from account import ENDPOINT, KEY, connect, ids, repartition


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        client = await CosmosClient(ENDPOINT, KEY).__aenter__()
        self.addAsyncCleanup(client.close)
        database = await client.create_database(f"py-{self.id()}")
        self.addAsyncCleanup(client.delete_database, database)
        self.c = await database.create_container("c", PartitionKey("/pk"), change_feed_policy={"retentionDuration": 10})
        self.made = [f"{n:02}" for n in range(20)]
        for n in self.made:
            await self.c.create_item({"id": n, "pk": f"key {n}"})

    async def drain(self, **options):
        changes = [change async for change in self.c.query_items_change_feed(**options)]
        return changes, self.c.client_connection.last_response_headers["etag"]

    def split(self):
        with connect() as client:
            repartition(client.get_database_client(f"py-{self.id()}").get_container_client("c"), operation="split", id="0")

    async def test_items_and_queries(self):
        self.assertEqual((await self.c.read_item("07", "key 07"))["id"], "07")
        await self.c.delete_item("07", "key 07")
        with self.assertRaises(CosmosResourceNotFoundError):
            await self.c.read_item("07", "key 07")
        self.made.remove("07")
        results = await self.c.execute_item_batch([("upsert", ({"id": "05", "pk": "key 05", "n": 1},)), ("read", ("05",))], "key 05")
        self.assertEqual(results[1]["resourceBody"]["n"], 1)
        self.split()
        rows = self.c.query_items("SELECT * FROM c ORDER BY c.id", max_item_count=4)
        self.assertEqual(ids([row async for row in rows]), self.made)
        self.assertEqual([row async for row in self.c.query_items("SELECT VALUE COUNT(1) FROM c")], [19])
        self.assertEqual(sorted(ids([row async for row in self.c.read_all_items()])), self.made)

    async def test_a_burst_of_one_address_loses_no_request(self):
        unlimited = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))  # as many connections as requests
        async with CosmosClient(ENDPOINT, KEY, transport=AioHttpTransport(session=unlimited, session_owner=False)) as client, unlimited:
            c = client.get_database_client(f"py-{self.id()}").get_container_client("c")
            burst = [c.create_item({"id": f"burst {n}", "pk": f"key {n}"}) for n in range(1000)]
            answers = await asyncio.gather(*burst, return_exceptions=True)
        self.assertEqual([answer for answer in answers if isinstance(answer, BaseException)], [])
        self.assertEqual([row async for row in self.c.query_items("SELECT VALUE COUNT(1) FROM c")], [1020])

    async def test_change_feeds_over_a_split(self):
        changes, token = await self.drain(start_time="Beginning")
        self.assertEqual(ids(changes), self.made)
        _, versions = await self.drain(mode="AllVersionsAndDeletes", start_time="Now")
        self.split()
        for n in self.made:
            await self.c.upsert_item({"id": n, "pk": f"key {n}", "again": True})
        changes, _ = await self.drain(continuation=token)
        self.assertEqual(sorted(ids(changes)), self.made)
        changes, _ = await self.drain(continuation=versions)
        self.assertEqual(sorted(change["current"]["id"] for change in changes), self.made)
