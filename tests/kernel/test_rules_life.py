"""The life of a task: states, outcomes, the checks of a submission, ids; computed by hand in virtual time."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import pytest

from kernel_driver import SECOND, Driver, kernel, policy
from whywait.errors import (
    ConfigError,
    DuplicateTask,
    Infeasible,
    InvalidTransition,
    QueueFull,
    Rejected,
    ScopeClosed,
    UnknownDependency,
)
from whywait.kernel.model import Task
from whywait.kernel.state import CAUSES_OF, SCOPE_TRANSITIONS, TASK_TRANSITIONS, Cause, scope_step, task_step


def test_the_tables_are_the_steps():
    """T1, O1: each row is legal, each other step raises and says what is possible; nothing leads out of DISPOSED."""
    for rows, step in ((TASK_TRANSITIONS, task_step), (SCOPE_TRANSITIONS, scope_step)):
        states = {state for source, _, target in rows for state in (source, target)}
        for source, event, target in itertools.product(states, {event for _, event, _ in rows}, states):
            if (source, event, target) in rows:
                assert step(source, event, target, "x") == target
                continue
            with pytest.raises(InvalidTransition) as caught:
                step(source, event, target, "x")
            assert f"x is {source}: '{event}' to {target} is not possible; allowed from {source}: " in str(caught.value)
        assert "DISPOSED" not in {source for source, _, _ in rows}


def task_in(place: str) -> tuple[Driver, Task, Task]:
    """Return a task in a state (``PAUSED READY``: paused from READY) and who held the only slot before it."""
    driver = Driver(kernel(1))
    first = driver.submit("first", lasts=None)
    driver.dispatch()
    origin = place.rsplit(maxsplit=1)[-1]
    task = driver.submit("task", lasts=None, obeys=False, after=["first"] if origin == "QUEUED" else [])
    if origin not in {"QUEUED", "READY"}:
        driver.end(first)
        driver.dispatch()
    if place == "DISPOSING":
        driver.cancel(task)
    elif place == "DISPOSED":
        driver.end(task)
    elif place.startswith("PAUSED"):
        driver.pause(task)
        driver.parked(task)
    assert place == " ".join([task.state, *([task.paused_from] if task.paused_from else [])])
    return driver, task, first


STEPS = {
    ("QUEUED", "wake", "READY"): ("QUEUED", lambda driver, task, first: driver.end(first)),
    ("QUEUED", "pause", "PAUSED"): ("QUEUED", lambda driver, task, first: driver.pause(task)),
    ("QUEUED", "end", "DISPOSED"): ("QUEUED", lambda driver, task, first: driver.cancel(task)),
    ("READY", "commit", "RUNNING"): ("READY", lambda driver, task, first: (driver.end(first), driver.dispatch())),
    ("READY", "pause", "PAUSED"): ("READY", lambda driver, task, first: driver.pause(task)),
    ("READY", "end", "DISPOSED"): ("READY", lambda driver, task, first: driver.cancel(task)),
    ("RUNNING", "park", "PAUSED"): ("RUNNING", lambda driver, task, first: (driver.pause(task), driver.parked(task))),
    ("RUNNING", "abort", "DISPOSING"): ("RUNNING", lambda driver, task, first: driver.cancel(task)),
    ("RUNNING", "ended", "DISPOSED"): ("RUNNING", lambda driver, task, first: driver.end(task)),
    ("PAUSED", "resume", "QUEUED"): ("PAUSED QUEUED", lambda driver, task, first: driver.resume(task)),
    ("PAUSED", "resume", "READY"): ("PAUSED READY", lambda driver, task, first: driver.resume(task)),
    ("PAUSED", "resume", "RUNNING"): ("PAUSED RUNNING", lambda driver, task, first: driver.resume(task)),
    ("PAUSED", "abort", "DISPOSING"): ("PAUSED RUNNING", lambda driver, task, first: driver.cancel(task)),
    ("PAUSED", "ended", "DISPOSED"): ("PAUSED RUNNING", lambda driver, task, first: driver.end(task)),
    ("PAUSED", "end", "DISPOSED"): ("PAUSED READY", lambda driver, task, first: driver.cancel(task)),
    ("DISPOSING", "ended", "DISPOSED"): ("DISPOSING", lambda driver, task, first: driver.end(task)),
}


@pytest.mark.parametrize("row", TASK_TRANSITIONS, ids=" ".join)
def test_the_kernel_takes_each_step_of_the_table(row):
    """T1, D4, X3: every row is reached by a command; a pending task that is cancelled ends at once."""
    place, act = STEPS[row]
    driver, task, first = task_in(place)
    act(driver, task, first)
    assert task.state == row[2]


@pytest.mark.parametrize("place", ["QUEUED", "READY", "PAUSED READY", "DISPOSED"])
def test_only_a_body_that_runs_can_end(place):
    """T1, T2: neither a pending task nor one that has its outcome gets one from an engine."""
    driver, task, _ = task_in(place)
    with driver.refuses(InvalidTransition, f"task task is {task.state}: it has no body that could end"):
        driver.kernel.ended(driver.now_ns, task, "success")


def end_by(driver: Driver, cause: str | None) -> Task:
    """Let a task end with a cause; None: with success."""
    match cause:
        case "run_timeout":
            task = driver.submit("task", policy=policy(timeout=5))
        case "cancelled" | "loop_closed":
            task = driver.submit("task")
            driver.cancel(task, cause)
        case "dependency":
            task = driver.submit("task", after=[driver.submit("other", outcome="error")])
        case "scope_disposed":
            scope = driver.scope("scope")
            task = driver.submit("task", scope=scope)
            driver.dispose(scope)
        case "pause_timeout":
            task = driver.submit("task", lasts=5 * SECOND, obeys=False)
            driver.until(1)
            driver.pause(task)
        case "max_wait":
            driver.submit("first")
            task = driver.submit("task", policy=policy(max_wait=5))
        case "displaced":
            scope = driver.scope("scope", queue_limit=1, overflow="displace")
            task = driver.submit("task", 0, scope=scope)
            driver.submit("newcomer", 1, scope=scope)
        case "periodic_off":
            periodic = driver.periodic(every=5, slot=True)
            driver.submit("first")
            driver.until(5)
            (task,) = periodic.waiting
            driver.switch(periodic, enabled=False)
        case _:
            task = driver.submit("task", lasts=None)
            driver.dispatch()
            driver.end(task, "error" if cause else "success", cause)
    driver.until(5 * SECOND)
    return task


KINDS = {
    "success": "TASK_FINISHED", "error": "TASK_FINISHED", "timeout": "TASK_FINISHED", "aborted": "TASK_CANCELLED",
    "rejected": "TASK_DROPPED",
}  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "cause"), [(outcome, cause) for outcome in CAUSES_OF for cause in CAUSES_OF[outcome]]
)
def test_a_task_ends_with_one_outcome_one_cause_and_one_event(outcome, cause):
    """T2, D5: the whole table of outcomes of accepted tasks; a drop is counted by its cause, and none is silent."""
    driver = Driver(kernel(1))
    task = end_by(driver, cause)
    assert (task.state, task.outcome, task.cause) == ("DISPOSED", outcome, cause)
    (event,) = [each for each in driver.events if each.number == task.number and each.kind in KINDS.values()]
    assert (event.kind, dict(event.details or ()).get("cause")) == (KINDS[outcome], cause)
    assert driver.stats()["by_outcome"][outcome] == 1
    assert driver.stats()["dropped"] == ({cause: 1} if outcome == "rejected" else {})
    assert outcome != "rejected" or driver.settled == [task]


REFUSALS = {
    "queue_full": (QueueFull, "queue_limit", {"queue_limit": 0}, {}),
    "busy": (Rejected, "when_busy", {"slots": 1, "when_busy": "reject"}, {}),
    "spawn_limit": (Rejected, "max_spawn", {"max_spawn": 1}, {}),
    "infeasible": (Infeasible, "demand feasible", {}, {"cpu": 2}),
    "duplicate": (DuplicateTask, "id unused", {}, {"name": "taken"}),
    "unknown_dependency": (UnknownDependency, "dependencies exist", {}, {"after": ["nobody"]}),
    "scope_state": (ScopeClosed, "scope state", {}, {}),
}


@pytest.mark.parametrize("cause", REFUSALS)
def test_a_refused_submission_raises_and_leaves_only_an_event_and_a_counter(cause):
    """T2, T3, D5: the typed error says which check and why; no Ref stays."""
    error, check, limits, request = REFUSALS[cause]
    driver = Driver(kernel(None, cpu=1))
    scope = driver.scope("scope", mount=cause != "scope_state", **limits)
    if cause not in {"scope_state", "queue_full"}:
        driver.submit("taken", scope=scope)
    with driver.refuses(error, "task|scope") as caught:
        driver.submit(**{"name": "new", "scope": scope, **request})
    assert (caught.value.check, caught.value.cause) == (check, cause)
    last = driver.events[-1]
    assert last.kind == ("TASK_DROPPED" if cause == "queue_full" else "TASK_REJECTED")
    assert (last.number, last.name, last.details) == (None, request.get("name", "new"), (("cause", cause),))
    counted = driver.stats()["dropped" if cause == "queue_full" else "rejected"]
    assert counted == {cause: 1}


def test_the_two_tables_name_every_cause():
    """T2: each cause code belongs to exactly one outcome, or to a refusal."""
    causes = [cause for each in CAUSES_OF.values() for cause in each if cause is not None]
    assert sorted([*causes, *REFUSALS]) == sorted(Cause)


def test_the_checks_of_a_submission_come_in_their_order():
    """T3: a request that fails every check is refused by the first; mended one by one, by the next."""
    driver = Driver(kernel(None, cpu=1))
    scope = driver.scope("s", slots=1, when_busy="reject", max_spawn=2, queue_limit=1)
    driver.submit("taken", scope=scope)
    driver.dispatch()
    driver.submit("fills", scope=driver.scope("child", scope))
    driver.suspend(scope)
    wrong: dict[str, Any] = {"scope": scope, "name": "taken", "after": ["nobody"], "cpu": 2}
    with driver.refuses(ScopeClosed, "scope 's' is suspended: it accepts tasks only while it is open or running"):
        driver.submit(**wrong)
    driver.resume_scope(scope)
    with driver.refuses(DuplicateTask, r"task id 'taken' is used in scope 's' \(running already\): choose another id"):
        driver.submit(**wrong)
    with driver.refuses(UnknownDependency, "task 'new' waits for 'nobody', which does not exist"):
        driver.submit(**wrong | {"name": "new"})
    with driver.refuses(Infeasible, "task 'new' demands 2 cpu and the limit is 1"):
        driver.submit(**wrong | {"name": "new", "after": ["taken"]})
    with driver.refuses(Rejected, "the only slot of scope 's' is taken"):
        driver.submit(**wrong | {"name": "new", "after": ["taken"], "cpu": 1})


@pytest.mark.parametrize("name", ["@1", "@", ""])
@pytest.mark.parametrize("others", [0, 1])
def test_an_id_that_is_empty_or_looks_generated_is_refused(name, others):
    """T3, T9: what begins with @ is the kernel's own; the same for the first of a lane and for later ones."""
    driver = Driver(kernel(1))
    for _ in range(others):
        driver.submit(None)
    with driver.refuses(ConfigError, f"task id '{name}' is not allowed: it must not be empty or begin with '@'"):
        driver.submit(name)


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_slot_and_budget_come_back_only_when_the_body_has_really_ended(how):
    """T4, X3: asked to stop at 5 ms, ended at 30 ms; what waits for it starts then."""
    driver = Driver(kernel(1, cpu=2, ram=8))
    rule = policy(timeout=5 if how == "timeout" else None)
    task = driver.submit("task", lasts=30, obeys=False, cpu=2, ram=3, policy=rule)
    driver.submit("next", cpu=1)
    driver.until(5)
    if how == "cancel":
        driver.cancel(task)
    assert task.state == "DISPOSING"
    driver.until(29)
    assert [(gate.name, gate.free) for gate in driver.kernel.snapshot(driver.now_ns).budget] == [("cpu", 0), ("ram", 5)]
    driver.until(30)
    assert driver.starts == [(0, "task"), (30, "next")]


