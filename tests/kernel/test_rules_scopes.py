"""Scopes: their life, what they let in, and what ends with them; computed by hand in virtual time."""

from __future__ import annotations

import pytest

from kernel_driver import Driver, kernel, policy
from whywait.errors import InvalidTransition, ScopeClosed, ScopeExists
from whywait.kernel.limits import Limits, Retry
from whywait.kernel.model import Scope
from whywait.kernel.state import SCOPE_TRANSITIONS, STATE_WORDS


def scope_in(state: str) -> tuple[Driver, Scope]:
    """Return a scope in a state; in RUNNING and later its ``task`` holds a slot and ignores signals."""
    driver = Driver(kernel(2))
    scope = driver.scope("s", mount=state != "INIT")
    if state not in {"INIT", "ATTACHED"}:
        task = driver.submit("task", scope=scope, lasts=None, obeys=False)
        driver.dispatch()
        if state == "SUSPENDED":
            driver.suspend(scope)
        elif state in {"DISPOSING", "DISPOSED"}:
            driver.dispose(scope)
        if state == "DISPOSED":
            driver.end(task)
    assert scope.state == state
    return driver, scope


STATES = ["INIT", "ATTACHED", "RUNNING", "SUSPENDED", "DISPOSING", "DISPOSED"]
COMMANDS = {
    "mount": lambda driver, scope: driver.mount(scope),
    "first activation": lambda driver, scope: (driver.submit("new", scope=scope), driver.dispatch()),
    "suspend": lambda driver, scope: driver.suspend(scope),
    "resume": lambda driver, scope: driver.resume_scope(scope),
    "dispose": lambda driver, scope: driver.dispose(scope),
    "all ended": lambda driver, scope: driver.end(driver.kernel.find("task")),
}


@pytest.mark.parametrize("row", SCOPE_TRANSITIONS, ids=" ".join)
def test_the_kernel_takes_each_step_of_the_table(row):
    """O1: every row is reached by a command; an empty scope goes through DISPOSING to DISPOSED at once."""
    source, event, target = row
    driver, scope = scope_in(source)
    COMMANDS[event](driver, scope)
    if event == "dispose" and source in {"INIT", "ATTACHED"}:
        assert driver.story()[-2:] == ["0 scope_disposing s", "0 scope_disposed s"]
        target = "DISPOSED"
    assert scope.state == target


@pytest.mark.parametrize("command", ["mount", "suspend", "resume"])
@pytest.mark.parametrize("state", STATES)
def test_a_command_that_is_no_row_is_refused(state, command):
    """O1: suspend only from RUNNING, resume only from SUSPENDED, mount only once; the error lists what is possible."""
    if any(row[:2] == (state, command) for row in SCOPE_TRANSITIONS):
        return
    driver, scope = scope_in(state)
    with driver.refuses(
        InvalidTransition, f"scope s is {state}: '{command}' to .* is not possible; allowed from {state}: "
    ):
        COMMANDS[command](driver, scope)
    assert scope.state == state


def test_the_authority_itself_cannot_be_suspended():
    """O1, O2: its scopes can."""
    driver = Driver(kernel(1))
    with driver.refuses(InvalidTransition, "the authority itself cannot be suspended: suspend its scopes"):
        driver.suspend(driver.kernel.root)


def test_a_parent_that_is_attached_late_runs_with_the_first_activation_inside():
    """O1, O2, O7, O8: what is inside takes no tasks before."""
    driver = Driver(kernel(1))
    parent = driver.kernel.open_scope(0, "parent", mount=False)
    child = driver.scope("child", parent)
    with pytest.raises(ScopeClosed, match="scope 'parent' is not open yet"):
        driver.submit("a", scope=child)
    driver.kernel.mount(0, parent)
    assert (child.state, parent.state) == ("ATTACHED", "ATTACHED")
    driver.submit("a", scope=child)
    driver.dispatch()
    assert (child.state, parent.state) == ("RUNNING", "RUNNING")


@pytest.mark.parametrize("state", STATES)
def test_submission_is_accepted_only_in_attached_and_running(state):
    """O2: otherwise the error names the scope and its state."""
    driver, scope = scope_in(state)
    if state in {"ATTACHED", "RUNNING"}:
        assert driver.submit("new", scope=scope).state == "READY"
    else:
        text = f"scope 's' is {STATE_WORDS[state]}: it accepts tasks only while it is open or running"
        with driver.refuses(ScopeClosed, text) as caught:
            driver.submit("new", scope=scope)
        assert (caught.value.check, caught.value.cause) == ("scope state", "scope_state")


