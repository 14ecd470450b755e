"""Worker processes that a running task hires: each has a thread of the task's crew that looks after it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whywait.engines.answers import raised, returned
from whywait.engines.frames import HIRED, KIND_PARKED, KIND_VALUE
from whywait.engines.messages import forget_streams, take_message
from whywait.engines.pickling import dumps, require_cloudpickle
from whywait.engines.worker_process import WorkerProcess, label_of, number_of
from whywait.errors import TaskAborted, TaskFailed
from whywait.signals import signal_of

if TYPE_CHECKING:
    from whywait.crew import Crew, Member
    from whywait.handle import Handle


def hire(crew: Crew, handle: Handle[Any], fn: Callable[..., Any], args: tuple[Any, ...]) -> Member:
    """Start a worker of a task in a process of its own."""
    require_cloudpickle()
    parcel = dumps(fn), dumps((args, {}))  # here, so that what cannot be pickled is refused where it is asked for
    return crew.add_worker(fn, args, lambda member: _look_after(crew, handle, member, parcel))


def _look_after(crew: Crew, handle: Handle[Any], member: Member, parcel: tuple[bytes, bytes]) -> Any:  # noqa: ANN401 - what the function returned
    worker = WorkerProcess()
    signal = signal_of(handle)
    killer = _Killer(handle._authority.grace_of(handle), lambda: worker.kill(handle))

    def tell() -> None:
        worker.tell(handle)

    signal.listen(tell)
    try:
        worker.begin(handle, number_of(handle))
        crew.let_interrupt(member, killer.start)
        worker.send(number_of(handle), label_of(handle), (0, parcel[0]), parcel[1], HIRED)
        while True:
            kind, payload = worker.receive()
            if kind < KIND_PARKED:
                break
            take_message(handle, worker, kind, payload)
    except (EOFError, OSError):
        signal.raise_if_aborted()
        how = worker.bury()
        raise TaskFailed(f"a worker process (pid {worker.pid}) of task {handle.id} was lost: {how}") from None
    finally:
        signal.unlisten(tell)
        killer.cancel()
        worker.end()
        forget_streams(worker)
        worker.bury()
    if kind == KIND_VALUE:
        return returned(payload)
    error = raised(handle.id, payload)[0]
    if signal.aborted and isinstance(error, TaskAborted):
        raise TaskAborted(str(error))
    raise error


class _Killer:
    """Kills a worker process that has not ended some time after it was asked to."""

    def __init__(self, grace_s: float, kill: Callable[[], object]) -> None:
        self._timer = threading.Timer(grace_s, kill)
        self._timer.daemon = True
        self._token: deque[None] = deque([None])  # there until it is started; whoever gets it starts it

    def start(self) -> None:
        try:
            self._token.pop()
        except IndexError:
            return
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()
