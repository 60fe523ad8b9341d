"""The program's end of the contract, message by message."""

from __future__ import annotations

import asyncio
import datetime
import json
import threading
import unittest
from collections.abc import Callable
from typing import Any, cast

from support import LIMIT

from changefeed import Batch, Change, ChangefeedError, Failure, Poison, Untried
from changefeed._answers import encode, failed
from changefeed._batch import parse_time
from changefeed._connection import Connection, Handler, is_coroutine_function


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def batch(number: int, *documents: Any, **more: Any) -> bytes:
    count = range(len(documents))
    changes: dict[str, list[Any]] = {
        "lsn": list(count),
        "time": ["2026-01-31T12:00:00.123456789Z" for _ in count],
        "id": [str(n) for n in count],
        "key": [["a"] for _ in count],
        "document": list(documents),
    }
    head = {"type": "batch", "id": number, "lease": "-FF", "range": "-FF", "instance": "i", "epoch": 1, "attempt": 1}
    return line({**head, **more, "changes": changes})


class Wire:
    """A connection whose messages are kept."""

    def __init__(self, handler: Handler) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.connection = Connection(handler, batches=2, write=lambda data: self.sent.put_nowait(json.loads(data)))

    async def answer(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.sent.get(), LIMIT)


class Answers(unittest.IsolatedAsyncioTestCase):
    async def outcome(self, error: BaseException | None, changes: int = 2) -> dict[str, Any]:
        async def handle(batch: Batch) -> None:
            if error is not None:
                raise error

        wire = Wire(handle)
        wire.connection.feed(batch(7, *[{"n": n} for n in range(changes)]))
        return await wire.answer()

    async def test_each_outcome_has_its_answer(self) -> None:
        items: dict[int, BaseException | str] = {1: Poison("bad"), 0: Untried()}
        for error, want in (
            (None, {"type": "done"}),
            (KeyError("city"), {"error": "KeyError: 'city'"}),
            (ZeroDivisionError(), {"error": "ZeroDivisionError"}),
            (Poison("bad"), {"error": "bad", "poison": True}),
            (Failure("late", done=1, after=datetime.timedelta(seconds=2)), {"error": "late", "done": 1, "after": 2.0}),
            (Failure(OSError("down"), outage=True), {"error": "OSError: down", "outage": True}),
            (
                Failure(items=items),
                {
                    "items": [
                        {"index": 0, "error": "not tried", "untried": True},
                        {"index": 1, "error": "bad", "poison": True},
                    ]
                },
            ),
        ):
            with self.subTest(error=error):
                self.assertEqual(await self.outcome(error), {"type": "failed", "id": 7, **want})

    async def test_a_failure_that_breaks_the_contract_fails_the_batch(self) -> None:
        wrong_type: Any = Failure("x", done=1)
        wrong_type.after = "5s"
        for error in (
            Failure(done=3),
            Failure("x", done=2),
            Failure(items={2: "x"}),
            Failure(after=1e9),
            Failure(after=float("nan")),
            Failure(done=cast(int, 1.0)),
            Failure(done=cast(int, "1")),
            Failure(done=True),
            Failure(items={True: "x"}),
            wrong_type,
        ):
            with self.subTest(error=vars(error)):
                with self.assertLogs("changefeed", "ERROR"):
                    answer = await self.outcome(error)
                self.assertEqual(set(answer), {"type", "id", "error"})
                self.assertIn("Failure.", answer["error"])

    async def test_whatever_is_raised_has_an_answer(self) -> None:
        class Textless(Exception):
            def __str__(self) -> str:
                raise ValueError

        class Base(BaseException):
            pass

        for error in (Textless(), Base("x"), Failure(items={0: Textless()}), Poison(Textless())):
            with self.subTest(error=type(error)), self.assertLogs("changefeed", "DEBUG"):
                answer = await self.outcome(error)
                self.assertEqual(answer["type"], "failed")
                self.assertNotEqual(answer.get("error", "items"), "")

    async def test_no_answer_is_longer_than_the_processor_reads(self) -> None:
        items: dict[int, BaseException | str] = dict.fromkeys(range(20_000), "\0" * 9000)
        self.assertLess(len(encode(failed(7, Failure(items=items)))), 16 << 20)

    async def test_the_first_attempt_has_its_traceback_in_the_log(self) -> None:
        for error, attempt, level in (
            (KeyError("city"), 1, "WARNING"),
            (KeyError("city"), 2, "DEBUG"),
            (Poison("bad"), 1, "DEBUG"),
            (Failure("late"), 1, "DEBUG"),
        ):

            async def handle(_: Batch, error: Exception = error) -> None:
                raise error

            with self.subTest(error=error, attempt=attempt), self.assertLogs("changefeed", "DEBUG") as logs:
                wire = Wire(handle)
                wire.connection.feed(batch(1, {}, attempt=attempt))
                await wire.answer()
            told = [r for r in logs.records if r.exc_info is not None]
            self.assertEqual([r.levelname for r in told], [level])

    async def test_an_error_that_is_returned_counts(self) -> None:
        async def handle(batch: Batch) -> Any:
            return Failure("returned")

        wire = Wire(handle)
        wire.connection.feed(batch(1, {}))
        self.assertEqual(await wire.answer(), {"type": "failed", "id": 1, "error": "returned"})

    def test_texts_are_cut(self) -> None:
        self.assertEqual(len(failed(1, ValueError("x" * 100_000))["error"]), 8192)


