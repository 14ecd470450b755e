"""The switchboard of the Ray engine: a small actor through which a driver and its bodies on the cluster talk.

Ray carries tasks and results. What a body says while it runs (it has parked, a chunk of a stream) and what it hears
(abort, pause, room in a stream) goes through here: workers send up, the driver takes; the driver sends down, each
worker listens. The actor keeps nothing but what was not taken yet. It runs on the driver's node, so that it is lost
only together with the driver. Calls of an actor may overtake each other, so messages and lines are numbered. A task
that is over at once never uses it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

Message = tuple[int, int, int, int, Any]  # token of the authority, task number, count, kind, payload
Line = tuple[int, int, int, str]  # token of the authority, task number, count, what is said

KIND_PLACED: Final = 100  # the body runs: worker, node, process id; the kinds below are those of frames
KIND_SMALL: Final = 3  # of a status: the result stands in it

LISTEN_S: Final = 20.0  # a call that waits for something answers after this: the caller may be gone


class Switchboard:
    """Runs as an async actor; one for each driver."""

    def __init__(self) -> None:
        """Start with nothing to pass on."""
        self._up: list[Message] = []
        self._news = asyncio.Event()
        self._down: dict[str, list[Line]] = {}
        self._listeners: dict[str, asyncio.Event] = {}

    async def up(self, *messages: Message) -> None:
        """Take messages from a worker."""
        self._up.extend(messages)
        self._news.set()

    async def take(self) -> list[Message]:
        """Give the driver what has come; wait for something."""
        await _within(self._news, LISTEN_S)
        self._news.clear()
        taken, self._up = self._up, []
        return taken

    async def down(self, worker: str, *lines: Line) -> None:
        """Take lines for a worker."""
        self._down.setdefault(worker, []).extend(lines)
        listener = self._listeners.get(worker)
        if listener is not None:
            listener.set()

    async def listen(self, worker: str) -> list[Line]:
        """Give a worker what has come for it; wait for something."""
        if worker not in self._down:
            listener = self._listeners[worker] = asyncio.Event()
            await _within(listener, LISTEN_S)
            if self._listeners.get(worker) is listener:
                del self._listeners[worker]
        return self._down.pop(worker, [])


async def _within(event: asyncio.Event, limit_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), limit_s)
    except TimeoutError:
        return
