"""Cancel against finish: whichever line either is at when the other comes, the task has one end and one only."""

import threading

import pytest

from interleave import Player, play
from invariants import check_invariants
from whywait import Authority

WAIT_S = 10.0
FAR = 1_000_000  # a line that is never reached
ENDS = ("TASK_FINISHED", "TASK_CANCELLED")


def meet(engine, act, finish_line, act_line, *, comes_first, goes_on_first=None, fails=False):
    """Let a body end and ``act`` on its handle, each held at a line; return where they were held, and how it ended."""
    finisher, actor = Player(finish_line), Player(act_line)
    started, end = threading.Event(), threading.Event()

    def body():
        started.set()
        end.wait(WAIT_S)
        finisher.begin()
        if fails:
            raise ValueError
        return "value"

    def told(handle):
        ended.append(handle.outcome)
        finisher.through()

    ended = []
    threading.settrace(finisher.trace)
    try:
        with Authority(slots=1, engine=engine, grace=WAIT_S) as authority:
            finisher.lock = actor.lock = authority.lock
            scope = authority.scope("work")
            handle = scope.submit(body)
            assert started.wait(WAIT_S)
            threading.settrace(None)
            handle.add_done_callback(told)
            if comes_first == "finisher":
                end.set()
                finisher.wait()
            thread = play(actor, lambda: act(scope, handle))
            actor.wait()
            end.set()
            finisher.wait()
            first, second = (actor, finisher) if goes_on_first == "actor" else (finisher, actor)
            if first.where is not None and not second.has_lock:  # else it comes no further than to the lock
                first.settled.clear()
                first.go_on()
                first.wait()
            first.go_on()  # also if it waits for the lock and would be held later
            second.go_on()
            thread.join(WAIT_S)
            error = handle.exception(WAIT_S)
            assert authority.submit(int).result(WAIT_S) == 0
            with authority.lock:
                check_invariants(authority.kernel, 1 << 62, rested=False)
            number = handle.ref.number
            ends = [event.kind for event in authority.events() if event.kind in ENDS and event.number == number]
    finally:
        threading.settrace(None)
    held = (finisher.where, actor.where)
    assert not thread.is_alive(), held
    assert ended == [handle.outcome], held
    assert len(ends) == 1, held
    if handle.outcome == "SUCCESS":
        assert (error, handle.result()) == (None, "value"), held
    else:
        assert handle.outcome == ("ERROR" if isinstance(error, ValueError) else "ABORTED"), held
    return held, handle.outcome


def cancel(scope, handle):
    handle.cancel()


def dispose(scope, handle):
    """Begin to dispose of the scope; the wait for the body that follows is another matter."""
    scope._begin_disposal(None)


@pytest.mark.parametrize(
    ("engine", "act", "fails"),
    [("thread", cancel, False), ("thread", cancel, True), ("thread", dispose, False), ("simple", cancel, False)],
)
def test_an_end_and_a_cancel_meet_at_every_line(engine, act, fails):
    """X3, T2: the one who is held anywhere finds, when it goes on, what the other has done, and leaves it so."""
    outcomes = set()
    for index, comes_first in enumerate(("finisher", "actor")):
        for line in range(FAR):
            lines = (FAR, line) if index else (line, FAR)
            held, outcome = meet(engine, act, *lines, comes_first=comes_first, fails=fails)
            outcomes.add(outcome)
            if held[index] is None:
                assert line > 5, "there was nothing to hold"
                break
    assert outcomes == {"ABORTED", "ERROR" if fails else "SUCCESS"}