class Cancels(unittest.IsolatedAsyncioTestCase):
    async def test_a_batch_that_is_canceled_before_it_begins_is_released(self) -> None:
        seen: list[Batch] = []

        async def handle(batch: Batch) -> None:
            seen.append(batch)

        wire = Wire(handle)
        wire.connection.feed(batch(1, {}) + line({"type": "cancel", "id": 1, "cause": "lost"}))
        self.assertEqual(await wire.answer(), {"type": "released", "id": 1})
        self.assertEqual(seen, [])

    async def test_the_answer_comes_when_the_handler_has_ended(self) -> None:
        begun, cleaned = asyncio.Event(), asyncio.Event()

        async def handle(batch: Batch) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await cleaned.wait()
                self.assertEqual(batch.canceled, "lost")

        wire = Wire(handle)
        wire.connection.feed(batch(1, {}))
        await asyncio.wait_for(begun.wait(), LIMIT)
        wire.connection.feed(line({"type": "cancel", "id": 1, "cause": "lost", "seconds": 3}))
        for _ in range(10):  # turns of the loop
            await asyncio.sleep(0)
        self.assertTrue(wire.sent.empty())
        cleaned.set()
        self.assertEqual(await wire.answer(), {"type": "released", "id": 1})

    async def test_a_plain_function_sees_the_cancel_and_is_released(self) -> None:
        begun = threading.Event()

        def handle(batch: Batch) -> None:
            begun.set()
            batch.cancelled.wait(LIMIT)

        wire = Wire(handle)
        wire.connection.feed(batch(1, {}))
        await asyncio.to_thread(begun.wait, LIMIT)
        wire.connection.feed(line({"type": "cancel", "id": 1, "cause": "stopped"}))
        self.assertEqual(await wire.answer(), {"type": "released", "id": 1})

    async def test_what_a_canceled_handler_raises_does_not_count(self) -> None:
        begun = threading.Event()

        async def handle(batch: Batch) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("broken off") from None

        def plain(batch: Batch) -> None:
            begun.set()
            batch.cancelled.wait(LIMIT)
            raise ValueError("broken off")

        handlers: list[Handler] = [handle, plain]
        for handler in handlers:
            begun.clear()
            wire = Wire(handler)
            wire.connection.feed(batch(1, {}))
            await asyncio.to_thread(begun.wait, LIMIT)
            wire.connection.feed(line({"type": "cancel", "id": 1, "cause": "lost"}))
            self.assertEqual(await wire.answer(), {"type": "released", "id": 1})

    async def test_plain_functions_run_at_once(self) -> None:
        both = threading.Barrier(2, timeout=LIMIT)

        def handle(batch: Batch) -> None:
            both.wait()

        wire = Wire(handle)
        wire.connection.feed(batch(1, {}) + batch(2, {}))
        answers = [await wire.answer(), await wire.answer()]
        self.assertEqual({answer["type"] for answer in answers}, {"done"})

    async def test_a_processor_without_columns_is_refused(self) -> None:
        async def handle(batch: Batch) -> None: ...

        wire = Wire(handle)
        wire.connection.feed(line({"type": "hello", "version": 1, "can": ["status"]}))
        failure = wire.connection.failure
        self.assertIsNotNone(failure)
        assert failure is not None
        self.assertEqual(failure.code, "contract")
        self.assertIn("sends no columns", str(failure))

    async def test_the_end_of_the_pipe_answers_a_question(self) -> None:
        async def handle(batch: Batch) -> None: ...

        wire = Wire(handle)
        wire.connection.feed(line({"type": "hello", "version": 1, "can": ["columns", "status", "caughtup"]}))
        asked = [asyncio.create_task(wire.connection.ask(kind)) for kind in ("status", "caughtup")]
        self.assertEqual([(await wire.answer())["type"] for _ in asked], ["status", "caughtup"])
        wire.connection.end()
        for one in asked:
            with self.assertRaises(ChangefeedError) as caught:
                await asyncio.wait_for(one, LIMIT)
            self.assertEqual(caught.exception.code, "died")

    async def test_a_wait_of_more_than_a_day_has_no_limit(self) -> None:
        async def handle(batch: Batch) -> None: ...

        wire = Wire(handle)
        wire.connection.feed(line({"type": "hello", "version": 1, "can": ["columns", "caughtup"]}))
        for seconds, want in ((5, 5), (0, 0.001), (86_400, 86_400), (86_401, None), (float("inf"), None), (None, None)):
            asked = asyncio.create_task(wire.connection.ask("caughtup", seconds))
            self.assertEqual((await wire.answer()).get("seconds"), want)
            asked.cancel()

    async def test_the_end_of_the_pipe_cancels_batches_as_lost(self) -> None:
        begun: asyncio.Queue[Batch] = asyncio.Queue()

        async def handle(batch: Batch) -> None:
            await begun.put(batch)
            await asyncio.Event().wait()

        wire = Wire(handle)
        wire.connection.feed(batch(1, {}))
        one = await asyncio.wait_for(begun.get(), LIMIT)
        wire.connection.end()
        await asyncio.wait_for(wire.connection.idle.wait(), LIMIT)
        self.assertEqual(one.canceled, "lost")
        self.assertTrue(wire.sent.empty())


