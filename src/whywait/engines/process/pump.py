"""A pump: one thread that serves many pipes, and an understudy that takes over when it is held up.

One thread for all child processes is far cheaper than one thread each, which would fight for the interpreter's lock
at every task. But a step may run code of users (pickling, callbacks), which may take its time or even wait for what
only the pump can bring. So a second thread looks after the first. The rules between them, and the race each closes:

1. One thread leads. Its time as leader is a ``_Lead``; only the thread of the present ``_lead`` serves pipes.
2. When a step takes longer than :data:`PATIENCE_S`, the understudy makes itself the leader, under the lock, and the
   old leader finds after its step, under the lock, that it leads no more: it posts what is to be watched and ends. So
   no pipe is watched by two threads, and none by no thread.
3. The leader says that it sleeps (``_is_asleep``) and *then* looks for posts; a thread that posts does so and *then*
   looks whether the leader sleeps. So no post is slept through.
4. The understudy says that it sleeps and *then* looks whether the leader does; the leader wakes up and *then* looks
   whether the understudy sleeps. While the leader sleeps, both do, and the understudy never sleeps longer.
5. A leader with nothing to serve may end: it gives the lead up under the lock and *then* looks for posts again. So a
   post that came too late to be seen starts another leader.

``Pump._lock`` guards ``_lead``, ``is_busy`` of it when it ends, the making of the pipe, and ``_is_closed``; nothing is
taken under it. ``_watched``, ``is_urgent`` and ``_is_swift`` belong to the leader; the understudy touches the first
when it takes over, while the leader is in the midst of a step. ``_posted`` and ``later`` are deques. ``_is_asleep`` and
``_understudy_sleeps`` are single steps in the order of rules 3 and 4, and hold without a global interpreter lock too.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from threading import RLock
from time import monotonic
from typing import Any, Final, Protocol

from whywait.support.logger import log

NAP_S: Final = 5.0  # the leader looks around that often; so a post that an exception cut short is not lost
LATER_AT_MOST: Final = 8
SPIN_S: Final = 0.00005  # how long to look actively for the next thing in quick succession
SWIFT_S: Final = 0.001  # the longest that what can wait does wait
PATIENCE_S: Final = 0.05  # a step that takes longer than once to twice this holds up others no more
JOIN_S: Final = 1.0
_REST: Final = object()  # posted when nothing has happened for a while


class Served(Protocol):
    """What a pump serves: something that becomes readable now and then."""

    def fileno(self) -> int:
        """Return the file descriptor to watch."""


Step = Callable[[Any], Served | None]


class _Lead:
    """The time that one thread leads; ``fd`` is what its present step serves."""

    __slots__ = ("fd", "is_busy", "may_end", "poll", "steps", "thread")

    def __init__(self) -> None:
        self.fd = -1
        self.is_busy = False
        self.may_end = False
        self.poll = select.poll()
        self.steps = 0
        self.thread: threading.Thread


class _Watch:
    """Posted by a thread that does not lead, or no more: the leader has to watch this."""

    __slots__ = ("served",)

    def __init__(self, served: Served) -> None:
        self.served = served


class Pump:
    """Calls ``begin`` with what is posted and ``serve`` with what is readable; each returns what to watch from then.

    What can wait goes into ``later``: ``tell`` is called with it when nothing else is to do, or when there is much of
    it. While things become readable in quick succession it waits for the next, so that a waiter is not woken
    for each; set ``is_urgent`` and it does not.
    """

    def __init__(
        self, name: str, begin: Step, serve: Step, tell: Callable[[Any], object], rest: Callable[[], bool | None]
    ) -> None:
        """Start without a thread; ``rest`` is called whenever nothing has happened for :data:`NAP_S`.

        If it returns True, and nothing is watched, the threads end until something is posted again.
        """
        self._name = name
        self._begin = begin
        self._serve = serve
        self._tell = tell
        self._rest = rest
        self.log = log  # the engine sets that of its authority
        self.later: deque[Any] = deque()
        self.is_urgent = False  # what is in ``later`` shall not wait
        self._is_swift = False  # the last wait was short
        self._posted: deque[Any] = deque()
        self._lock = RLock()  # decides which thread leads
        self._lead: _Lead | None = None
        self._understudy: threading.Thread | None = None
        self._watched: dict[int, Served] = {}  # belongs to the leader
        self._is_asleep = False  # the leader waits, or is about to
        self._understudy_sleeps = False
        self._wake_understudy = threading.Event()  # wakes the understudy
        self._wake_out: FileIO | None = None
        self._wake_in: FileIO | None = None  # an object, not a number: once closed it is not mistaken for another file
        self._is_closed = False
        self._has_called_last = threading.Event()  # `close` writes into the pipe no more

    def post(self, item: Any) -> None:  # noqa: ANN401 - whatever ``begin`` takes
        """Have ``begin`` called with this soon."""
        self._posted.append(item)
        self._call_leader()

    def post_all(self, items: list[Any]) -> None:
        """Have ``begin`` called with each of these soon."""
        self._posted.extend(items)
        self._call_leader()

    def watch(self, served: Served) -> None:
        """Have ``serve`` called with this whenever it is readable."""
        self.post(_Watch(served))

    def _call_leader(self) -> None:
        if self._is_asleep:
            self._wake()
        elif self._lead is None:
            self._start()

    def take_back(self) -> Iterator[Any]:
        """Return what was posted and has not begun, one after the other."""
        with suppress(IndexError):
            while True:
                yield self._posted.popleft()

    def close(self) -> None:
        """End the threads; one that is held up ends after its step."""
        with self._lock:
            is_first = not self._is_closed
            self._is_closed = True
            lead = self._lead
        self._wake_understudy.set()
        if lead is None:
            self._close_pipe()
            return
        if is_first:  # the leader closes the pipe behind the call of this thread: a second one would find it closed
            try:
                self._wake()
            finally:
                self._has_called_last.set()
        if lead.thread is not threading.current_thread():
            lead.thread.join(JOIN_S)

    def _start(self) -> None:
        if self._lead is not None:
            return
        lead = _Lead()
        lead.thread = threading.Thread(target=self._be_leader, args=(lead,), name=self._name, daemon=True)
        try:
            with self._lock:  # a finaliser in its midst may start another leader: nothing is made after the look
                if self._wake_out is None and not self._is_closed:
                    self._open_pipe()
                if self._lead is not None or self._is_closed:
                    return
                self._lead = lead
            lead.thread.start()  # without the lock: a finaliser in its first steps may want it
        except BaseException:
            if self._lead is lead and not lead.thread.is_alive():  # the next post tries again
                self._lead = None
            raise
        self._call_understudy()

    def _wake(self) -> None:
        self._is_asleep = False
        if self._wake_in is not None:
            with suppress(ValueError, OSError):  # it has ended this moment; what was woken often enough takes no more
                self._wake_in.write(b"w")

    def _open_pipe(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        ends = FileIO(reading), FileIO(writing, "w")
        if self._wake_out is None:
            self._wake_out, self._wake_in = ends
            return
        for end in ends:
            end.close()

    def _close_pipe(self) -> None:
        for end in (self._wake_in, self._wake_out):
            if end is not None:
                end.close()

    __del__ = _close_pipe

    def _be_leader(self, lead: _Lead) -> None:
        posted, later, watched, serve = self._posted, self.later, self._watched, self._serve
        self._begin_lead(lead)
        while not self._is_closed:
            if posted and not self._begin_all(lead):
                return
            events = []
            if later:
                if watched and len(later) < LATER_AT_MOST and not self.is_urgent:
                    events = self._sleep(lead, SWIFT_S if self._is_swift else 0.0)
                if not events and not self._step(lead, -1, self._tell_all, None):
                    return
            if not events:
                events = self._sleep(lead, NAP_S)
            for fd, _ in events:
                served = watched.get(fd)
                if served is None:
                    os.read(fd, 4096)  # we have been woken
                elif not self._step(lead, fd, serve, served):
                    return
        self._tell_all()
        self._has_called_last.wait()
        self._close_pipe()

    def _sleep(self, lead: _Lead, limit_s: float) -> list[tuple[int, int]]:
        """Wait until something is to do; return what is readable."""
        self._is_asleep = True
        if self._posted:  # posted before the line above: no thread wakes us
            self._get_up()
            return []
        began_s = monotonic()
        events: list[tuple[int, int]] = []
        if self._is_swift and len(self._watched) == 1:  # to fall asleep and be woken would take longer than the wait
            while not events and monotonic() - began_s < SPIN_S:
                events = lead.poll.poll(0)
        events = events or lead.poll.poll(limit_s * 1000)
        self._get_up()
        self._is_swift = bool(events) and monotonic() - began_s < SWIFT_S
        if not events and limit_s == NAP_S:
            self._posted.append(_REST)
        return events

    def _get_up(self) -> None:
        self._is_asleep = False
        if self._understudy_sleeps:  # it may have seen that we sleep
            self._wake_understudy.set()

    def _begin_lead(self, lead: _Lead) -> None:
        if signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL:  # a write to a closed pipe must not end the program
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        assert self._wake_out is not None, "it is made with the first lead"
        lead.poll.register(self._wake_out, select.POLLIN)
        for fd in self._watched:
            lead.poll.register(fd, select.POLLIN)

    def _begin_all(self, lead: _Lead) -> bool:
        """Take in what was posted; return whether this thread still leads after it."""
        posted = self._posted
        while posted:
            item = posted.popleft()
            if item.__class__ is _Watch:
                self._watch(lead, item.served)
            elif item is _REST:
                if not self._step(lead, -1, self._take_rest, lead):
                    return False
            elif not self._step(lead, -1, self._begin, item):
                return False
            del item  # nothing here keeps a task alive
        return not (lead.may_end and self._end_lead(lead))

    def _take_rest(self, lead: _Lead) -> None:
        lead.may_end = bool(self._rest())

    def _end_lead(self, lead: _Lead) -> bool:
        """Let no thread lead until something is posted, if there is nothing to do; return whether that is so."""
        lead.may_end = False
        if self._watched or self.later:
            return False
        with self._lock:
            if self._is_closed:
                return False
            self._lead = None
        self._wake_understudy.set()
        if self._posted:  # posted before the lead had ended: no thread starts another one
            self._start()
        return True

    def _tell_all(self, _: object = None) -> None:
        self.is_urgent = False
        while self.later:
            try:
                item = self.later.popleft()
            except IndexError:  # another thread is at it too
                return
            self._tell(item)
            del item

    def _step(self, lead: _Lead, fd: int, act: Step, item: Any) -> bool:  # noqa: ANN401 - posted or served
        """Take one step; return whether this thread still leads after it."""
        lead.fd = fd
        lead.steps += 1
        lead.is_busy = True
        try:
            wanted = act(item)
        except BaseException:
            self.log.exception("%s could not carry out a step", self._name)
            wanted = None
        with self._lock:
            lead.is_busy = False
            leads = self._lead is lead
        if leads and wanted is not item:
            self._watch(lead, wanted, fd)
        elif not leads and wanted is not None:
            self.watch(wanted)
        return leads

    def _watch(self, lead: _Lead, served: Served | None, instead_of: int = -1) -> None:
        if instead_of >= 0:
            lead.poll.unregister(instead_of)
            del self._watched[instead_of]
        if served is not None:
            fd = served.fileno()
            self._watched[fd] = served
            lead.poll.register(fd, select.POLLIN)

    def _call_understudy(self) -> None:
        self._understudy = threading.Thread(target=self._stand_by, name=f"{self._name}-understudy", daemon=True)
        try:
            self._understudy.start()
        except RuntimeError as error:  # the system gives no more threads; the leader goes on
            self.log.warning("%s has no understudy: a slow callback may hold up other tasks: %s", self._name, error)

    def _stand_by(self) -> None:
        """Look after the leader; lead when it is held up."""
        seen, steps = self._lead, -1
        while not self._is_closed and self._understudy is threading.current_thread():
            self._wake_understudy.clear()
            self._understudy_sleeps = True
            if self._is_asleep:  # it sees that we sleep as soon as it wakes
                self._wake_understudy.wait()
                steps = -1
            self._understudy_sleeps = False
            self._wake_understudy.wait(PATIENCE_S)
            with self._lock:
                lead = self._lead
                if lead is None:
                    return
                if lead is seen and lead.steps == steps and lead.is_busy and not self._is_closed:
                    self._lead = mine = _Lead()
                    mine.thread = threading.current_thread()
                    self._watched.pop(lead.fd, None)
                    break
                seen, steps = lead, lead.steps
        else:
            return
        self._call_understudy()
        self._be_leader(mine)
