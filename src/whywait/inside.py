"""What a task has made use of while it runs; most tasks have nothing of it and pay nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whywait.crew import Crew, Failure
from whywait.engines.base import Ended
from whywait.kernel.state import Outcome
from whywait.signals import signal_of

if TYPE_CHECKING:
    from whywait.handle import Handle


class Inside:
    """The streams of a task, and the crew of its present attempt."""

    __slots__ = ("crew", "streams")

    def __init__(self) -> None:
        """Start with nothing."""
        self.streams: dict[str, Any] = {}
        self.crew: Crew | None = None


def inside_of(handle: Handle[Any]) -> Inside:
    """Return what a task has made use of; under the authority's lock."""
    inside = getattr(handle, "_inside", None)
    if inside is None:
        inside = handle._inside = Inside()
    return inside


def stream_counts(handle: Handle[Any]) -> dict[str, int]:
    """Return how many chunks each stream of a task has had so far."""
    inside = getattr(handle, "_inside", None)
    return {} if inside is None else {name: stream.count for name, stream in list(inside.streams.items())}


def crew_of(handle: Handle[Any]) -> Crew:
    """Return the crew of the present attempt, made when it is first needed."""
    signal = signal_of(handle)
    with handle._authority.lock:
        inside = inside_of(handle)
        if inside.crew is None:
            inside.crew = Crew(handle, signal)
            handle.attention = True  # so that the engine looks after it when the body has ended
        return inside.crew


def take_crew(handle: Handle[Any]) -> Crew | None:
    """Return the crew that has to end before the task does, if there is one."""
    inside = getattr(handle, "_inside", None)
    if inside is None:
        return None
    crew: Crew | None = inside.crew
    return crew


def wrap_up(handle: Handle[Any], outcome: Ended) -> Ended:
    """Wait for what else runs in a task whose body has ended; return how the task ends."""
    crew = take_crew(handle)
    if crew is None:
        return outcome
    failure = crew.finish(failed=outcome[0] != Outcome.SUCCESS)
    return _after(handle, outcome, failure)


async def wrap_up_async(handle: Handle[Any], outcome: Ended) -> Ended:
    """Do the same without blocking the event loop."""
    crew = take_crew(handle)
    if crew is None:
        return outcome
    failure = await crew.finish_async(failed=outcome[0] != Outcome.SUCCESS)
    return _after(handle, outcome, failure)


def _after(handle: Handle[Any], outcome: Ended, failure: Failure | None) -> Ended:
    handle._inside.crew = None
    if failure is None:
        return outcome
    cause, error = failure
    return Outcome.ERROR, cause, handle.failed(error)[2]