class Checkpoints(unittest.IsolatedAsyncioTestCase):
    async def test_each_checkpoint_of_a_batch_has_its_answer(self) -> None:
        refused: list[str | None] = []

        async def store(batch: Batch) -> None:
            try:
                await batch.checkpoint()
                refused.append(None)
            except ChangefeedError as error:
                refused.append(error.error)

        async def handle(batch: Batch) -> None:
            await asyncio.gather(*[store(batch) for _ in range(4)])

        wire = Wire(handle)
        wire.connection.feed(batch(1, {}, manual=True))
        for more in ({}, {"error": "the lease is lost"}, {}, {"error": "the lease is lost"}):
            self.assertEqual(await wire.answer(), {"type": "checkpoint", "id": 1})
            wire.connection.feed(line({"type": "checkpointed", "id": 1, **more}))
        self.assertEqual(await wire.answer(), {"type": "done", "id": 1})
        self.assertEqual(refused, [None, "the lease is lost", None, "the lease is lost"])

    async def test_a_checkpoint_that_nobody_waits_for_harms_no_other(self) -> None:
        async def handle(batch: Batch) -> None:
            first = asyncio.create_task(batch.checkpoint())
            await asyncio.sleep(0)  # a turn of the loop, in which it is sent
            first.cancel()
            await batch.checkpoint()

        wire = Wire(handle)
        wire.connection.feed(batch(1, {}, manual=True))
        for more in ({"error": "the lease is lost"}, {}):  # the first is for the one that was canceled
            self.assertEqual(await wire.answer(), {"type": "checkpoint", "id": 1})
            wire.connection.feed(line({"type": "checkpointed", "id": 1, **more}))
        self.assertEqual(await wire.answer(), {"type": "done", "id": 1})


