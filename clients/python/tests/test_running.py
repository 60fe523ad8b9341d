"""How a process with a processor begins and ends, and what is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Iterator
from typing import Any

from support import LIMIT, WithServer, documents, environment

from changefeed import Batch, BinaryNotFound, ChangefeedError, Event, Processor, _binary, _child, _options, _status

APP = """
import asyncio, logging, sys
from changefeed import Processor

async def waits(batch):
    line = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), line.set)
    print("begun", flush=True)
    await line.wait()
    print("handled", flush=True)

def hangs(batch):
    print("begun", flush=True)
    sys.stdin.readline()

logging.getLogger("changefeed").addHandler(logging.NullHandler())
handler = {"waits": waits, "hangs": hangs}[sys.argv[2]]
Processor(sys.argv[1], name="mailer", handler=handler, create_leases=True).run_sync()
print("ended")
"""


@contextlib.contextmanager
def app(orders: str, handler: str) -> Iterator[subprocess.Popen[str]]:
    """A process with a processor, whose handler has a batch and waits for a line."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", APP, orders, handler]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "begun\n":
                raise AssertionError(process.communicate()[1])
            yield process
        finally:
            process.kill()


@unittest.skipIf(os.name == "nt", "signals of Unix")
class Signals(WithServer):
    async def test_a_signal_ends_in_order(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            orders = await self.account.fresh_container()
            await self.account.put(orders, *documents(1))
            with app(orders, "waits") as process:
                process.send_signal(number)
                output, errors = await asyncio.to_thread(process.communicate, "\n", LIMIT)
            self.assertEqual((process.returncode, output), (0, "handled\nended\n"), errors)
            self.assertEqual((await self.account.status(orders, "mailer")).pending, 0)

    async def test_a_second_signal_ends_at_once(self) -> None:
        for handler in ("waits", "hangs"):
            orders = await self.account.fresh_container()
            await self.account.put(orders, *documents(1))
            with app(orders, handler) as process:
                begun = time.monotonic()
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGINT)
                code = await asyncio.to_thread(process.wait, LIMIT)
            self.assertIsNotNone(code)
            self.assertLess(time.monotonic() - begun, 9)  # and not --drain, 10 s
            status = await self.account.status(orders, "mailer")
            self.assertEqual((status.pending, status.instances), (1, 0))

    async def test_a_second_signal_ends_the_wait_for_a_handler_that_hangs(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(1))
        begun, end = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hang(batch: Batch) -> None:
            loop.call_soon_threadsafe(begun.set)
            end.wait(LIMIT)

        p = Processor(orders, name="m", handler=hang, create_leases=True, drain=0.1)
        await p.start()
        await asyncio.wait_for(begun.wait(), LIMIT)
        p._ask_to_stop()  # the first signal
        waiting = asyncio.create_task(p.wait())
        try:
            await asyncio.wait_for(asyncio.shield(p._started().over), LIMIT)
            done, _ = await asyncio.wait([waiting], timeout=0)
            self.assertFalse(done)
            p._hurry()  # the second one
            done, _ = await asyncio.wait([waiting], timeout=LIMIT / 4)
            self.assertTrue(done)
        finally:
            end.set()
            await asyncio.gather(waiting, return_exceptions=True)

    def test_a_processor_that_is_canceled_at_its_start_is_silent(self) -> None:
        with tempfile.TemporaryFile() as pipe:
            pipe.close()
            _child._enlarge(asyncio.BaseTransport({"pipe": pipe}))  # as in the callback of a child that has been killed


class Events(WithServer):
    async def test_events_and_the_log(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(1))
        events: list[Event] = []

        def keep(event: Event) -> None:
            events.append(event)
            raise ValueError("a bad callback")

        async def handle(batch: Batch) -> None:
            pass

        logger = logging.getLogger("changefeed")
        with self.assertLogs(logger, "INFO") as logs:
            async with Processor(orders, name="m", handler=handle, create_leases=True, on_event=keep) as p:
                await p.caught_up(timeout=LIMIT)
        acquired = [event for event in events if event.name == "lease" and event.fields["what"] == "acquired"]
        self.assertEqual([event.fields["lease"] for event in acquired], ["-FF"])
        self.assertTrue(any("lease acquired" in line for line in logs.output))
        self.assertTrue(any("a bad callback" in line for line in logs.output))

    async def test_not_caught_up_says_what_is_left(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(3))
        begun = asyncio.Event()

        async def handle(batch: Batch) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with Processor(orders, name="m", handler=handle, create_leases=True, drain=0.1) as p:
            await asyncio.wait_for(begun.wait(), LIMIT)
            with self.assertRaisesRegex(TimeoutError, "3 changes are still to come"):
                await p.caught_up(timeout=1)

    async def test_a_killed_binary_is_an_error_and_the_batch_is_lost(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(1))
        causes: list[str | None] = []
        begun = asyncio.Event()

        async def handle(batch: Batch) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                causes.append(batch.canceled)

        p = Processor(orders, name="m", handler=handle, create_leases=True)
        await p.start()
        await asyncio.wait_for(begun.wait(), LIMIT)
        p._started().kill()
        with self.assertRaises(ChangefeedError):
            await asyncio.wait_for(p.wait(), LIMIT)
        self.assertEqual(causes, ["lost"])

    async def test_a_canceled_run_ends_the_binary(self) -> None:
        orders = await self.account.fresh_container()

        async def handle(batch: Batch) -> None:
            pass

        p = Processor(orders, name="m", handler=handle, create_leases=True)
        running = asyncio.create_task(p.run())
        while (await p.status()).instances == 0:
            self.assertFalse(running.done())
        running.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await running
        self.assertFalse(p.running)
        self.assertEqual((await p.status()).instances, 0)

    async def test_the_key_of_the_account_is_used(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(1))
        seen: list[Batch] = []
        options = {"name": "m", "handler": seen.append, "create_leases": True, "once": True}
        await Processor(orders, connection_string=self.account.connection_string, **options).run()  # type: ignore[arg-type]
        self.assertEqual(len(seen), 1)


