"""Pausing, resuming and cancelling, computed by hand in virtual time."""

from __future__ import annotations

import pytest

from kernel_driver import Driver, end_of, kernel, policy
from whywait.errors import InvalidTransition
from whywait.kernel.limits import Retry
from whywait.kernel.model import Task
from whywait.kernel.state import STATE_WORDS


def busy() -> Driver:
    """One slot, taken by ``run`` until 20 ms."""
    driver = Driver(kernel(1))
    driver.submit("run", 100, lasts=20)
    driver.dispatch()
    return driver


def running(obeys=True, **rest) -> tuple[Driver, Task]:
    """One slot, taken by ``task``; it is 100 ms and ``next`` waits."""
    driver = Driver(kernel(1, cpu=1))
    task = driver.submit("task", lasts=None, obeys=obeys, cpu=1, **rest)
    driver.submit("next")
    driver.until(100)
    return driver, task


@pytest.mark.parametrize("place", ["QUEUED", "READY"])
def test_pausing_a_pending_task_takes_effect_at_once(place):
    """X1: it remembers where from; nobody is asked; it does not start though its turn comes."""
    driver = busy()
    task = driver.submit("task", after=["run"] if place == "QUEUED" else [])
    driver.pause(task)
    assert (task.state, task.paused_from) == ("PAUSED", place)
    assert driver.asked == []
    driver.until(100)
    assert driver.order == ["run"]
    with driver.changes_nothing():
        driver.pause(task)


def test_pausing_a_running_task_asks_it_to_park_at_its_next_checkpoint():
    """X1: until it gets there it is RUNNING; asking twice is asking once."""
    driver, task = running(obeys=False)
    driver.pause(task)
    assert (task.state, driver.asked) == ("RUNNING", [("pause", "task")])
    with driver.changes_nothing():
        driver.pause(task)
    driver.until(700)
    driver.parked(task)
    assert (task.state, task.paused_from) == ("PAUSED", "RUNNING")
    assert driver.kernel.next_deadline() is None
    assert driver.story("pause_asked", "paused") == ["100 pause_asked task", "700 paused task RUNNING"]


def test_a_body_that_reaches_no_checkpoint_in_time_is_cancelled():
    """X1: after 1.5 s; it ends as ABORTED/pause_timeout and takes its dependents along at once."""
    driver, task = running(obeys=False)
    driver.submit("child", after=["task"])
    driver.pause(task)
    driver.until(1599)
    assert task.state == "RUNNING"
    driver.until(1600)
    assert task.state == "DISPOSING"
    assert driver.asked == [("pause", "task"), ("abort", "task")]
    driver.until(2000)
    driver.end(task)
    assert end_of(task) == ("DISPOSED", "aborted", "pause_timeout")
    assert driver.story("abort_asked", "cancelled") == [
        "1600 abort_asked task pause_timeout",
        "1600 cancelled child dependency task",
        "2000 cancelled task pause_timeout",
    ]


def test_a_pause_that_was_only_asked_for_can_be_withdrawn():
    """X1, X2: the body is told to go on, and no timeout comes; a checkpoint reached meanwhile lets it go on."""
    driver, task = running(obeys=False)
    driver.pause(task)
    driver.resume(task)
    driver.parked(task)
    assert driver.asked == [("pause", "task"), ("resume", "task"), ("resume", "task")]
    driver.until(5000)
    assert task.state == "RUNNING"


def test_a_parked_task_keeps_its_slot_and_its_budget():
    """X2: the next waits for as long as it is parked; then the body goes on."""
    driver, task = running()
    driver.pause(task)
    driver.until(5000)
    assert (task.state, driver.order) == ("PAUSED", ["task"])
    driver.resume(task)
    assert (task.state, task.paused_from) == ("RUNNING", None)
    assert driver.asked[-1] == ("resume", "task")
    driver.end(task)
    assert driver.dispatch() == ["next"]


def test_a_timeout_goes_on_while_a_body_is_parked():
    """X2, T6: it counts from activation."""
    driver, task = running(policy=policy(timeout=500))
    driver.pause(task)
    driver.until(500)
    assert end_of(task) == ("DISPOSED", "timeout", "run_timeout")


def test_resume_brings_a_ready_task_to_the_back_of_its_lane():
    """X2: behind those that came while it was paused."""
    driver = busy()
    first = driver.submit("first")
    driver.submit("second")
    driver.pause(first)
    driver.submit("third")
    driver.until(15)
    driver.resume(first)
    assert (first.state, driver.why(first).position, driver.waits(first)) == ("READY", 2, {"paused": 15})
    driver.until(100)
    assert driver.order == ["run", "second", "third", "first"]


@pytest.mark.parametrize(("resumed_at", "state"), [(15, "QUEUED"), (25, "READY")])
def test_resume_brings_a_queued_task_to_where_its_dependencies_stand(resumed_at, state):
    """X2: `run` ends at 20 ms; before that it is QUEUED again, after that READY."""
    driver = busy()
    task = driver.submit("task", after=["run"])
    driver.at(5)
    driver.pause(task)
    driver.at(resumed_at)
    driver.resume(task)
    assert task.state == state
    assert driver.story("resumed") == [f"{resumed_at} resumed task {state}"]
    driver.until(100)
    assert task.outcome == "success"


def test_cancelling_a_running_task_aborts_it_and_its_descendants_now():
    """X3: the outcome is ABORTED whatever the body returns; cancelling again changes nothing."""
    driver, task = running(obeys=False)
    driver.submit("child", after=["task"])
    driver.submit("grandchild", after=["child"])
    driver.cancel(task)
    with driver.changes_nothing():
        driver.cancel(task)
    assert driver.asked == [("abort", "task")]
    driver.until(300)
    driver.end(task, "success")
    assert end_of(task) == ("DISPOSED", "aborted", "cancelled")
    assert driver.story("abort_asked", "cancelled") == [
        "100 abort_asked task cancelled",
        "100 cancelled child dependency task",
        "100 cancelled grandchild dependency task",
        "300 cancelled task cancelled",
    ]