def test_while_suspended_pending_tasks_stay_and_running_ones_run_on():
    """O2, V7: also one that becomes READY meanwhile; other scopes go on; the wait is charged to scope_state."""
    driver = Driver(kernel(2))
    scope = driver.scope("s")
    runs = driver.submit("runs", scope=scope)
    driver.dispatch()
    ready = driver.submit("ready", 100, scope=scope)
    queued = driver.submit("queued", 100, scope=scope, after=["runs"])
    driver.suspend(scope)
    driver.submit("other", 0)
    driver.until(30)
    assert runs.outcome == "success"
    assert driver.starts == [(0, "runs"), (0, "other")]
    assert (ready.state, queued.state) == ("READY", "READY")
    assert driver.waits(ready) == {"scope_state": 30}
    assert driver.waits(queued) == {"dependency": 10, "scope_state": 20}
    driver.resume_scope(scope)
    assert driver.dispatch() == ["ready", "queued"]


def test_suspending_covers_child_scopes():
    """O2, O7: nothing enters and nothing starts below; the child's own state stays."""
    driver = Driver(kernel(None))
    parent = driver.scope("parent")
    child = driver.scope("child", parent)
    grandchild = driver.scope("grandchild", child)
    driver.submit("runs", scope=grandchild, lasts=5)
    driver.dispatch()
    driver.submit("waits", scope=grandchild)
    driver.suspend(parent)
    driver.until(10)
    assert driver.order == ["runs"]
    assert (child.state, grandchild.state) == ("RUNNING", "RUNNING")
    for scope in (child, grandchild):
        with driver.refuses(ScopeClosed, "scope 'parent' is suspended"):
            driver.submit("new", scope=scope)
    driver.resume_scope(parent)
    assert driver.dispatch() == ["waits"]


@pytest.mark.parametrize("state", STATES[:-1])
def test_a_key_belongs_to_one_living_scope(state):
    """O3: a second one is refused, and the first is untouched."""
    driver, first = scope_in(state)
    with driver.refuses(ScopeExists, f"scope 's' exists and is {STATE_WORDS[state]}: choose another key or dispose it"):
        driver.scope("s", slots=1)
    assert first.limits == Limits()
    assert driver.kernel.scopes["s"] is first


def test_dispose_ends_running_tasks_in_start_order_then_pending_ones_in_submission_order():
    """O4: all ABORTED/scope_disposed, also those that depend on each other; DISPOSED when the last body has ended."""
    driver = Driver(kernel(3))
    scope = driver.scope("s")
    driver.submit("late", 10, scope=scope, lasts=40, obeys=False)
    driver.submit("early", 90, scope=scope, lasts=30, obeys=False)
    parked = driver.submit("parked", 5, scope=scope)
    driver.dispatch()
    driver.pause(parked)
    driver.submit("queued", scope=scope, after=["late"])
    driver.submit("ready", scope=scope)
    driver.pause(driver.submit("paused", scope=scope))
    driver.submit("child", scope=scope, after=["queued"])
    told = len(driver.raw)
    driver.until(5)
    driver.dispose(scope)
    driver.until(100)
    assert driver.story()[told:] == [
        "5 scope_disposing s",
        "5 abort_asked early scope_disposed",
        "5 abort_asked late scope_disposed",
        "5 abort_asked parked scope_disposed",
        "5 cancelled queued scope_disposed",
        "5 cancelled ready scope_disposed",
        "5 cancelled paused scope_disposed",
        "5 cancelled child scope_disposed",
        "5 cancelled parked scope_disposed",
        "30 cancelled early scope_disposed",
        "40 cancelled late scope_disposed",
        "40 scope_disposed s",
    ]
    assert "s" not in driver.kernel.scopes


