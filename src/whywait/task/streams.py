"""Streams: what a running task puts out before it ends, for any number of readers.

A stream keeps at most ``limit`` chunks. As long as there is room for newer ones a chunk stays, so a reader that comes
later begins with the oldest chunk that is still there. When room is needed, the oldest chunk goes that every reader
has had; if there is none, the producer waits, for a first reader too: no chunk is lost unread. A reader that is
closed or forgotten holds no producer up.

At the end of the task a reader gets what is left, and then the end, or the error that ``handle.result()`` raises. A
task that is tried again goes on in the same stream.

``Stream.waiters.lock`` guards all of a stream. Without it are read: ``is_open`` and ``is_over``, each set once, and
``count``, of which a value that is one too low for an instant will do; ``_asking``, by a reader that has gone on: a
producer that asks later looks for room itself. ``_left`` is a deque, to which a finaliser may add.
"""

from __future__ import annotations

import itertools
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Self

from whywait.errors import ConfigError, InvalidTransition
from whywait.support.lazy import pickle
from whywait.support.waiters import Waiters, refuse_on_loop

LIMIT: Final = 64  # chunks
DEFAULT: Final = "main"


class Pickled(NamedTuple):
    """A chunk from another process; each reader gets its own copy."""

    data: bytes


class Stream:
    """One output channel of one task."""

    def __init__(self, label: str, name: str) -> None:
        """Start empty and open."""
        self._label = label
        self.name = name
        self.limit = LIMIT
        self.waiters = Waiters()
        self._chunks: deque[Any] = deque()
        self._first = 0  # the number of the oldest chunk that is kept
        self._read_to = 0  # every chunk before this number has been read by at least one reader
        self._positions: dict[int, int] = {}  # of the readers: which chunk comes next
        self._left: deque[int] = deque()  # readers that are gone, left here without the lock
        self._keys = itertools.count()
        self._promised: dict[object, int] = {}  # producers in other processes -> how many chunks they may send
        self._asking: dict[object, tuple[int, Callable[[int], object]]] = {}  # ... and those that wait for room
        self.is_open = False  # a producer has come
        self.is_over = False

    @property
    def count(self) -> int:
        """How many chunks there have been."""
        return self._first + len(self._chunks)

    # Producers

    def open(self, limit: int) -> bool:
        """Let producers in; return whether they were not before."""
        with self.waiters.lock:
            if self.is_open:
                return False
            self.limit = limit
            self.is_open = True
            return True

    def prepare(self, chunk: Any) -> Any:
        """Return the chunk as ``offer`` takes it."""
        return chunk

    def offer(self, chunk: Any) -> bool:
        """Take a chunk if there is room for it; return whether there was. To be called under the lock."""
        self._check_open()
        if self._room() <= 0:
            return False
        self._chunks.append(chunk)
        self._shorten()
        return True

    def ask_room(self, producer: object, want: int, tell: Callable[[int], object]) -> None:
        """Promise room to a producer in another process: ``tell(n)`` is called as soon as there is some."""
        with self.waiters.lock:
            self._asking[producer] = (want, tell)
        self._promise()

    def put_promised(self, producer: object, chunk: Any) -> None:
        """Take a chunk from a producer that was promised room."""
        with self.waiters.lock:
            self._promised[producer] -= 1
            self._chunks.append(chunk)
            self._shorten()
        self.waiters.ring()

    def forget_producer(self, producer: object) -> None:
        """Take back what a producer that has ended was promised."""
        with self.waiters.lock:
            self._promised.pop(producer, None)
            self._asking.pop(producer, None)
        self.waiters.ring()
        self._promise()

    def close(self) -> None:
        """End the stream; readers get what is left."""
        with self.waiters.lock:
            self.is_over = True
        self.waiters.ring()

    # Readers

    def join(self, *, past: bool) -> tuple[int, int]:
        """Add a reader, at the oldest chunk or at the next to come; return its key and the number of that chunk."""
        with self.waiters.lock:
            key = next(self._keys)
            self._positions[key] = position = self._first if past else self.count
        if not past:
            self.made_room()  # what came before is held for no reader any more
        return key, position

    def leave(self, key: int) -> None:
        """Forget a reader. A finaliser may call this at any point, so it takes no lock in this thread."""
        self._left.append(key)
        self.waiters.ring()
        if self._asking:
            start_new_thread(self._promise, ())

    def take(self, key: int, into: list[Any]) -> bool:
        """Put a reader's next chunk ``into`` a list; return whether there is anything to say. Under the lock."""
        position = self._positions.get(key)
        if position is None:
            return True
        if position >= self.count:
            return self.is_over
        into.append(self._chunks[position - self._first])
        self._positions[key] = position = position + 1
        self._read_to = max(self._read_to, position)
        return True

    def made_room(self) -> None:
        """Let producers know that a reader has gone on."""
        self.waiters.ring()
        if self._asking:
            self._promise()

    # Inside

    def _room(self) -> int:
        while self._left:
            self._positions.pop(self._left.popleft(), None)
        unread_from = min(self._positions.values(), default=self._read_to)
        return self.limit - (self.count - unread_from) - sum(self._promised.values())

    def _shorten(self) -> None:
        while len(self._chunks) > self.limit:
            self._chunks.popleft()
            self._first += 1

    def _promise(self) -> None:
        with self.waiters.lock:
            granted = self._grant()
        for tell, count in granted:
            tell(count)

    def _grant(self) -> list[tuple[Callable[[int], object], int]]:
        """Promise the room there is; return which producers get how much. Under the lock."""
        granted = []
        for producer, (want, tell) in list(self._asking.items()):
            count = min(want, self._room())
            if count > 0:
                del self._asking[producer]
                self._promised[producer] = self._promised.get(producer, 0) + count
                granted.append((tell, count))
        return granted

    def _check_open(self) -> None:
        if self.is_over:
            raise InvalidTransition(f"task {self._label} has ended: its stream {self.name!r} takes nothing more")


