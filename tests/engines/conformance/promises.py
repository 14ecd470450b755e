"""What each engine promises beyond what all of them do: the one table that the tests read.

Where an engine does not promise something, the test that would ask for it checks what happens instead. Nothing is
skipped.
"""

from dataclasses import dataclass, replace

import documented
import pytest


@dataclass(frozen=True)
class Promises:
    """One engine's row; no field has a default, so a new engine has to answer every question."""

    form: str  # which form of a body it runs natively: "plain" or "coroutine"
    crowd: int  # how many bodies a test may have running at once; 1: one after the other
    has_context: bool  # context variables captured at submit reach the body
    shares_memory: bool  # arguments, results and the authority itself are the same objects inside the body
    has_frames: bool  # an error carries the body's frames, not only their text
    interrupts: bool  # an abort reaches a body that waits and does not look at its signal
    ends_reluctant: bool  # a body that shrugs off the first abort is ended after `grace`
    ends_injected: bool  # `inject=True` ends a body that runs Python code and ignores its signal
    ends_deaf: bool  # a body that ignores whatever it is told is ended after `grace`


ELSEWHERE = Promises(  # in another process, here or on another machine
    form="plain",
    crowd=3,
    has_context=False,
    shares_memory=False,
    has_frames=False,
    interrupts=False,
    ends_reluctant=True,
    ends_injected=True,
    ends_deaf=True,
)
THREADS = Promises(
    form="plain",
    crowd=40,
    has_context=True,
    shares_memory=True,
    has_frames=True,
    interrupts=False,
    ends_reluctant=False,
    ends_injected=True,
    ends_deaf=False,
)
PROMISES: dict[str, Promises] = {
    "thread": THREADS,
    documented.NAME: replace(THREADS, ends_injected=False),
    "simple": Promises(
        form="plain",
        crowd=1,
        has_context=True,
        shares_memory=True,
        has_frames=True,
        interrupts=False,
        ends_reluctant=False,
        ends_injected=True,
        ends_deaf=False,
    ),
    "asyncio": Promises(
        form="coroutine",
        crowd=40,
        has_context=True,
        shares_memory=True,
        has_frames=True,
        interrupts=True,
        ends_reluctant=True,
        ends_injected=True,
        ends_deaf=False,  # a cancellation can be swallowed, again and again
    ),
    "process": ELSEWHERE,
    "ray": ELSEWHERE,
}

# A cluster takes its time to start: its tests run by themselves (make test-ray).
ENGINES = [pytest.param(name, marks=[pytest.mark.ray] if name == "ray" else []) for name in PROMISES]
