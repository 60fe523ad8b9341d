"""Measures the client beside azure-cosmos's own loop on the same server, in turns: changes a second of one lease.

CHANGEFEED_BINARY=... PYTHONPATH=src python3 tools/bench.py [DOCUMENTS [ROUNDS]]
"""

from __future__ import annotations

import asyncio
import json
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


def own_loop(account: Server, count: int, page: int) -> float:
    """The seconds of the SDK's loop, without leases and positions."""
    total, sum_of = 0, 0
    with CosmosClient(account.endpoint, account.key) as client:
        orders = client.get_database_client("shop").get_container_client("orders")
        begun = time.perf_counter()
        for documents in orders.query_items_change_feed(start_time="Beginning", max_item_count=page).by_page():
            for document in documents:
                sum_of += document["n"]
                total += 1
            if total >= count:
                break
    if total != count or sum_of != count * (count - 1) // 2:
        raise SystemExit(f"the loop has seen {total} changes of {count}")
    return time.perf_counter() - begun


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


def main(count: int, rounds: int) -> None:
    with server() as account:
        os.environ.pop("COSMOS_KEY", None)
        address = f"{account.endpoint}shop/orders"
        with CosmosClient(account.endpoint, account.key) as client:
            client.create_database("shop").create_container("orders", PartitionKey("/pk"))
        fill(address, count)
        kinds: dict[str, Callable[[int], float]] = {
            "azure-cosmos, pages of 100": lambda n: own_loop(account, count, 100),
            "azure-cosmos, pages of 1,000": lambda n: own_loop(account, count, 1000),
            "client, coroutine": lambda n: processor(address, f"c{n}", count, None, False),
            "client, coroutine, batches of 100": lambda n: processor(address, f"s{n}", count, 100, False),
            "client, plain function": lambda n: processor(address, f"p{n}", count, None, True),
        }
        figures: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for n in range(rounds):
            for kind, measure in kinds.items():
                before = time.process_time()
                seconds = measure(n)
                figures[kind].append((count / seconds, (time.process_time() - before) / count * 1e6))
        for kind, pairs in figures.items():
            rate = statistics.median(rate for rate, _ in pairs)
            cost = statistics.median(cost for _, cost in pairs)
            print(f"{kind:34} {rate:10,.0f} changes/s {cost:8.1f} µs of this process each")


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    main(*(numbers + [50_000, 3][len(numbers) :]))
