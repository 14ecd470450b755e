"""Workers of a running task in processes of their own; a thread of the task looks after each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from whywait.engines.process.frames import HIRED, KIND_PARKED, KIND_VALUE
from whywait.engines.process.messages import forget_streams, take_message
from whywait.engines.process.pickling import dumps, require_cloudpickle
from whywait.engines.process.process import ChildProcess, Identity
from whywait.engines.process.results import raised, returned
from whywait.errors import TaskAborted, TaskFailed
from whywait.task.parts import Part, Parts
from whywait.task.running import RunningTask, signal_of
from whywait.trees.tree import dismiss_guards


def hire(parts: Parts, task: RunningTask, identity: Identity, fn: Callable[..., Any], args: tuple[Any, ...]) -> Part:
    """Start a worker of a task in a process of its own, which is told the identity of the task."""
    require_cloudpickle()
    parcel = dumps(fn), dumps((args, {}))  # here, so that what cannot be pickled is refused where it is asked for
    return parts.add_worker(fn, args, lambda part: _look_after(parts, task, identity, part, parcel), can_kill=True)


def _look_after(parts: Parts, task: RunningTask, identity: Identity, part: Part, parcel: tuple[bytes, bytes]) -> Any:  # noqa: ANN401 - what the function returned
    process = ChildProcess(task.units)
    signal = signal_of(task)
    killer = _Killer(task.core.grace_of(task), lambda: process.kill(task))

    def tell() -> None:
        process.tell(task)

    signal.listen(tell)
    try:
        process.begin(task, identity[0])
        parts.let_interrupt(part, killer.start)
        process.send(*identity, (0, parcel[0]), parcel[1], flags=HIRED)
        while True:
            kind, payload = process.receive()
            if kind < KIND_PARKED:
                break
            take_message(task, process, kind, payload)
    except (EOFError, OSError):
        signal.raise_if_aborted()
        how = process.bury()
        raise TaskFailed(f"a worker process (pid {process.pid}) of task {task.label} was lost: {how}") from None
    finally:
        signal.unlisten(tell)
        killer.cancel()
        process.end()
        forget_streams(process)
        process.bury()
        dismiss_guards()
    if kind == KIND_VALUE:
        return returned(payload)
    error = raised(task, payload)[0]
    if signal.aborted and isinstance(error, TaskAborted):
        raise TaskAborted(str(error))
    raise error


class _Killer:
    """Kills a process that has not ended some time after it was asked to."""

    def __init__(self, grace_s: float, kill: Callable[[], object]) -> None:
        self._timer = threading.Timer(grace_s, kill)
        self._timer.daemon = True
        self._token: deque[None] = deque([None])  # there until it is started; the thread that gets it starts it

    def start(self) -> None:
        try:
            self._token.pop()
        except IndexError:
            return
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()
