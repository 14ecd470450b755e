"""What a body in a child process uses of its task: streams, queues and events that live in the process above.

Messages go up as frames, see ``frames.py``; room for chunks and answers come down on the control
socket. ``Sender`` is the link to the process above.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Final, Protocol

from whywait.engines.process.frames import KIND_ASK, KIND_CALL, KIND_EMIT, pack_named
from whywait.errors import WhywaitError
from whywait.kernel.durations import Seconds, patience_s
from whywait.kernel.state import TaskState
from whywait.support.waiters import Waiters
from whywait.task.queues import check_queue_limit, queue_has_ended
from whywait.task.streams import Pickled

if TYPE_CHECKING:
    from whywait.task.context import TaskContext
    from whywait.task.surroundings import RunningTask

Question = tuple[str, str, int, float | None, bytes | None]  # verb, queue, limit of the queue, timeout, pickled item

_PROTOCOL: Final = pickle.HIGHEST_PROTOCOL


def dumps(value: Any) -> bytes:
    """Pickle for the process above; cloudpickle, which takes its time, is imported only where it is needed."""
    try:
        return pickle.dumps(value, _PROTOCOL)
    except Exception:
        import cloudpickle  # type: ignore[import-untyped]

        data: bytes = cloudpickle.dumps(value, _PROTOCOL)
        return data


class Sender(Protocol):
    """What brings frames to the process above."""

    def send(self, kind: int, payload: bytes) -> None:
        """Send a frame."""


class ChildStream:
    """A stream of the task, to be written to: asks for room in advance, and sends as much as it was promised."""

    is_open = True  # there is a producer: this

    def __init__(self, link: Sender, name: str, limit: int) -> None:
        self._link = link
        self.name = name
        self.limit = limit
        self.waiters = Waiters()
        self._room = 0
        self._has_asked = False
        self._asking: dict[object, Callable[[int], object]] = {}  # producers in processes below that wait for room

    def prepare(self, chunk: Any) -> bytes:
        """Return the chunk as ``offer`` takes it."""
        return dumps(chunk)

    def offer(self, chunk: bytes) -> bool:
        """Send a chunk if there is room for it; return whether there was. To be called under the lock."""
        if not self._room:
            self._ask()
            return False
        self._room -= 1
        self._link.send(KIND_EMIT, pack_named(self.name, chunk))
        return True

    def ask_room(self, producer: object, want: int, tell: Callable[[int], object]) -> None:  # noqa: ARG002 - one at a time
        """Promise room to a producer in a process below, as soon as there is some."""
        with self.waiters.lock:
            self._asking[producer] = tell
            self._ask()
        self.add_room(0)

    def put_promised(self, producer: object, chunk: Pickled) -> None:  # noqa: ARG002 - it has its room already
        """Pass on a chunk from a process below."""
        self._link.send(KIND_EMIT, pack_named(self.name, chunk.data))

    def forget_producer(self, producer: object) -> None:
        """Promise nothing more to a producer that has ended."""
        with self.waiters.lock:
            self._asking.pop(producer, None)

    def add_room(self, count: int) -> None:
        """Take in that the stream has room for so many chunks more."""
        with self.waiters.lock:
            self._room += count
            self._has_asked = self._has_asked and not count
            told = self._promise()
            if self._asking:
                self._ask()
        for tell in told:
            tell(1)
        self.waiters.ring()

    def _promise(self) -> list[Callable[[int], object]]:
        """Return what tells the producers that room for one chunk is theirs; under the lock."""
        told = []
        while self._room and self._asking:
            told.append(self._asking.pop(next(iter(self._asking))))
            self._room -= 1
        return told

    def _ask(self) -> None:
        if not self._room and not self._has_asked:
            self._has_asked = True
            self._link.send(KIND_ASK, pack_named(self.name, self.limit.to_bytes(8, "little")))


class Calls:
    """Questions to the process above, and their answers."""

    def __init__(self, link: Sender) -> None:
        self._link = link
        self._waiters = Waiters()
        self._numbers = itertools.count(1)
        self._parts: dict[int, list[str]] = {}
        self._answers: dict[int, Any] = {}

    def call(self, context: TaskContext, question: Question) -> Any:
        """Ask and wait for the answer, as at a checkpoint."""
        number = self._ask(question)
        with context.signal.heard_by(self._waiters.ring):
            self._waiters.wait(lambda: number in self._answers, None, context.checkpoint)
        return self._answer(number)

    async def call_async(self, context: TaskContext, question: Question) -> Any:
        """Do the same without blocking the event loop."""
        number = self._ask(question)
        with context.signal.heard_by(self._waiters.ring):
            await self._waiters.wait_async(lambda: number in self._answers, context.checkpoint_async)
        return self._answer(number)

    def _ask(self, question: Question) -> int:
        number = next(self._numbers)
        self._link.send(KIND_CALL, dumps((number, question)))
        return number

    def _answer(self, number: int) -> Any:
        answer = pickle.loads(self._answers.pop(number))
        if isinstance(answer, WhywaitError):
            raise answer
        return answer

    def take_part(self, number: int, *, is_last: bool, text: str) -> None:
        """Take in a part of an answer."""
        parts = self._parts.setdefault(number, [])
        parts.append(text)
        if is_last:
            data = bytes.fromhex("".join(self._parts.pop(number)))
            with self._waiters.lock:
                self._answers[number] = data
            self._waiters.ring()


class ChildQueue:
    """A queue of the task, from a child process that runs a worker of it."""

    def __init__(self, calls: Calls, task: RunningTask, context: TaskContext, name: str, limit: int) -> None:
        check_queue_limit(limit)
        self._task = task
        self._calls = calls
        self._context = context
        self._name = name
        self._limit = limit

    def put(self, item: Any, timeout: Seconds | None = None) -> None:
        """Put an item in; wait while the queue is full, ``queue.Full`` after the timeout."""
        done, _ = self._calls.call(self._context, self._question("put", patience_s(timeout), dumps(item)))
        if not done:
            raise Full(f"queue {self._name!r} is full after {patience_s(timeout)} s")

    def get(self, timeout: Seconds | None = None) -> Any:
        """Take the oldest item out; wait for one, ``queue.Empty`` after the timeout."""
        done, item = self._calls.call(self._context, self._question("get", patience_s(timeout)))
        if not done:
            raise Empty(f"queue {self._name!r} is empty after {patience_s(timeout)} s")
        return item

    async def put_async(self, item: Any) -> None:
        """Put an item in, without blocking the event loop."""
        await self._calls.call_async(self._context, self._question("put", data=dumps(item)))

    async def get_async(self) -> Any:
        """Take the oldest item out, without blocking the event loop."""
        return (await self._calls.call_async(self._context, self._question("get")))[1]

    def __len__(self) -> int:
        """Return how many items wait."""
        count: int = self._calls.call(self._context, self._question("len"))[1]
        return count

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a name."""
        from whywait.task.context import pickled_queue

        return pickled_queue(self._task, self._name, self._limit)

    def _question(self, verb: str, timeout: float | None = None, data: bytes | None = None) -> Question:
        """Return what to ask the process above; raise if the worker has ended: it does not reach its task any more."""
        if self._task.state == TaskState.DISPOSED:
            raise queue_has_ended(self._task.label, self._name)
        return verb, self._name, self._limit, timeout, data
