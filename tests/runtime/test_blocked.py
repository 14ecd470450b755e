"""V1: a task whose body waits for another one says so, and so does that other."""

import threading

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, Call


def told(handle, words):
    until(lambda: words in str(handle.why()))
    return str(handle.why())


def test_a_task_that_waits_for_one_that_cannot_start_is_told_by_both():
    """V1: the only slot is held by a task that waits, in result(), for one that needs a slot."""
    with Authority(slots=1) as authority:
        made = []

        def outer():
            made.append(authority.submit(int, "7", id="inner"))
            return made[0].result(PATIENCE_S)

        handle = authority.submit(outer, id="outer")
        text = told(handle, "waits for the end of inner")
        assert "its body waits for the end of inner, which waits for a slot held by outer: neither can go on" in text
        inner = made[0].why()
        assert "outer holds the only slot and waits for the end of inner: neither can go on" in str(inner)
        assert [(each.id, each.blocked_on) for each in inner.reasons[0].holders] == [("outer", "inner")]
        assert handle.why().to_dict()["blocked_on"]["id"] == "inner"
        authority.resize(slots=2)
        assert handle.result(PATIENCE_S) == 7
        kinds = [event.kind for event in authority.events() if event.name == "outer"]
        assert kinds[-3:] == ["TASK_BLOCKED", "TASK_UNBLOCKED", "TASK_FINISHED"]


def test_all_holders_that_wait_are_named():
    """V1: two slots, two tasks that wait for what cannot start."""
    with Authority(slots=2) as authority:
        begun = threading.Barrier(2)
        made = {}

        def outer(number):
            made[number] = authority.submit(int, id=f"inner-{number}")
            begun.wait(PATIENCE_S)
            return made[number].result(PATIENCE_S)

        calls = [Call(outer, (number,), {"id": f"outer-{number}"}) for number in range(2)]
        handles = authority.submit_many(calls)
        until(lambda: len(made) == 2)
        text = told(made[1], "all that hold it wait")
        assert "all that hold it wait for the ends of other tasks: outer-0 for inner-0 and outer-1 for inner-1" in text
        authority.resize(slots=3)
        assert [handle.result(PATIENCE_S) for handle in handles] == [0, 0]


def test_a_wait_that_ends_is_told_no_more():
    """V1: by its timeout, or by the end of the other task."""
    with Authority(slots=2) as authority:
        gate = threading.Event()
        slow = authority.submit(gate.wait, PATIENCE_S, id="slow")
        stage = threading.Event()

        def waits():
            with pytest.raises(TimeoutError):
                slow.result("50ms")
            stage.wait(PATIENCE_S)

        handle = authority.submit(waits, id="waits")
        until(lambda: any(event.kind == "TASK_UNBLOCKED" for event in authority.events()))
        assert handle.why().blocked_on is None
        assert "the end of" not in str(handle.why())
        stage.set()
        gate.set()
        handle.result(PATIENCE_S)
