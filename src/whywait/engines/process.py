"""The process engine: functions in worker processes, which can be killed.

One pump (:mod:`whywait.engines.pump`) takes answers, reports them and sends the next tasks in one step. Workers are new
interpreters (no fork, nothing of ``__main__`` runs again) with the parent's ``sys.path``, working directory and
output. Functions, arguments and results travel pickled, see :mod:`whywait.engines.pickling`; context variables stay
behind. What a body starts in the worker's process group and leaves running ends with the worker.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final

from whywait.engines.answers import failed, raised, returned
from whywait.engines.base import NEVER_RAN, Ended, Engine
from whywait.engines.frames import KIND_PARKED, KIND_VALUE
from whywait.engines.messages import forget_streams, take_message
from whywait.engines.pickling import Functions, dumps, require_cloudpickle
from whywait.engines.pump import Pump
from whywait.engines.worker_process import NeverReceived, WorkerProcess, label_of
from whywait.errors import ConfigError
from whywait.kernel.state import Cause, Outcome

if TYPE_CHECKING:
    from whywait.handle import Handle

log = logging.getLogger("whywait")

IDLE_S: Final = 30.0  # workers that nobody needed for so long end
Parcel = tuple[int, bytes, tuple[int, bytes], bytes]  # task number, label, function, arguments


class ProcessEngine(Engine):
    """Runs functions and coroutine functions in worker processes."""

    name: ClassVar[str] = "process"
    can_kill: ClassVar[bool] = True
    runs_coroutines: ClassVar[bool] = True

    def __init__(self) -> None:
        """Start without any process; they come with the tasks."""
        if sys.platform == "win32":
            raise ConfigError("the process engine needs the pipes and process groups of POSIX: use another engine")
        require_cloudpickle()
        self._pump = Pump("whywait-process", self._begin, self._serve, self._tell, self._rest)
        self._functions = Functions()
        self._workers: set[WorkerProcess] = set()
        self._idle: deque[WorkerProcess] = deque()

    def start(self, handle: Handle[Any]) -> None:
        """Have the pump send the task to a worker."""
        self.start_all([handle])

    def start_all(self, handles: list[Handle[Any]]) -> None:
        """Have the pump send the tasks to workers."""
        try:
            self._pump.post_all(handles)
        except (OSError, RuntimeError) as error:  # the system gives no thread or no pipe
            for handle in self._pump.take_back():
                self.authority.ended(
                    handle, failed(handle, f"nobody could send it to a worker process: {error}", error)
                )

    def look_again(self, count: int) -> None:  # noqa: ARG002 - it looks for all
        """Have the pump look for tasks."""
        self._pump.look_again()

    def abort(self, handle: Handle[Any]) -> None:
        """Pass the signal on to the worker."""
        any(worker.tell(handle) for worker in list(self._workers))

    def pause(self, handle: Handle[Any]) -> None:
        """Ask the body in the worker to park."""
        self.abort(handle)

    def resume(self, handle: Handle[Any]) -> None:
        """Let the body in the worker go on."""
        self.abort(handle)

    def kill(self, handle: Handle[Any]) -> None:
        """Kill the worker; another one takes its place when it is needed."""
        any(worker.kill(handle) for worker in list(self._workers))

    def close(self) -> None:
        """Let the workers end; kill those that do not."""
        self._pump.close()
        self._retire_idle(0.0)
        for worker in list(self._workers):
            self._lose(worker)

    def _begin(self, handle: Handle[Any]) -> WorkerProcess | None:
        """Send a task to a worker; return the worker, whose answer is to come, if it has got it."""
        return self._sent_or_ended(handle, self._send(handle, None))

    def _sent_or_ended(self, handle: Handle[Any], sent: WorkerProcess | Ended) -> WorkerProcess | None:
        if not isinstance(sent, tuple):
            return sent
        self.authority.ended(handle, sent)  # what may start now is posted before anybody is told
        return None

    def _serve(self, worker: WorkerProcess) -> WorkerProcess | None:
        """Take what a worker sends; return the worker whose answer is to come, if any."""
        handle = worker.handle
        assert handle is not None, "a worker that is served runs a task"
        try:
            kind, payload = worker.receive()
            while kind >= KIND_PARKED:
                take_message(handle, worker, kind, payload)
                if not worker.has_more():
                    return worker
                kind, payload = worker.receive()
            worker.is_fresh = False
            worker.end()
            if worker.outlets:
                forget_streams(worker)
            outcome = _returned(handle, payload) if kind == KIND_VALUE else _raised(handle, payload)
        except Exception as error:  # noqa: BLE001 - gone, or somebody else wrote into its pipe: it is of no use any more
            if not isinstance(error, EOFError | OSError):
                log.warning("a worker process answered nonsense: %r", error)
            elif not worker.is_fresh and not worker.has_taken():
                self._lose(worker)
                return self._begin(handle)
            return self._sent_or_ended(handle, self._lost(handle, worker))
        del payload
        if outcome[0] != Outcome.SUCCESS:
            worker.forget_functions()
            self._let_idle(worker)
            return self._sent_or_ended(handle, outcome)
        new = self.authority.ended(handle, outcome, self, self._pump.later)
        if new is None:
            self._let_idle(worker)
            self._pump.is_urgent = True  # nothing waits for a worker: somebody may wait for this result
            return None
        return self._sent_or_ended(new, self._send(new, worker))

    def _send(self, handle: Handle[Any], worker: WorkerProcess | None) -> WorkerProcess | Ended:
        """Send a task to the given worker, an idle one or a new one; return which, or how the task has ended."""
        if handle.attention and handle.aborted:
            return self._spare(worker, NEVER_RAN)
        try:
            parcel = self._pack(handle)
        except BaseException as error:  # noqa: BLE001 - pickling runs code of the user
            return self._spare(
                worker, failed(handle, f"it could not be pickled for a worker process: {error!r}", error)
            )
        sent = None
        while sent is None:
            try:
                worker = worker or self._find()
            except OSError as error:
                return failed(handle, f"no worker process could be started: {error}", error, Cause.WORKER_LOST)
            sent = self._deliver(handle, worker, parcel)
            worker = None
        return sent

    def _pack(self, handle: Handle[Any]) -> Parcel:
        fn, args, kwargs = handle.body()
        task = handle._task
        return task.number, label_of(handle), self._functions.pack(fn), dumps((args, kwargs)) if args or kwargs else b""

    def _deliver(self, handle: Handle[Any], worker: WorkerProcess, parcel: Parcel) -> WorkerProcess | Ended | None:
        """Send a task to a worker; return it, or how the task has ended, or None if the worker was gone before."""
        worker.begin(handle, handle._task.number)
        if handle.attention and handle.aborted:  # an abort from now on finds the worker by itself
            worker.end()
            return self._spare(worker, NEVER_RAN)
        try:
            worker.send(*parcel)
        except NeverReceived:
            if worker.is_fresh:
                return self._lost(handle, worker)
            self._lose(worker)  # nobody's fault: another one takes the task
            return None
        except OSError:
            return self._lost(handle, worker)
        return worker

    def _spare(self, worker: WorkerProcess | None, outcome: Ended) -> Ended:
        """Keep a worker that did not get a task after all."""
        if worker is not None:
            self._let_idle(worker)
        return outcome

    def _let_idle(self, worker: WorkerProcess) -> None:
        worker.idle_since_s = monotonic()
        self._idle.append(worker)

    def _tell(self, handle: Handle[Any]) -> None:
        self.authority._finished(handle)

    def _find(self) -> WorkerProcess:
        try:
            return self._idle.pop()
        except IndexError:
            worker = WorkerProcess()
            self._workers.add(worker)
            return worker

    def _lost(self, handle: Handle[Any], worker: WorkerProcess) -> Ended:
        """Bury a worker that died over a task."""
        how = self._lose(worker)
        return failed(handle, f"its worker process (pid {worker.pid}) was lost: {how}", None, Cause.WORKER_LOST)

    def _lose(self, worker: WorkerProcess) -> str:
        worker.end()
        forget_streams(worker)
        self._workers.discard(worker)
        return worker.bury()

    def _rest(self) -> bool:
        """End the workers that nobody needed for a while; return whether none is left."""
        self._retire_idle(IDLE_S)
        return not self._workers

    def _retire_idle(self, idle_s: float) -> None:
        """End the workers that had nothing to do for so long."""
        retiring = []
        before = monotonic() - idle_s
        with suppress(IndexError):  # others use them too
            while self._idle[0].idle_since_s <= before:
                retiring.append(self._idle.popleft())
                retiring[-1].dismiss()
        for worker in retiring:
            worker.wait_end()
            self._lose(worker)


def _returned(handle: Handle[Any], payload: bytes | bytearray) -> Ended:
    """Take the result of a body."""
    try:
        handle._value = returned(payload)
    except BaseException as error:  # noqa: BLE001 - unpickling runs code of the user
        return failed(handle, f"its result could not be unpickled: {error!r}", error)
    return Outcome.SUCCESS, None, True


def _raised(handle: Handle[Any], payload: bytes | bytearray) -> Ended:
    """Let a task fail with what its body, or a part of it, raised."""
    error, cause = raised(handle.id, payload)
    return Outcome.ERROR, cause, handle.failed(error)[2]
