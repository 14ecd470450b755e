"""Services: what an authority does for its periodics and for tasks that run.

A worker process has its own stand-in for most of this, see :class:`whywait.engines.child.Link`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from whywait.inside import inside_of
from whywait.kernel.events import Kind
from whywait.kernel.kernel import Kernel
from whywait.streams import Stream, check_name

if TYPE_CHECKING:
    from whywait.handle import Handle
    from whywait.scope import Scope
    from whywait.settings import Settings

T = TypeVar("T")


class Services:
    """The part of an authority that periodics and running tasks use."""

    lock: threading.RLock
    kernel: Kernel
    settings: Settings
    scopes: dict[str, Scope]

    def command(self, act: Callable[[int], T]) -> T:
        """Run kernel commands under the lock, then dispatch and carry out what follows."""
        raise NotImplementedError

    def set_periodic_enabled(self, id: str, enabled: bool, *, immediately: bool = False) -> None:  # noqa: FBT001 - the setting itself
        """Switch a periodic on (from its next tick, or now if ``immediately``) or off, by ``id`` or ``scope/id``."""
        kernel = self.kernel
        self.command(
            lambda now: kernel.set_periodic_enabled(now, kernel.find_periodic(id), enabled, immediately=immediately)
        )

    def stream_of(self, handle: Handle[Any], name: str) -> Stream:
        """Return a stream of a task, made at its first use; it ends with the task."""
        check_name(name)
        with self.lock:
            streams = inside_of(handle).streams
            stream: Stream | None = streams.get(name)
            if stream is not None:
                return stream
            stream = streams[name] = Stream(handle.id, name)
        handle.add_done_callback(lambda _: self._close_stream(handle, stream))
        return stream

    def open_stream(self, handle: Handle[Any], name: str, limit: int) -> Stream:
        """Return a stream for a producer; the first one says how many chunks it may keep."""
        stream = self.stream_of(handle, name)
        if stream.open(limit):
            self.note(handle, Kind.STREAM_OPENED, (("stream", name), ("limit", limit)))
        return stream

    def _close_stream(self, handle: Handle[Any], stream: Stream) -> None:
        stream.close()
        if stream.count:
            self.note(handle, Kind.STREAM_CLOSED, (("stream", stream.name), ("chunks", stream.count)))

    def note(self, handle: Handle[Any], kind: str, details: tuple[tuple[str, Any], ...]) -> None:
        """Record an event of a handler, a worker or a stream."""
        self.command(lambda now: self.kernel.note(now, handle._task, kind, details))

    def grace_of(self, handle: Handle[Any]) -> float:
        """Return how many seconds what belongs to a task may take to end when it should."""
        scope = self.scopes.get(handle._task.scope.key)
        return self.settings.grace_s if scope is None else scope.grace_s

    def interrupt(self, handle: Handle[Any]) -> None:
        """Let the body of a task know at once that something of the task has failed."""
        handle._engine.abort(handle)
