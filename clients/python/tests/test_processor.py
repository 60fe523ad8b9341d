"""A processor beside a server."""

from __future__ import annotations

import asyncio
import threading
import unittest
from typing import Any

from support import LIMIT, WithServer, documents

from changefeed import Batch, ChangefeedError, Event, Failure, Poison, Processor


class Delivery(WithServer):
    async def test_handles_every_change_in_order(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(50))
        seen: list[int] = []

        async def handle(batch: Batch) -> None:
            seen.extend(change.document["n"] for change in batch)

        async with Processor(orders, name="mailer", handler=handle, create_leases=True) as p:
            await p.caught_up(timeout=LIMIT)
            self.assertEqual(seen, list(range(50)))
            await self.account.put(orders, {"id": "x", "pk": "a", "n": 99})
            await p.caught_up(timeout=LIMIT)
            self.assertEqual(seen[50:], [99])
            status = await p.status()
            self.assertEqual((status.pending, status.instances, len(status.leases)), (0, 1, 1))
        self.assertFalse(p.running)

    async def test_lag_is_none_before_the_unit_has_begun(self) -> None:
        orders = await self.account.fresh_container()
        p = Processor(orders, name="mailer", handler=lambda batch: None, create_leases=True)
        self.assertIsNone(await p.lag())

    async def test_a_handler_that_cannot_be_called_is_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "handler is 'mail': want a function of a batch"):
            Processor("http://127.0.0.1:9/shop/orders", name="mailer", handler="mail")  # type: ignore[arg-type]

    async def test_a_plain_function_runs_in_a_thread(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(3))
        threads: list[str] = []

        def handle(batch: Batch) -> None:
            threads.append(threading.current_thread().name)

        async with Processor(orders, name="mailer", handler=handle, create_leases=True) as p:
            await p.caught_up(timeout=LIMIT)
        self.assertTrue(threads[0].startswith("changefeed"), threads)

    async def test_documents_have_their_text(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, {"id": "ü", "pk": 'a"]}', "n": [{"document": "x"}], "f": 1.5})
        changes: list[Any] = []

        async def handle(batch: Batch) -> None:
            changes.extend(batch)

        async with Processor(orders, name="mailer", handler=handle, create_leases=True) as p:
            await p.caught_up(timeout=LIMIT)
        change = changes[0]
        self.assertIn('"n":[{"document":"x"}]', change.json.replace(" ", ""))
        self.assertEqual((change.id, change.key, change.op, change.lsn > 0), ("ü", ['a"]}'], "upsert", True))
        self.assertIsNotNone(change.time.tzinfo)


class Failures(WithServer):
    async def test_failed_changes_come_again_and_others_do_not(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *[{"id": str(n), "pk": f"k{n}", "n": n} for n in range(5)])
        seen: list[tuple[int, int]] = []

        async def handle(batch: Batch) -> None:
            seen.extend((change.document["n"], batch.attempt) for change in batch)
            if batch.attempt == 1:
                raise Failure(items={3: "no"})

        async with Processor(orders, name="mailer", handler=handle, create_leases=True) as p:
            await p.caught_up(timeout=LIMIT)
        self.assertEqual(seen, [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (3, 2)])

    async def test_poison_is_parked_with_its_text(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, {"id": "1", "pk": "a"}, {"id": "2", "pk": "b"})
        letters = orders.replace("/items", "/letters")
        handled: list[str] = []
        events: list[Event] = []

        async def handle(batch: Batch) -> None:
            failed: dict[int, Exception] = {}
            for index, change in enumerate(batch):
                if change.id == "1":
                    failed[index] = Poison(ValueError("bad order"))
                else:
                    handled.append(change.id)
            if failed:
                raise Failure(items=failed)

        p = Processor(
            orders,
            name="mailer",
            handler=handle,
            create_leases=True,
            max_attempts=3,
            dead_letters=letters,
            on_event=events.append,
        )
        async with p:
            await p.caught_up(timeout=LIMIT)
        parked = [event.fields for event in events if event.name == "parked"]
        self.assertEqual(
            [(one["item"], one["cause"], one["disposition"]) for one in parked],
            [("1", "ValueError: bad order", "poison")],
        )
        self.assertEqual(handled, ["2"])

    async def test_the_error_of_the_binary_is_raised(self) -> None:
        p = Processor(f"{self.account.endpoint}none/nothing", name="mailer", handler=lambda batch: None)
        with self.assertRaises(ChangefeedError) as caught:
            await p.start()
        self.assertEqual(caught.exception.code, "missing")
        self.assertIn("none/nothing", caught.exception.error)

    async def test_a_duration_that_is_none_names_its_option(self) -> None:
        with self.assertRaisesRegex(ValueError, "poll is '5s': want seconds or a timedelta"):
            Processor("http://127.0.0.1:1/a/b", name="mailer", handler=lambda batch: None, poll="5s")  # type: ignore[arg-type]

    async def test_a_key_is_no_argument(self) -> None:
        orders = await self.account.fresh_container()
        p = Processor(
            orders, name="mailer", handler=lambda batch: None, create_leases=True, credential="d3Jvbmcga2V5Li4uLi4u"
        )
        with self.assertRaises(ChangefeedError) as caught:
            await p.start()
        self.assertEqual(caught.exception.code, "refused")
        self.assertNotIn("d3Jvbmcga2V5", " ".join(p._flags + p._account))


class Endings(WithServer):
    async def test_a_batch_is_canceled_when_the_drain_is_over(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(1))
        begun = asyncio.Event()
        causes: list[str | None] = []

        async def handle(batch: Batch) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                causes.append(batch.canceled)
                raise

        async with Processor(orders, name="mailer", handler=handle, create_leases=True, drain=0.2) as p:
            await asyncio.wait_for(begun.wait(), LIMIT)
        self.assertEqual(causes, ["stopped"])
        self.assertEqual(await p.lag(), 1)

    async def test_a_plain_function_is_told_of_its_timeout(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(1))
        causes: list[str | None] = []

        def handle(batch: Batch) -> None:
            if batch.attempt == 1:
                batch.cancelled.wait(LIMIT)
                causes.append(batch.canceled)

        async with Processor(orders, name="mailer", handler=handle, create_leases=True, timeout=0.2) as p:
            await p.caught_up(timeout=LIMIT)
        self.assertEqual(causes, ["timeout"])

    async def test_once_ends_by_itself(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(5))
        seen: list[str] = []

        async def handle(batch: Batch) -> None:
            seen.extend(change.id for change in batch)

        await asyncio.wait_for(Processor(orders, name="m", handler=handle, create_leases=True, once=True).run(), LIMIT)
        self.assertEqual(len(seen), 5)

    async def test_manual_positions_are_stored_at_a_checkpoint(self) -> None:
        orders = await self.account.fresh_container()
        await self.account.put(orders, *documents(5))
        given: asyncio.Queue[Batch] = asyncio.Queue()

        async with Processor(orders, name="m", handler=given.put, create_leases=True, manual=True) as p:
            batch = await asyncio.wait_for(given.get(), LIMIT)
            self.assertEqual(await p.lag(), 5)
            await batch.checkpoint()
            await p.caught_up(timeout=LIMIT)


if __name__ == "__main__":
    unittest.main()