def test_only_dependents_outside_the_scope_end_by_dependency():
    """O4, G3, G6: in submission order, naming whom they lost; who awaited only the end goes on."""
    driver = Driver(kernel(None))
    scope = driver.scope("s")
    driver.submit("runs", scope=scope, lasts=20, obeys=False)
    driver.dispatch()
    driver.submit("pending", scope=scope, after=["runs"])
    outside = driver.submit("outside", after=["s/pending"])
    driver.submit("further", after=["outside"])
    back = driver.submit("back inside", scope=scope, after=[outside])
    driver.submit("other", after=["s/runs"])
    driver.submit("end of pending", after_ended=["s/pending"])
    driver.submit("end of runs", after_ended=["s/runs"])
    driver.until(5)
    driver.dispose(scope)
    driver.until(100)
    assert driver.story("cancelled") == [
        "5 cancelled pending scope_disposed",
        "5 cancelled back inside scope_disposed",
        "5 cancelled outside dependency pending",
        "5 cancelled further dependency pending",
        "5 cancelled other dependency runs",
        "20 cancelled runs scope_disposed",
    ]
    assert back.root is None
    assert driver.starts[1:] == [(5, "end of pending"), (20, "end of runs")]


def test_disposing_a_parent_disposes_the_children_first():
    """O7, O4: tasks of the deepest scope end first, and a parent is DISPOSED after its last child."""
    driver = Driver(kernel(None))
    parent = driver.scope("parent")
    child = driver.scope("child", parent)
    grandchild = driver.scope("grandchild", child)
    driver.submit("p", scope=parent, obeys=False, lasts=10)
    driver.submit("g", scope=grandchild, obeys=False, lasts=30)
    driver.dispatch()
    driver.submit("c", scope=child, after=["parent/p"])
    told = len(driver.raw)
    driver.dispose(parent)
    assert [scope.state for scope in (parent, child, grandchild)] == ["DISPOSING"] * 3
    driver.until(100)
    assert driver.story()[told:] == [
        "0 scope_disposing parent",
        "0 scope_disposing child",
        "0 scope_disposing grandchild",
        "0 abort_asked g scope_disposed",
        "0 cancelled c scope_disposed",
        "0 abort_asked p scope_disposed",
        "10 cancelled p scope_disposed",
        "30 cancelled g scope_disposed",
        "30 scope_disposed grandchild",
        "30 scope_disposed child",
        "30 scope_disposed parent",
    ]


@pytest.mark.parametrize("state", ["DISPOSING", "DISPOSED"])
def test_no_scope_is_opened_in_one_that_ends(state):
    """O7, O1: the error names the parent and its state."""
    driver, parent = scope_in(state)
    with driver.refuses(ScopeClosed, f"scope 's' is {STATE_WORDS[state]}: no scope can be opened in it"):
        driver.scope("child", parent)


def test_streams_of_a_scope_are_closed_before_it_is_disposed():
    """O4, V3: those of a task whose body ends last, and those of a task that waits for its next attempt."""
    driver = Driver(kernel(2))
    scope = driver.scope("s")
    driver.submit("runs", scope=scope, lasts=None, obeys=False)
    driver.submit("again", scope=scope, lasts=None, policy=policy(retry=Retry(1, backoff=9)))
    driver.dispatch()
    runs, again = driver.kernel.find("runs"), driver.kernel.find("again")
    driver.kernel.ended(driver.now_ns, again, "error", "exception", True, (), (("log", 2), ("main", 0)))
    assert not [event for event in driver.events if event.kind == "STREAM_CLOSED"]
    driver.dispose(scope)
    driver.kernel.ended(driver.now_ns, runs, "success", None, True, (), (("main", 3),))
    closed = [(event.name, dict(event.details)) for event in driver.events if event.kind == "STREAM_CLOSED"]
    assert closed == [
        ("again", {"stream": "log", "chunks": 2}),
        ("again", {"stream": "main", "chunks": 0}),
        ("runs", {"stream": "main", "chunks": 3}),
    ]
    assert driver.events[-1].kind == "SCOPE_DISPOSED"
    assert not driver.kernel.streams


def test_nothing_is_told_of_the_inside_of_a_scope_that_is_disposed():
    """O4: a thread that a body has left behind comes too late with its event."""
    driver = Driver(kernel(1))
    scope = driver.scope("s")
    task = driver.submit("task", scope=scope, lasts=1)
    driver.until(1)
    driver.note(task, "WORKER_ENDED")
    driver.dispose(scope)
    driver.note(task, "WORKER_ENDED")
    assert [event.kind for event in driver.events][-2:] == ["SCOPE_DISPOSING", "SCOPE_DISPOSED"]
    assert [event.kind for event in driver.events].count("WORKER_ENDED") == 1