class Reading(unittest.IsolatedAsyncioTestCase):
    async def received(self, data: bytes, size: int) -> list[Change]:
        changes: list[Change] = []

        async def handle(batch: Batch) -> None:
            changes.extend(batch)

        wire = Wire(handle)
        for at in range(0, len(data), size):
            wire.connection.feed(data[at : at + size])
        await wire.answer()
        return changes

    async def test_messages_come_in_pieces(self) -> None:
        hello = line({"type": "hello", "version": 1, "can": ["columns"]})
        data = hello + line({"type": "news"}) + batch(1, {"a": "ü€😀"}, None)
        for size in (1, 2, 7, len(data)):
            changes = await self.received(data, size)
            self.assertEqual([change.document for change in changes], [{"a": "ü€😀"}, None])
            self.assertIsNone(changes[1].json)

    async def test_a_message_in_pieces_leaves_nothing_to_the_next(self) -> None:
        texts = ["é" * 700_000, "b" * 40, "é" * 9, "", "d" * 300, "f" * 2_000_000, "g"]
        sent = b"".join(batch(number, {"text": text}) for number, text in enumerate(texts, 1))
        for size in (90, 99_991, len(sent)):
            got: list[str] = []

            async def handle(batch: Batch, got: list[str] = got) -> None:
                got.append(batch.changes[0].document["text"])

            wire = Wire(handle)
            for at in range(0, len(sent), size):
                wire.connection.feed(sent[at : at + size])
            for number in range(1, len(texts) + 1):
                self.assertEqual(await wire.answer(), {"type": "done", "id": number})
            self.assertEqual(got, texts)

    async def test_the_text_of_a_document_is_as_it_was(self) -> None:
        text = '{ "a" : 1.50, "document":[{"x":"}],\\"{"}], "id":"\\u00fc" }'
        data = batch(1, "MARK", {"b": [[], {}]}, "MARK").replace(b'"MARK"', text.encode())
        changes = await self.received(data, len(data))
        self.assertEqual([change.json for change in changes], [text, '{"b": [[], {}]}', text])
        self.assertEqual(changes[0].document, json.loads(text))

    async def test_a_document_that_python_cannot_parse_fails_alone(self) -> None:
        number = "9" * 5000
        data = batch(1, {"a": 1}, "MARK", {"a": 2}).replace(b'"MARK"', ('{"n":' + number + "}").encode())
        changes = await self.received(data, len(data))
        self.assertEqual((changes[0].document, changes[2].document), ({"a": 1}, {"a": 2}))
        with self.assertRaises(ValueError):
            _ = changes[1].document
        self.assertEqual(changes[1].json, '{"n":' + number + "}")

    async def test_a_document_that_is_too_deep_fails_alone(self) -> None:
        deep = "[" * 100_000 + "]" * 100_000
        data = batch(1, {"a": 1}, "MARK", None).replace(b'"MARK"', deep.encode())
        changes = await self.received(data, len(data))
        self.assertEqual((changes[0].document, changes[2].document), ({"a": 1}, None))
        with self.assertRaises(RecursionError):
            _ = changes[1].document
        self.assertEqual((changes[1].json, changes[2].json), (deep, None))

    async def test_a_previous_document_that_python_cannot_parse_fails_alone(self) -> None:
        message = json.loads(batch(1, {"a": 1}, {"a": 2}))
        message["changes"] |= {"op": ["replace", "upsert"], "previous": ["MARK", None]}
        number = "9" * 5000
        data = line(message).replace(b'"MARK"', number.encode())
        changes = await self.received(data, len(data))
        self.assertEqual([change.document for change in changes], [{"a": 1}, {"a": 2}])
        with self.assertRaises(ValueError):
            _ = changes[0].previous
        self.assertEqual((changes[0].previous_json, changes[1].previous), (number, None))

    async def test_a_batch_has_the_members_of_its_message(self) -> None:
        received: list[Batch] = []

        async def handle(batch: Batch) -> None:
            received.append(batch)

        members = {"lease": "-7F", "range": "00-7F", "instance": "one", "epoch": 3, "attempt": 2, "session": "0:1#2"}
        members |= {"position": "5", "head": 9, "charge": 2.5, "seconds": 30.0}
        wire = Wire(handle)
        for more in ({"cut": True}, {"redriven": True}, {"manual": True}, {}):
            wire.connection.feed(batch(4, {}, **members, **more))
            await wire.answer()
            flags = {"cut": False, "redriven": False, "manual": False, **more}
            for name, want in {"id": 4, **members, **flags}.items():
                self.assertEqual(getattr(received[-1], name), want, name)

    async def test_members_of_all_versions(self) -> None:
        message = json.loads(batch(1, {"a": 2}, {"a": 3}))
        message["changes"] |= {"op": ["replace", "create"], "previous": [{"a": 1}, None], "previous_lsn": [3, 0]}
        message["changes"]["expired"] = [True, False]
        data = line(message)
        change, first = await self.received(data, len(data))
        self.assertEqual((first.op, first.previous, first.previous_lsn, first.expired), ("create", None, None, False))
        self.assertEqual(
            (change.op, change.previous, change.previous_lsn, change.expired), ("replace", {"a": 1}, 3, True)
        )
        self.assertEqual(change.previous_json, '{"a": 1}')

    def test_times_are_cut_to_microseconds(self) -> None:
        self.assertEqual(parse_time("2026-01-31T12:00:00.123456789Z").microsecond, 123456)
        self.assertEqual(parse_time("2026-01-31T12:00:00.5Z").microsecond, 500_000)
        self.assertEqual(parse_time("2026-01-31T12:00:00Z").microsecond, 0)
        self.assertEqual(parse_time("2026-01-31T12:00:00+01:00").utcoffset(), datetime.timedelta(hours=1))
        with self.assertRaises(ValueError):
            parse_time("yesterday")

    def test_handlers_are_told_apart(self) -> None:
        class Called:
            async def __call__(self, batch: Batch) -> None: ...

        async def coroutine(batch: Batch) -> None: ...

        def plain(batch: Batch) -> None: ...

        handlers: list[Callable[[Batch], Any]] = [Called(), coroutine, plain]
        self.assertEqual([is_coroutine_function(handler) for handler in handlers], [True, True, False])

    def test_changes_for_tests(self) -> None:
        change = Change.of({"id": "1", "city": "Bonn"}, key=["Bonn"])
        self.assertEqual((change.id, change.key, change.json), ("1", ["Bonn"], '{"id":"1","city":"Bonn"}'))
        self.assertEqual(len(Batch((change,))), 1)


if __name__ == "__main__":
    unittest.main()
