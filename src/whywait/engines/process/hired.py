"""Workers of a running task in processes of their own; a thread of the task looks after each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from whywait.engines.process.frames import HIRED, KIND_VALUE
from whywait.engines.process.messages import forget_streams
from whywait.engines.process.pickling import dumps, require_cloudpickle
from whywait.engines.process.process import ChildProcess, Identity, NeverReceived, Parcel
from whywait.engines.process.results import Failure, raised, returned
from whywait.errors import TaskAborted, TaskFailed
from whywait.task.parts import Part, Parts
from whywait.task.surroundings import RunningTask, signal_of
from whywait.trees.tree import dismiss_guards


def hire(parts: Parts, task: RunningTask, identity: Identity, fn: Callable[..., Any], args: tuple[Any, ...]) -> Part:
    """Start a worker of a task in a process of its own, which gets the identity of the task."""
    require_cloudpickle()
    parcel = (*identity, (0, dumps(fn)), dumps((args, {})), ())  # here: what cannot be pickled is refused at the call
    return parts.add_worker(fn, args, lambda part: _look_after(parts, task, part, parcel), can_kill=True)


def _look_after(parts: Parts, task: RunningTask, part: Part, parcel: Parcel) -> Any:
    process = ChildProcess(task.units)
    signal = signal_of(task)
    killer = threading.Timer(task.core.grace_of(task), process.kill, [task])
    killer.daemon = True

    is_asked = threading.Lock()

    def kill_later() -> None:
        if is_asked.acquire(blocking=False):  # the first time
            killer.start()

    def tell() -> None:
        process.tell(task)

    signal.listen(tell)
    try:
        process.begin(task, parcel[0])
        parts.let_interrupt(part, kill_later)
        kind, payload = process.run(parcel, flags=HIRED)
        if kind == KIND_VALUE:
            return returned(task, payload)
        raise raised(task, payload)
    except Failure as failure:
        if signal.aborted and isinstance(failure.error, TaskAborted):
            raise TaskAborted(str(failure.error)) from None
        raise failure.error from failure.error.__cause__
    except (EOFError, OSError, NeverReceived):
        signal.raise_if_aborted()
        raise TaskFailed(
            f"a worker process (pid {process.pid}) of task {task.label} was lost: {process.bury()}"
        ) from None
    finally:
        signal.unlisten(tell)
        killer.cancel()
        process.end()
        forget_streams(process)
        process.bury()
        dismiss_guards()
