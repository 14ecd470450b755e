"""What a body in a worker process says before it ends, as the process above takes it."""

from __future__ import annotations

import pickle
import threading
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Protocol

from whywait.context import TaskContext
from whywait.engines.frames import KIND_ASK, KIND_EMIT, KIND_NOTE, KIND_PARKED, PARK, unpack_named
from whywait.engines.pickling import dumps
from whywait.errors import WhywaitError
from whywait.streams import Pickled

if TYPE_CHECKING:
    from whywait.handle import Handle


class Outside(Protocol):
    """Where (a part of) a task runs, as far as messages are concerned."""

    turn: int
    outlets: dict[str, Any]

    def say(self, line: str) -> None:
        """Tell it something about its task, whose number stands for ``{}``."""

    def answer(self, number: int, data: bytes) -> None:
        """Send the answer to a question."""


def take_message(handle: Handle[Any], worker: Outside, kind: int, payload: bytes | bytearray) -> None:
    """Act on a message from a worker process that runs (a part of) a task."""
    authority = handle._authority
    if kind == KIND_PARKED:
        if PARK.unpack(payload)[0] == worker.turn:
            authority.parked(handle)
    elif kind == KIND_EMIT:
        name, data = unpack_named(payload)
        authority.stream_of(handle, name).put_promised(worker, Pickled(data))
    elif kind == KIND_ASK:
        name, data = unpack_named(payload)
        want = int.from_bytes(data, "little")
        stream = authority.open_stream(handle, name, want)
        worker.outlets[name] = stream
        stream.ask_room(worker, want, lambda count: worker.say(f"room {{}} {name.encode().hex()} {count}"))
    elif kind == KIND_NOTE:
        event, details = pickle.loads(payload)  # noqa: S301 - from our own worker
        authority.note(handle, event, details)
    else:
        number, question = pickle.loads(payload)  # noqa: S301 - from our own worker
        name = f"whywait-answer-{handle.id}-{number}"  # it may have to wait for its answer
        threading.Thread(target=_answer, args=(handle, worker, number, question), name=name, daemon=True).start()


def forget_streams(worker: Outside) -> None:
    """Take back what a worker process was promised."""
    for stream in worker.outlets.values():
        stream.forget_producer(worker)
    worker.outlets.clear()


def _answer(handle: Handle[Any], worker: Outside, number: int, question: tuple[Any, ...]) -> None:
    """Do what a worker process asks of a queue."""
    verb, name, limit, timeout, data = question
    queue = TaskContext(handle).queue(name, limit=limit)
    answer: tuple[bool, Any] = False, None
    try:
        if verb == "put":
            queue.put(pickle.loads(data), timeout)  # noqa: S301 - from our own worker
            answer = True, None
        elif verb == "get":
            answer = True, queue.get(timeout)
        else:
            answer = True, len(queue)
    except WhywaitError:
        return  # the task should end, and the worker knows
    except (Empty, Full):
        pass
    worker.answer(number, dumps(answer))