class Reader:
    """Reads a stream, with ``for`` or ``async for``; close it, or forget it, to stop holding the producer up."""

    def __init__(self, task: Any, stream: Stream, *, past: bool) -> None:
        """Made by ``Handle.stream`` only, with the handle."""
        self._task = task
        self._stream = stream
        self._key, self.missed = stream.join(past=past)  # missed: how many chunks had gone before it began

    def __iter__(self) -> Self:
        """Read with ``for``."""
        return self

    def __next__(self) -> Any:
        """Return the next chunk; wait for it."""
        into: list[Any] = []
        look = partial(self._stream.take, self._key, into)
        with self._stream.waiters.lock:
            is_there = look()
        if not is_there:
            refuse_on_loop("reading a stream with `for`", "async for")
            self._stream.waiters.wait(look)
        if not into:
            self._end()
            raise StopIteration
        return self._taken(into)

    def __aiter__(self) -> Self:
        """Read with ``async for``."""
        return self

    async def __anext__(self) -> Any:
        """Return the next chunk; wait for it without blocking the event loop."""
        into: list[Any] = []
        await self._stream.waiters.wait_async(partial(self._stream.take, self._key, into))
        if not into:
            self._end()
            raise StopAsyncIteration
        return self._taken(into)

    def close(self) -> None:
        """Stop reading."""
        self._stream.leave(self._key)

    def __enter__(self) -> Self:
        """Use as a block that closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reading."""
        self.close()

    def __del__(self) -> None:
        """Stop reading."""
        self.close()

    def _taken(self, into: list[Any]) -> Any:
        self._stream.made_room()
        chunk = into[0]
        return pickle.loads(chunk.data) if chunk.__class__ is Pickled else chunk

    def _end(self) -> None:
        """Raise what the task failed with, if it did."""
        if self._task.done():
            error = self._task.exception()
            if error is not None:
                raise error


def check_name(name: object) -> None:
    """Refuse what is no name of a stream."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"stream name {name!r} is not allowed: use a string that is not empty")


def check_limit(limit: object) -> None:
    """Refuse what is no limit of a stream."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ConfigError(f"stream limit {limit!r} is not allowed: use an int of 1 or more chunks")
