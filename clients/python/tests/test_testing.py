"""The server for tests."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import LIMIT

from changefeed import Batch, ChangefeedError, Processor
from changefeed.testing import server

HERE = pathlib.Path(__file__).resolve().parent

KILLED = """
import os, signal
from changefeed.testing import server
with server() as account:
    print(account.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_PROCESSOR = """
import os, signal, sys
from changefeed import Processor
p = Processor(sys.argv[1], name="mailer", create_leases=True, handler=lambda b: os.kill(os.getpid(), signal.SIGKILL))
p.run_sync()
"""

PLUGIN = """
def test_fixture(changefeed_server):
    orders = changefeed_server.fresh_container()
    changefeed_server.put(orders, {"id": "1", "pk": "a"})
    assert len(changefeed_server.ranges(orders)) == 1
"""


def gone(pid: int) -> bool:
    """Waits until a process has ended; says whether it has."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
    return False


class Servers(unittest.TestCase):
    def test_each_container_is_fresh(self) -> None:
        with server() as account:
            first, second = account.fresh_container(), account.fresh_container("/a")
            self.assertNotEqual(first.database, second.database)
            account.put(first, {"id": "1", "pk": "a"})
            with self.assertRaises(ChangefeedError):
                account.put(second, {"a": "no id"})

    def test_a_partition_is_split_and_merged(self) -> None:
        with server() as account:
            orders = account.fresh_container()
            parts = [row["id"] for row in account.split(orders)]
            self.assertEqual(len(parts), 2)
            self.assertEqual(len(account.split(orders, parts[0])), 2)
            ids = [row["id"] for row in account.ranges(orders)]
            self.assertEqual(len(ids), 3)
            account.merge(orders, ids[0], ids[1])
            self.assertEqual(len(account.ranges(orders)), 2)

    def test_data_in_a_directory_outlive_a_kill(self) -> None:
        seen: list[Batch] = []
        with tempfile.TemporaryDirectory() as directory, server(pathlib.Path(directory) / "store") as account:
            orders = account.fresh_container()
            account.put(orders, {"id": "1", "pk": "a"})
            endpoint = account.endpoint
            account.restart(kill=True)
            self.assertEqual(account.endpoint, endpoint)
            Processor(orders, name="t", handler=seen.append, create_leases=True, once=True).run_sync()
            account.caught_up(orders, "t", timeout=LIMIT)
        self.assertEqual([change.id for batch in seen for change in batch], ["1"])

    def test_data_in_memory_are_not_restarted(self) -> None:
        with server() as account, self.assertRaises(ValueError):
            account.restart()

    def test_requests_fail_on_order(self) -> None:
        seen: list[Batch] = []
        with server() as account:
            orders = account.fresh_container()
            account.fail(400, container=orders, method="POST")
            with self.assertRaises(ChangefeedError):
                account.put(orders, {"id": "0", "pk": "a"})
            account.put(orders, {"id": "1", "pk": "a"})
            account.fail(429, sub_status=3200, retry_after=0.01, container=orders, times=2)
            account.fail(lose=True, container=orders)
            Processor(orders, name="t", handler=seen.append, create_leases=True, once=True).run_sync()
            self.assertEqual(account.faults(), [])
            account.fail(503, times=100)
            account.heal()
            self.assertEqual(len(account.ranges(orders)), 1)
            with self.assertRaisesRegex(ChangefeedError, "the fault is refused"):
                account.fail(1)
        self.assertEqual([change.id for batch in seen for change in batch], ["1"])

    def test_a_wrong_flag_is_an_error(self) -> None:
        with self.assertRaises(ChangefeedError) as caught, server(consistency="Sometimes"):
            self.fail("it has started")
        self.assertEqual(caught.exception.code, "usage")


@unittest.skipIf(os.name == "nt", "this needs kill -9")
class Kills(unittest.TestCase):
    def test_a_server_ends_with_its_killed_parent(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=LIMIT, check=False
        )
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        self.assertTrue(gone(int(done.stdout)))

    def test_the_leases_of_a_killed_processor_are_free_at_once(self) -> None:
        with server() as account:
            orders = account.fresh_container()
            account.put(orders, {"id": "1", "pk": "a"})
            command = [sys.executable, "-c", KILLED_PROCESSOR, orders]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
            seen: list[Batch] = []
            begun = time.monotonic()
            Processor(orders, name="mailer", handler=seen.append, once=True).run_sync()
            self.assertEqual([change.id for change in seen[0]], ["1"])
            self.assertLess(time.monotonic() - begun, LIMIT)  # and not --expiration, a minute


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed")
class Plugin(unittest.TestCase):
    def test_the_fixture_is_a_server(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            test = pathlib.Path(directory) / "test_fixture.py"
            test.write_text(PLUGIN)
            command = [sys.executable, "-m", "pytest", "-q", "-p", "changefeed._pytest", str(test)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=directory)
        self.assertIn("1 passed", done.stdout, done.stdout + done.stderr)


@unittest.skipUnless(importlib.util.find_spec("azure"), "azure-cosmos is not installed")
class Sdk(unittest.TestCase):
    def test_the_unmodified_sdk_uses_the_server(self) -> None:
        from azure.cosmos import CosmosClient, PartitionKey

        with server() as account, CosmosClient(account.endpoint, account.key) as client:
            database = client.create_database("shop")
            orders = database.create_container("orders", PartitionKey("/pk"))
            for n in range(5):
                orders.create_item({"id": str(n), "pk": "a", "n": n})
            seen: list[int] = []

            def handle(batch: Batch) -> None:
                seen.extend(change.document["n"] for change in batch)

            address = f"{account.endpoint}shop/orders"
            Processor(address, name="t", handler=handle, create_leases=True, once=True).run_sync()
            self.assertEqual(seen, list(range(5)))


if __name__ == "__main__":
    unittest.main()