class Accounts(WithServer):
    async def test_a_processor_that_does_not_run_asks_with_its_account(self) -> None:
        orders = await self.account.fresh_container()

        async def handle(batch: Batch) -> None:
            pass

        p = Processor(orders, name="m", handler=handle, create_leases=True, ca="/nowhere/ca.pem")
        with self.assertRaisesRegex(ChangefeedError, "/nowhere/ca.pem"):
            await p.status()


class Options(unittest.TestCase):
    def test_flags(self) -> None:
        options = {"name": "a b", "hold": True, "once": False, "max_attempts": 0, "leases": None}
        self.assertEqual(_options.flags(options), ["--name=a b", "--hold", "--max-attempts=0"])

    def test_each_option_has_its_flag(self) -> None:
        durations = ("max_age", "timeout", "drain", "expiration", "renew", "acquire", "poll")
        counts = ("batch_size", "concurrency", "max_attempts", "max_set_aside", "min_leases", "weight")
        texts = ("leases", "instance", "dead_letters", "variant")
        switches = ("create_leases", "manual", "hold", "once", "share_by_load")
        options: dict[str, Any] = {name: name for name in texts} | dict.fromkeys(switches, True)
        options |= {name: number for number, name in enumerate((*durations, *counts), 1)}
        p = Processor("orders", name="m", handler=print, start="now", mode="all", **options)
        want = {"--source=orders", "--name=m", "--from=now", "--mode=all"}
        for name, value in options.items():
            text = "" if value is True else f"={value}" + ("000000000ns" if name in durations else "")
            want.add("--" + name.replace("_", "-") + text)
        self.assertEqual((set(p._flags), len(p._flags)), (want, len(want)))

    def test_units_of_one_name_are_told_apart(self) -> None:
        unit = {"kind": "unit", "processor": "m", "instances": 1, "pending_exact": True, "pending_shared": False}
        unit |= {"oldest_seconds": 0, "stuck": [], "watermark": None, "unknown": None}
        rows = [{**unit, "container": "old-orders", "pending": 7}, {**unit, "container": "orders", "pending": 3}]
        for source, pending in (("docstore:data#orders", 3), ("docstore:data#old-orders", 7)):
            for given in (rows, rows[::-1]):
                self.assertEqual(_status.status_of("m", source, given).pending, pending)

    def test_durations_and_starts(self) -> None:
        self.assertEqual(_options.duration("poll", 0.25), "250000000ns")
        self.assertEqual(_options.duration("poll", datetime.timedelta(minutes=1)), "60000000000ns")
        self.assertEqual(_options.start("now"), "now")
        self.assertEqual(_options.start(datetime.timedelta(seconds=1)), "1000000000ns")
        zone = datetime.timezone(datetime.timedelta(hours=1))
        self.assertEqual(_options.start(datetime.datetime(2026, 1, 31, 13, tzinfo=zone)), "2026-01-31T12:00:00Z")
        with self.assertRaises(ValueError):
            _options.start(datetime.datetime(2026, 1, 31))

    def test_the_lease_container_is_beside_the_source(self) -> None:
        for source, want in (
            ("https://h:443/shop/orders", "https://h:443/shop/leases"),
            ("cosmos:shop/orders", "cosmos:shop/leases"),
            ("docstore:data/a#orders", "docstore:data/a#leases"),
            ("docstore:data#shop/orders", "docstore:data#shop/leases"),
            ("orders", "leases"),
        ):
            self.assertEqual(_options.beside(source, None), want)
        self.assertEqual(_options.beside("cosmos:a/b", "cosmos:c/d"), "cosmos:c/d")

    def test_a_key_is_not_mixed_with_those_of_the_environment(self) -> None:
        with environment(COSMOS_CONNECTION_STRING="c", COSMOS_ENDPOINT="e", COSMOS_KEY="k"):
            env = _options.environment("key", None, None)
            self.assertEqual((env["COSMOS_KEY"], "COSMOS_CONNECTION_STRING" in env), ("key", False))
            self.assertNotIn("COSMOS_KEY", _options.environment(None, "text", None))
            self.assertEqual(_options.environment(None, None, None)["COSMOS_KEY"], "k")
        with self.assertRaises(ValueError):
            _options.environment("key", "text", None)

    def test_a_batch_at_least(self) -> None:
        with self.assertRaises(ValueError):
            Processor("orders", name="m", handler=print, batches=0)


class Binaries(unittest.TestCase):
    def test_a_binary_that_is_not_there_is_named(self) -> None:
        with self.assertRaisesRegex(BinaryNotFound, "binary is /nowhere/changefeed"):
            _binary.find("/nowhere/changefeed")
        elsewhere = environment(CHANGEFEED_BINARY="/nowhere/else")
        with elsewhere, self.assertRaisesRegex(BinaryNotFound, "CHANGEFEED_BINARY is /nowhere/else"):
            _binary.find()

    def test_the_path_is_the_last_resort(self) -> None:
        here = _binary.find()
        with tempfile.TemporaryDirectory() as directory, environment(PATH=directory, CHANGEFEED_BINARY=None):
            with self.assertRaisesRegex(BinaryNotFound, "not on the PATH"):
                _binary.find()
            (pathlib.Path(directory) / os.path.basename(here)).symlink_to(here)
            self.assertEqual(pathlib.Path(_binary.find()).parent, pathlib.Path(directory))


if __name__ == "__main__":
    unittest.main()