@pytest.mark.parametrize("outcome", ["success", "error"])
def test_pausing_or_cancelling_what_is_finished_changes_nothing(outcome):
    """X4: no error, no event; also after a retry."""
    driver = Driver(kernel(1))
    task = driver.submit("task", outcome=outcome, policy=policy(retry=1))
    driver.until(100)
    with driver.changes_nothing():
        driver.pause(task)
        driver.cancel(task)


@pytest.mark.parametrize("place", ["QUEUED", "READY", "RUNNING", "DISPOSING", "DISPOSED"])
def test_resuming_what_is_not_paused_is_an_error(place):
    """X4: it says which task and in which state it is."""
    driver = busy()
    run = driver.kernel.find("run")
    task = driver.submit("task", after=["run"] if place == "QUEUED" else [], lasts=None, obeys=False)
    if place not in {"QUEUED", "READY"}:
        driver.end(run)
        driver.dispatch()
    if place == "DISPOSING":
        driver.cancel(task)
    elif place == "DISPOSED":
        driver.end(task)
    with driver.refuses(
        InvalidTransition, f"task task is {STATE_WORDS[place]}, not paused: there is nothing to resume"
    ):
        driver.resume(task)


@pytest.mark.parametrize("parked", [False, True], ids=["asked", "parked"])
@pytest.mark.parametrize("backoff", [0, 10])
def test_a_pause_holds_for_the_next_attempt(parked, backoff):
    """X1, T7: the attempt that was asked, or had parked, fails; the next one is PAUSED until it is resumed."""
    driver, task = running(obeys=False, policy=policy(retry=Retry(1, backoff=backoff / 1000)))
    driver.pause(task)
    if parked:
        driver.parked(task)
    driver.end(task, "error")
    new = task
    assert (new.state, new.paused_from) == ("PAUSED", "QUEUED" if backoff else "READY")
    driver.until(1000)
    assert new.state == "PAUSED"
    driver.resume(new)
    assert new.state == "READY"


@pytest.mark.parametrize("first", ["stop", "pause"])
@pytest.mark.parametrize("last", ["stop", "pause"])
def test_a_pending_task_goes_on_when_it_is_neither_stopped_nor_paused(first, last):
    """M15: the two are apart, whichever came first and whichever ends last; each twice is once."""
    driver = busy()
    task = driver.submit("task")
    begin = {"stop": lambda: driver.stopped(task, True), "pause": lambda: driver.pause(task)}
    end = {"stop": lambda: driver.stopped(task, False), "pause": lambda: driver.resume(task)}
    for kind in (*sorted(begin, key=first.__ne__), *begin):
        begin[kind]()
    driver.until(30)  # the slot is free
    for kind in sorted(end, key=last.__eq__):
        assert (task.state, task.paused_from) == ("PAUSED", "READY")
        end[kind]()
    driver.dispatch()
    assert driver.order == ["run", "task"]
    assert driver.waits(task) == {"paused": 30}


def test_a_running_task_that_is_stopped_is_paused_at_once_and_keeps_what_it_has():
    """M15, X2: nobody is asked, the slot stays taken, and going on asks nobody either."""
    driver, task = running()
    driver.stopped(task, True)
    assert (task.state, task.paused_from, driver.asked) == ("PAUSED", "RUNNING", [])
    driver.until(5000)
    assert driver.order == ["task"]
    assert driver.kernel.why(driver.now_ns, driver.kernel.find("next")).reasons[0].holders[0].stopped
    driver.stopped(task, False)
    assert (task.state, driver.asked) == ("RUNNING", [])
    assert driver.story("paused", "resumed") == ["100 paused task RUNNING True", "5000 resumed task RUNNING"]


def test_a_running_task_that_is_stopped_and_paused_goes_on_when_neither_holds():
    """M15: the engine hears of the pause and of its end, the state changes with the last of the two."""
    driver, task = running()
    driver.stopped(task, True)
    driver.pause(task)
    driver.stopped(task, False)
    assert (task.state, driver.asked) == ("PAUSED", [("pause", "task")])
    driver.stopped(task, True)
    driver.resume(task)
    assert (task.state, driver.asked) == ("PAUSED", [("pause", "task"), ("resume", "task")])
    with driver.refuses(InvalidTransition, "its terminal stopped it: it goes on with fg there"):
        driver.resume(task)
    driver.stopped(task, False)
    assert task.state == "RUNNING"


def test_a_timeout_does_not_count_the_time_in_which_the_task_is_stopped():
    """M15, T6: a pause by the verb counts, a stop does not."""
    driver, task = running(obeys=False, policy=policy(timeout=300))
    driver.stopped(task, True)  # at 100, when 200 are left
    driver.until(1000)
    driver.stopped(task, False)
    driver.until(1100)
    driver.stopped(task, True)
    driver.pause(task)
    driver.until(2000)
    driver.stopped(task, False)
    driver.until(2099)
    assert task.state == "PAUSED"
    driver.until(2100)
    assert task.state == "DISPOSING"


def test_a_stop_holds_for_the_next_attempt():
    """M15: what is given back because a stopped client did not take it waits until the client goes on."""
    driver, task = running(obeys=False, policy=policy(retry=Retry(5)))
    driver.stopped(task, True)
    driver.end(task, "error")
    new = task
    assert new.state == "PAUSED"
    driver.stopped(new, False)
    assert new.state == "READY"
