"""Measures the client beside azure-cosmos's own loop on the same server, in turns: changes a second of one lease.

CHANGEFEED_BINARY=... PYTHONPATH=src python3 tools/bench.py [DOCUMENTS [ROUNDS]]
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from azure.cosmos import CosmosClient, PartitionKey

from changefeed import Batch, Processor, _binary
from changefeed.testing import Server, server

LIMIT = 120  # seconds of a measurement
PAD = "x" * 60


def fill(address: str, count: int) -> None:
    """Imports documents of about 100 bytes of 500 keys."""
    lines = (json.dumps({"id": str(n), "pk": f"k{n % 500}", "n": n, "pad": PAD}) for n in range(count))
    text = "\n".join(lines).encode()
    subprocess.run([_binary.find(), "import", "-", address], input=text, check=True, capture_output=True)


def own_loop(account: Server, count: int, page: int | None, positions: bool) -> float:
    """The seconds of the SDK's loop, which has no leases.

    With positions it stores its position after each page, as a loop has to that goes on after a restart.
    """
    total, sum_of = 0, 0
    client = CosmosClient(account.endpoint, account.key)
    shop = client.get_database_client("shop")
    orders, kept = shop.get_container_client("orders"), shop.get_container_client("positions")
    begun = time.perf_counter()
    if page is None:
        changes = orders.query_items_change_feed(start_time="Beginning")
    else:
        changes = orders.query_items_change_feed(start_time="Beginning", max_item_count=page)
    pages = changes.by_page()
    for documents in pages:
        for document in documents:
            sum_of += document["n"]
            total += 1
        if positions:
            token = orders.client_connection.last_response_headers["etag"]
            kept.upsert_item({"id": "position", "pk": "position", "continuation": token})
        if total >= count:
            break
    seconds = time.perf_counter() - begun
    if total != count or sum_of != count * (count - 1) // 2:
        raise SystemExit(f"the loop has seen {total} changes of {count}")
    return seconds


def processor(address: str, name: str, count: int, page: int | None, plain: bool) -> float:
    """The seconds of a processor, from the start of the binary until the last change is handled."""
    total, sum_of = 0, 0

    def take(batch: Batch) -> None:
        nonlocal total, sum_of
        for change in batch:
            sum_of += change.document["n"]
        total += len(batch)

    async def run() -> float:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def handle(batch: Batch) -> None:
            take(batch)
            if total >= count:
                over.set()

        def handle_plain(batch: Batch) -> None:
            take(batch)
            if total >= count:
                loop.call_soon_threadsafe(over.set)

        handler = handle_plain if plain else handle
        begun = time.perf_counter()
        async with Processor(address, name=name, handler=handler, create_leases=True, batch_size=page):
            await asyncio.wait_for(over.wait(), LIMIT)
            return time.perf_counter() - begun

    seconds = asyncio.run(run())
    if sum_of != count * (count - 1) // 2:
        raise SystemExit(f"the processor has seen {total} changes of {count}, or others")
    return seconds


class Children:
    """The processor time of children that have ended, as the binaries of processors have when they are measured."""

    def __init__(self) -> None:
        self.before = self.now()

    @staticmethod
    def now() -> float:
        times = os.times()
        return times.children_user + times.children_system

    def used(self) -> float:
        return self.now() - self.before


def main(count: int, rounds: int) -> None:
    with server() as account:
        os.environ.pop("COSMOS_KEY", None)
        address = f"{account.endpoint}shop/orders"
        with CosmosClient(account.endpoint, account.key) as client:
            shop = client.create_database("shop")
            for name in ("orders", "positions"):
                shop.create_container(name, PartitionKey("/pk"))
        fill(address, count)
        kinds: dict[str, Callable[[int], float]] = {
            "loop, 100": lambda _: own_loop(account, count, 100, True),
            "loop without positions, 100": lambda _: own_loop(account, count, 100, False),
            "client, 100": lambda n: processor(address, f"a{n}", count, 100, False),
            "loop, 1,000": lambda _: own_loop(account, count, 1000, True),
            "loop without positions, 1,000": lambda _: own_loop(account, count, 1000, False),
            "client, 1,000": lambda n: processor(address, f"b{n}", count, 1000, False),
            "loop, default pages": lambda _: own_loop(account, count, None, True),
            "client, default pages": lambda n: processor(address, f"c{n}", count, None, False),
            "client, default pages, plain function": lambda n: processor(address, f"p{n}", count, None, True),
        }
        figures: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
        for n in range(rounds):
            for kind, measure in kinds.items():
                before, children = time.process_time(), Children()
                seconds = measure(n)
                own = time.process_time() - before
                figures[kind].append((count / seconds, own / count * 1e6, children.used() / count * 1e6))
        for kind, pairs in figures.items():
            rate, cost, child = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(f"{kind:38} {rate:9,.0f} changes/s; µs a change: {cost:5.1f} in Python, {child:5.1f} in the binary")


logging.getLogger("changefeed").setLevel(logging.ERROR)

if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    main(*(numbers + [50_000, 3][len(numbers) :]))