def test_after_the_end_the_task_is_unregistered_successors_wake_and_the_next_starts():
    """T5: in this order, at one instant."""
    driver = Driver(kernel(1))
    driver.submit("a")
    driver.submit("b", after=["a"])
    driver.until(10)
    assert driver.story()[-3:] == ["10 finished a success", "10 ready b", "10 started b"]
    assert [task.id for task in driver.kernel.living()] == ["b"]
    assert driver.kernel.find("a") == "success"


class Payload:
    """Stands for the arguments of a task; has no meaning to the kernel."""


@pytest.mark.parametrize("outcome", ["success", "error"])
def test_nothing_keeps_the_payload_of_a_finished_task(outcome):
    """T5: neither its successors nor its id nor its first attempt keep it alive."""
    one = kernel(1)
    job = Payload()
    gone = weakref.ref(job)
    one.submit(0, one.root, "a", job=job, policy=policy(retry=1))
    one.submit(0, one.root, "b", after=["a"])
    one.submit(0, one.root, "c")
    del job
    for now in range(9):
        if one.find("a") not in CAUSES_OF:
            (task,) = one.dispatch(now).started
            one.ended(now, task, outcome, None if outcome == "success" else "exception")
            del task
    one.settled.clear()
    gc.collect()
    assert gone() is None
    assert one.find("a") == outcome


def test_an_id_is_unique_for_the_life_of_its_scope():
    """T9: taken while it lives and after it has ended; free in other scopes and in the next of the same key."""
    driver = Driver(kernel(1))
    scope, other = driver.scope("s"), driver.scope("other")
    driver.submit("x", scope=scope)
    with driver.refuses(DuplicateTask, r"task id 'x' is used in scope 's' \(waiting already\): choose another id"):
        driver.submit("x", scope=scope)
    driver.until(50)
    with driver.refuses(DuplicateTask, r"task id 'x' is used in scope 's' \(success already\): choose another id"):
        driver.submit("x", scope=scope)
    driver.submit("x", scope=other)
    driver.dispose(scope)
    driver.submit("x", scope=driver.scope("s"))


def test_generated_ids_sort_in_submission_order():
    """T9: also from nine to ten and across scopes."""
    driver = Driver(kernel(1))
    scopes = [driver.scope("a"), driver.scope("b")]
    ids = [driver.submit(None, number % 100, scope=scopes[number % 2]).id for number in range(200)]
    assert ids == sorted(set(ids))
