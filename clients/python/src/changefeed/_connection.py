"""The program's end of the contract (docs/program.md): takes messages, runs the handler, sends answers."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import io
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from changefeed import _answers
from changefeed._batch import Batch, Cause, batch_of, read_message
from changefeed._errors import ChangefeedError, Failure, Poison
from changefeed._threads import Threads
from changefeed._version import VERSION

Handler = Callable[[Batch], Awaitable[None] | None]

HEARTBEAT = 5.0  # seconds
_KEPT = 1 << 20  # bytes of a message, whose memory is used again
_LONGEST = 24 * 3600  # seconds of a question; the processor refuses more

Token = Callable[[str], Awaitable[tuple[str, float]]]  # a token of a scope, and when it expires

_EVENTS = ("ready", "lease", "parked", "outage", "problem")

log = logging.getLogger("changefeed")


def is_coroutine_function(handler: Handler) -> bool:
    """Whether a handler is asynchronous: a coroutine function, or an object whose __call__ is one."""
    if inspect.iscoroutinefunction(handler):
        return True
    return inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


class _InHand:
    """A batch in the handler."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.task: asyncio.Task[None] | None = None
        self.started = False  # a task that is canceled before it has started never runs


class Connection:
    """Speaks the contract. The owner feeds it with bytes and gives it a function that writes."""

    def __init__(
        self,
        handler: Handler,
        *,
        batches: int,
        write: Callable[[bytes], None],
        on_event: Callable[[dict[str, Any]], None] | None = None,
        token: Token | None = None,
    ) -> None:
        if batches < 1:
            raise ValueError(f"batches is {batches}: want 1 or more")
        self._handler = handler
        self._asynchronous = is_coroutine_function(handler)
        self._batches = batches
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._begun = io.BytesIO()  # a message that is not complete, up to the position
        self._in_hand: dict[int, _InHand] = {}
        self._checkpoints: dict[int, list[asyncio.Future[str]]] = {}  # by batch, in the order of their answers
        self._threads: Threads | None = None
        self._heart: asyncio.TimerHandle | None = None
        self._on_event, self._token = on_event, token
        self._asking: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._questions = 0
        self._answering: set[asyncio.Task[None]] = set()
        self._can: list[str] = []
        self.failure: ChangefeedError | None = None  # with which the processor has ended
        self._ended = False
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()  # the pipe has ended
        self.idle = asyncio.Event()  # no batch is in the handler
        self.idle.set()
        self.stopping = False
        self.error: str | None = None
        self.unit = ""
        self.instance = ""

    def start(self) -> None:
        """Says hello."""
        hello: dict[str, Any] = {"type": "hello", "version": 1, "batches": self._batches, "heartbeat": HEARTBEAT}
        hello["columns"] = True
        if self._on_event is not None:
            hello["events"] = True
        if self._token is not None:
            hello["tokens"] = True
        self._send(hello | {"client": f"changefeed-python {VERSION}"})
        self._beat()

    def stop(self) -> None:
        """Asks for the end of the processor."""
        self._send({"type": "stop"})

    def feed(self, data: bytes) -> None:
        """Takes bytes of the processor."""
        view, begin = memoryview(data), 0
        while (end := data.find(b"\n", begin)) >= 0:
            if self._begun.tell() == 0:
                self._take(view[begin:end])
            else:
                self._begun.write(view[begin:end])
                self._take_begun()
            begin = end + 1
        self._begun.write(view[begin:])

    def _take_begun(self) -> None:
        """Takes the message that has come in parts. Its memory stays for the next one: to get it anew costs more."""
        begun = self._begun
        with begun.getbuffer() as memory, memory[: begun.tell()] as line:
            if len(memory) > _KEPT:
                self._begun = io.BytesIO()
            begun.seek(0)
            self._take(line)

    def end(self, cause: Cause = "lost") -> None:
        """The pipe has ended: nobody waits for answers, so the handler has to give up what it has."""
        if self._ended:
            return
        self._ended = True
        if self._heart is not None:
            self._heart.cancel()
        for one in list(self._in_hand.values()):
            self._cancel(one, cause)
        for future in itertools.chain.from_iterable(self._checkpoints.values()):
            if not future.done():
                future.set_result("the processor has ended")
        self._gone.set_result(None)
        for question in self._asking.values():
            if not question.done():
                question.set_result({"error": "the processor has ended", "code": "died"})
        if self._threads is not None:
            self._threads.close()

    def _take(self, line: memoryview) -> None:
        message, text = read_message(line)
        kind = message.get("type")
        if kind == "batch":
            self._begin(batch_of(message, text, lambda: self._checkpoint(message["id"])))
        elif kind == "cancel":
            one = self._in_hand.get(message["id"])
            if one is not None:
                self._cancel(one, cast(Cause, message["cause"]))
        elif kind == "hello":
            self.unit, self.instance = message.get("unit", ""), message.get("instance", "")
            self._can = message.get("can", [])
            if "columns" not in self._can:
                self._refuse("the binary sends no columns: use that of the release of this package")
            if not self.greeted.done():
                self.greeted.set_result(None)
        elif kind == "stop":
            self.stopping = True
        elif kind == "checkpointed":
            self._confirmed(message["id"], message.get("error", ""))
        else:
            self._take_other(kind, message)

    def _take_other(self, kind: Any, message: dict[str, Any]) -> None:
        """Takes what is no part of the work on batches."""
        if kind in ("status", "caughtup"):
            question = self._asking.pop(message["id"], None)
            if question is not None and not question.done():
                question.set_result(message)
        elif kind == "token":
            task = self._loop.create_task(self._give_token(message["id"], message["scope"]))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif kind in _EVENTS:
            if self._on_event is not None:
                self._on_event(message)
        elif kind == "error":
            self.error = str(message.get("error", ""))
            log.error("%s", self.error)
            if "code" in message:
                self.failure = ChangefeedError(
                    self.error, code=message["code"], hint=message.get("hint"), reason=message.get("reason")
                )

    def _refuse(self, error: str) -> None:
        """Ends the processor, which this client cannot understand."""
        self.error, self.failure = error, ChangefeedError(error, code="contract")
        log.error("%s", error)
        self.stop()

    @property
    def ended(self) -> bool:
        """Whether the pipe has ended."""
        return self._ended

    async def ask(self, kind: str, seconds: float | None = None) -> dict[str, Any]:
        """Asks the processor about its unit."""
        await asyncio.wait([self.greeted, self._gone], return_when=asyncio.FIRST_COMPLETED)
        if self._ended:
            raise ChangefeedError("the processor has ended", code="died")
        if kind not in self._can:
            raise ChangefeedError(f"the binary does not answer {kind}: use that of the release of this package")
        self._questions += 1
        number = self._questions
        question = self._asking[number] = self._loop.create_future()
        limit = {} if seconds is None or seconds > _LONGEST else {"seconds": max(seconds, 0.001)}
        self._send({"type": kind, "id": number, **limit})
        try:
            answer: dict[str, Any] = await question
        finally:
            self._asking.pop(number, None)
        if "error" in answer:
            raise ChangefeedError(str(answer["error"]), code=str(answer.get("code", "failed")))
        return answer

    async def _give_token(self, number: int, scope: str) -> None:
        answer: dict[str, Any] = {"type": "token", "id": number}
        try:
            if self._token is None:
                raise RuntimeError("this program gives no tokens")
            token, expires = await self._token(scope)
            time = datetime.datetime.fromtimestamp(expires, datetime.timezone.utc)
            answer |= {"token": token, "expires": time.isoformat()}
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        self._send(answer)

    def _begin(self, batch: Batch) -> None:
        one = _InHand(batch)
        self._in_hand[batch.id] = one
        self.idle.clear()
        one.task = self._loop.create_task(self._handle(one), name=f"changefeed batch {batch.id} of lease {batch.lease}")

    async def _handle(self, one: _InHand) -> None:
        batch = one.batch
        answer: dict[str, Any] = {"type": "released", "id": batch.id}
        one.started = True
        try:
            if not batch.cancelled.is_set():
                await self._call(one)
            if not batch.cancelled.is_set():
                answer["type"] = "done"
        except asyncio.CancelledError:
            if not batch.cancelled.is_set():  # the handler has canceled itself
                answer = _answers.failed(batch.id, RuntimeError("the handler was canceled"))
        except (SystemExit, KeyboardInterrupt, GeneratorExit):
            raise  # the process ends, or the event loop
        except BaseException as error:  # also those that are no Exception: a group of them, or that of pytest.fail
            if not batch.cancelled.is_set():
                answer = self._failed(batch, error)
        finally:
            del self._in_hand[batch.id]
            if not self._in_hand:
                self.idle.set()
        self._send(answer)

    async def _call(self, one: _InHand) -> None:
        if self._asynchronous:
            result: Any = await cast(Awaitable[Any], self._handler(one.batch))
        else:
            if self._threads is None:
                self._threads = Threads(self._batches)
            result = await self._threads.call(self._handler, one.batch)
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError("the handler is a plain function and has returned a coroutine: want async def")
        if isinstance(result, BaseException):  # somebody has written return for raise
            raise result

    def _failed(self, batch: Batch, error: BaseException) -> dict[str, Any]:
        mistake = _answers.mistake(error, len(batch))
        if mistake is not None:
            log.error("%s", mistake, exc_info=error)
            return _answers.failed(batch.id, ValueError(mistake))
        # A traceback with each attempt would fill the log. Failure and Poison are raised on purpose.
        is_told = batch.attempt == 1 and not isinstance(error, Failure | Poison)
        log.log(logging.WARNING if is_told else logging.DEBUG, "the handler has failed", exc_info=error)
        return _answers.failed(batch.id, error)

    def _cancel(self, one: _InHand, cause: Cause) -> None:
        one.batch.cancelled.set(cause)
        if self._asynchronous and one.started and one.task is not None:
            one.task.cancel()  # a thread cannot be canceled: it looks at batch.cancelled

    async def _checkpoint(self, batch_id: int) -> None:
        if self._ended:
            raise ChangefeedError("the processor has ended")
        future: asyncio.Future[str] = self._loop.create_future()
        self._checkpoints.setdefault(batch_id, []).append(future)
        self._send({"type": "checkpoint", "id": batch_id})
        error = await future
        if error:
            raise ChangefeedError(error)

    def _confirmed(self, batch_id: int, error: str) -> None:
        waiting = self._checkpoints.get(batch_id, [])
        future = waiting.pop(0) if waiting else None
        if not waiting:
            self._checkpoints.pop(batch_id, None)
        if future is not None and not future.done():  # else nobody waits any more
            future.set_result(error)

    def _beat(self) -> None:
        self._send({"type": "heartbeat"})
        self._heart = self._loop.call_later(HEARTBEAT, self._beat)

    def _send(self, message: dict[str, Any]) -> None:
        if not self._ended:
            self._write(_answers.encode(message))
