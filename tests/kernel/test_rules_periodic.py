"""Periodic tasks: the grid of ticks, the overlap table, switching on and off; computed by hand in virtual time."""

from __future__ import annotations

import pytest

from kernel_driver import MS, SECOND, Driver, end_of, kernel, policy
from whywait.errors import ConfigError, DuplicateTask, InvalidTransition, ScopeClosed
from whywait.kernel.state import STATE_WORDS

SKIPPED, QUEUE_TAKEN = "SRS-E-RUN-002", "SRS-E-RUN-003"


def times(driver: Driver) -> list[float]:
    """When iterations started."""
    return [time for time, name in driver.starts if "#" in name]


def ticks(driver: Driver) -> list[str]:
    return driver.story("periodic_tick", "periodic_skipped")


def test_a_periodic_lives_no_longer_than_its_scope():
    """R1: the iteration is aborted, the pending trigger ended, no tick comes any more."""
    driver = Driver(kernel(None))
    scope = driver.scope("run")
    periodic = driver.periodic(scope=scope, overlap="queue", lasts=500)
    driver.until(250)
    driver.dispose(scope)
    assert driver.kernel.next_deadline() is None
    driver.until(5 * SECOND)
    assert times(driver) == [100]
    assert [line.split()[-1] for line in driver.story("cancelled")] == ["scope_disposed"] * 2
    text = "periodic 'tick' has ended with its scope"
    with driver.refuses(InvalidTransition, text):
        driver.switch(periodic, enabled=True)


def test_the_state_of_a_run():
    """R1: all fields; a new run of the same name starts from nothing."""
    driver = Driver(kernel(None))
    scope = driver.scope("run")
    periodic = driver.periodic(scope=scope, outcome="error")
    driver.until(205)
    (last,) = scope.tasks
    assert periodic.status() == {
        "id": "run/tick",
        "task_ref": last,
        "enabled": True,
        "interval_ms": 100,
        "last_run_at": 200 * MS,
        "running_since": 200 * MS,
        "next_run_at": 300 * MS,
        "run_count": 2,
        "skipped": 0,
        "missed": 0,
        "consecutive_failures": 1,
        "last_error": "exception",
    }
    assert driver.kernel.snapshot(driver.now_ns).to_dict()["periodics"] == [
        {**periodic.status(), "overlap": periodic.overlap, "priority": periodic.priority, "slot": False}
    ]
    driver.dispose(scope)
    again = driver.periodic(scope=driver.scope("run"), enabled=False).status()
    assert (again["run_count"], again["consecutive_failures"], again["last_error"]) == (0, 0, None)
    assert (again["task_ref"], again["last_run_at"], again["next_run_at"]) == (None, None, None)


def test_a_name_belongs_to_one_periodic_of_a_scope():
    """R1: the first is untouched; other scopes may use the name."""
    driver = Driver(kernel(None))
    driver.periodic("tick")
    with driver.refuses(DuplicateTask, "periodic id 'tick' is used in scope '': choose another id"):
        driver.periodic("tick", every=7)
    driver.periodic("tick", scope=driver.scope("other"))


@pytest.mark.parametrize("state", ["INIT", "DISPOSED"])
def test_a_scope_that_is_not_open_takes_no_periodics(state):
    """R1, O2: the error names scope and state."""
    driver = Driver(kernel(None))
    scope = driver.scope("s", mount=state != "INIT")
    if state == "DISPOSED":
        driver.dispose(scope)
    with driver.refuses(ScopeClosed, f"scope 's' is {STATE_WORDS[state]}: it takes no periodics"):
        driver.periodic(scope=scope)


def test_jitter_moves_a_tick_and_never_accumulates():
    """R2: +10, -10, +5, 0 ms around the grid of 100 ms."""
    shifts = iter([1.0, -1.0, 0.5, 0.0, 0.0])
    driver = Driver(kernel(None, jitter=lambda: next(shifts)))
    driver.periodic(jitter=0.1, lasts=1)
    driver.until(410)
    assert times(driver) == [110, 190, 305, 400]


@pytest.mark.parametrize(
    ("awake_at", "missed", "following"), [(100, 0, 200), (199, 0, 200), (350, 2, 400), (400, 3, 500)]
)
def test_missed_ticks_are_one_trigger_and_a_number(awake_at, missed, following):
    """R2: the machine slept; then the grid goes on as before."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(lasts=1)
    driver.stall_until(awake_at)
    driver.until(following)
    assert periodic.status()["missed"] == missed
    assert times(driver) == [awake_at, following]
    assert ticks(driver) == [f"{awake_at} periodic_tick tick {missed}", f"{following} periodic_tick tick 0"]


def test_a_trigger_is_an_ordinary_task():
    """R3: it has priority, demand and policy, waits in a lane behind gates, and can be explained."""
    driver = Driver(kernel(1, cpu=2))
    settings = {"priority": 20, "demand": (("cpu", 2),), "policy": policy(timeout=30), "slot": True}
    periodic = driver.periodic(**settings, lasts=None)
    driver.submit("first", cpu=1, lasts=150)
    driver.submit("second", lasts=10)
    driver.until(120)
    (task,) = periodic.waiting
    why = driver.why(task)
    assert (why.state, why.priority, why.lane) == ("READY", 20, (20, "", (("cpu", 2),)))
    assert [reason.name for reason in why.reasons] == ["cpu", "slot"]
    assert [(level.priority, level.first) for level in why.ahead] == [(50, ("second",))]
    driver.until(190)
    assert driver.starts[1:] == [(150, "second"), (160, task.id)]
    assert end_of(task) == ("DISPOSED", "timeout", "run_timeout")


def test_a_periodic_shares_only_the_budget_that_both_demand():
    """R3: the sampler waits for the cpu that train holds, and train2 for what the sampler holds; nothing else waits."""
    driver = Driver(kernel(1, cpu=2, ram=4))
    driver.periodic("sample", demand=(("cpu", 2),), lasts=30)
    driver.submit("train", cpu=1, lasts=110)
    driver.submit("free", lasts=20)
    driver.submit("big", ram=9, lasts=5)
    driver.submit("train2", cpu=1, lasts=5)
    driver.until(SECOND)
    starts = [(time, name.partition("#")[0]) for time, name in driver.starts]
    assert starts[:5] == [(0, "train"), (110, "free"), (110, "sample"), (130, "big"), (140, "train2")]


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"queue_limit": 0}, "queue_full"),
        ({"max_spawn": 0}, "spawn_limit"),
        ({"slots": 1, "when_busy": "reject"}, "busy"),
    ],
)
def test_a_trigger_that_a_limit_refuses_is_dropped_with_an_event(limits, code):
    """R3, D5: nothing raises; the next tick tries again."""
    driver = Driver(kernel(None))
    scope = driver.scope("s", **limits)
    if code == "busy":
        driver.submit("hog", scope=scope, lasts=None)
    driver.periodic(scope=scope, slot=True)
    driver.until(200)
    assert ticks(driver) == [f"{time} periodic_skipped tick {code} 0" for time in (100, 200)]


TABLE = [
    # overlap, max_parallel, started, waiting -> READY, QUEUED behind the overlap gate, or the code of the drop
    ("skip", 1, 0, 0, "READY"),
    ("skip", 1, 1, 0, SKIPPED),
    ("skip", 1, 0, 1, SKIPPED),
    ("skip", 3, 1, 0, SKIPPED),
    ("queue", 1, 0, 0, "READY"),
    ("queue", 1, 1, 0, "QUEUED"),
    ("queue", 1, 0, 1, QUEUE_TAKEN),
    ("queue", 1, 1, 1, QUEUE_TAKEN),
    ("queue", 3, 1, 0, "QUEUED"),
    ("parallel", 1, 0, 0, "READY"),
    ("parallel", 1, 1, 0, "QUEUED"),
    ("parallel", 1, 1, 1, QUEUE_TAKEN),
    ("parallel", 1, 0, 1, QUEUE_TAKEN),
    ("parallel", 2, 0, 0, "READY"),
    ("parallel", 2, 1, 0, "READY"),
    ("parallel", 2, 2, 0, "QUEUED"),
    ("parallel", 2, 2, 1, QUEUE_TAKEN),
    ("parallel", 2, 0, 1, "READY"),
    ("parallel", 2, 0, 2, QUEUE_TAKEN),
    ("parallel", 2, 1, 1, QUEUE_TAKEN),
    ("parallel", 3, 1, 1, "READY"),
    ("parallel", 3, 1, 2, QUEUE_TAKEN),
    ("parallel", 3, 3, 0, "QUEUED"),
]


@pytest.mark.parametrize(("overlap", "max_parallel", "started", "waiting", "expected"), TABLE)
def test_the_overlap_table(overlap, max_parallel, started, waiting, expected):
    """R4: what becomes of a tick with so many iterations started and so many waiting."""
    driver = Driver(kernel(max(1, started)))
    if not started:
        driver.submit("hog", 100, lasts=None)
    periodic = driver.periodic(overlap=overlap, max_parallel=max_parallel, lasts=None, slot=True)
    driver.until(100 * (started + waiting))
    assert (periodic.started, len(periodic.waiting)) == (started, waiting)
    driver.at(driver.now + 100)
    event = next(event for event in reversed(driver.events) if event.kind.startswith("PERIODIC"))
    if expected in {SKIPPED, QUEUE_TAKEN}:
        assert (event.kind, dict(event.details)["code"]) == ("PERIODIC_SKIPPED", expected)
        assert len(periodic.waiting) == waiting
    else:
        assert event.kind == "PERIODIC_TICK"
        assert periodic.waiting[-1].state == expected
        assert len(periodic.waiting) == waiting + 1


def test_a_streak_of_dropped_ticks_is_told_once():
    """R4: the first of each streak is handed to the owner, with how long the iteration has been running."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(lasts=250)
    driver.until(750)
    assert driver.skips == [(200, "", "tick", SKIPPED, 100 * MS), (500, "", "tick", SKIPPED, 100 * MS)]
    assert (periodic.skipped, periodic.streak) == (4, 0)


def test_queue_keeps_one_trigger_that_starts_when_the_iteration_ends():
    """R4, V7: accepted at 200, QUEUED behind `overlap` until 350; the ticks at 300 and 500 find it there."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(overlap="queue", lasts=250)
    driver.until(340)
    (task,) = periodic.waiting
    why = driver.why(task)
    assert (task.state, why.primary, driver.waits(task)) == ("QUEUED", "overlap", {"overlap": 140})
    (reason,) = why.reasons
    assert (reason.kind, [other.state for other in reason.tasks]) == ("overlap", ["RUNNING"])
    driver.until(500)
    assert times(driver) == [100, 350]
    assert ticks(driver) == [
        "100 periodic_tick tick 0",
        "200 periodic_tick tick 0",
        f"300 periodic_skipped tick {QUEUE_TAKEN} 0",
        "400 periodic_tick tick 0",
        f"500 periodic_skipped tick {QUEUE_TAKEN} 0",
    ]


def test_switched_off_nothing_new_starts_and_what_runs_finishes():
    """R5: the pending trigger is dropped with an event; switching off again changes nothing."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(overlap="queue", lasts=150)
    driver.until(210)
    (pending,) = periodic.waiting
    driver.switch(periodic, enabled=False)
    assert end_of(pending) == ("DISPOSED", "rejected", "periodic_off")
    with driver.changes_nothing():
        driver.switch(periodic, enabled=False)
    driver.until(SECOND)
    assert driver.story("finished", "dropped", "periodic_disabled") == [
        "210 periodic_disabled tick asked",
        f"210 dropped {pending.id} periodic_off",
        f"250 finished {driver.starts[0][1]} success",
    ]
    assert times(driver) == [100]
    assert periodic.status()["next_run_at"] is None


@pytest.mark.parametrize(("on_at", "first"), [(230, 300), (299, 300), (300, 400), (555, 600)])
def test_switched_on_it_starts_at_the_next_tick_of_the_same_grid(on_at, first):
    """R5: the grid is that of its creation."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(lasts=1)
    driver.until(110)
    driver.switch(periodic, enabled=False)
    driver.at(on_at)
    driver.switch(periodic, enabled=True)
    with driver.changes_nothing():
        driver.switch(periodic, enabled=True)
    driver.until(first + 100)
    assert times(driver) == [100, first, first + 100]


def test_immediately_triggers_now_as_well():
    """R5: at creation and when switched on; the grid stays."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(lasts=1, immediately=True)
    driver.until(110)
    driver.switch(periodic, enabled=False)
    driver.until(150)
    driver.switch(periodic, enabled=True, immediately=True)
    driver.until(200)
    assert times(driver) == [0, 100, 150, 200]


@pytest.mark.parametrize("which", ["scope", "parent"])
def test_ticks_in_a_suspended_scope_are_dropped_with_an_event(which):
    """R5, O2: also if the scope above is the suspended one."""
    driver = Driver(kernel(None))
    parent = driver.scope("parent")
    scope = driver.scope("scope", parent)
    driver.periodic(scope=scope, lasts=1)
    driver.until(150)
    suspended = {"scope": scope, "parent": parent}[which]
    driver.suspend(suspended)
    driver.until(350)
    driver.resume_scope(suspended)
    driver.until(400)
    assert times(driver) == [100, 400]
    assert ticks(driver)[1:3] == [f"{time} periodic_skipped tick scope_state 0" for time in (200, 300)]


def test_failures_in_a_row_are_counted_and_a_success_resets():
    """R6: an error and a timeout count; a cancelled iteration neither counts nor resets."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(lasts=None, policy=policy(timeout=50))
    seen = []
    for number, how in enumerate(("error", "timeout", "cancel", "error", "success", "error"), 1):
        driver.until(100 * number)
        (task,) = driver.kernel.running.values()
        if how == "timeout":
            driver.until(100 * number + 50)
        elif how == "cancel":
            driver.cancel(task)
        else:
            driver.end(task, how)
        seen.append((periodic.consecutive_failures, periodic.last_error))
    assert seen == [
        (1, "exception"),
        (2, "run_timeout"),
        (2, "run_timeout"),
        (3, "exception"),
        (0, "exception"),
        (1, "exception"),
    ]


def test_disable_after_switches_off_with_an_event():
    """R6: after three in a row, not after three in all; the pending trigger is dropped."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(lasts=None, disable_after=3, overlap="queue")
    for time, outcome in enumerate(("error", "error", "success", "error", "error"), 1):
        driver.until(100 * time)
        driver.end(next(iter(driver.kernel.running.values())), outcome)
    driver.until(750)
    assert periodic.enabled
    (running,), (pending,) = driver.kernel.running.values(), periodic.waiting
    driver.end(running, "error")
    assert not periodic.enabled
    assert end_of(pending) == ("DISPOSED", "rejected", "periodic_off")
    assert driver.story("periodic_disabled") == ["750 periodic_disabled tick failures"]
    driver.until(5 * SECOND)
    assert len(times(driver)) == 6


def test_a_retried_iteration_counts_once():
    """R6, T7: two errors and a success are a success; the retry stands for the iteration in the overlap rule."""
    driver = Driver(kernel(None))
    periodic = driver.periodic(lasts=40, policy=policy(retry=2))
    driver.until(100)
    (task,) = driver.kernel.running.values()
    driver.end(task, "error")
    driver.dispatch()
    assert (periodic.started, periodic.consecutive_failures) == (1, 0)
    driver.until(150)
    assert (task.outcome, periodic.consecutive_failures, periodic.started) == ("success", 0, 0)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"every": 0.999}, "periodic interval of 0.999 ms is not allowed: use at least 1 ms"),
        ({"every": 0}, "periodic interval of 0 ms is not allowed: use at least 1 ms"),
        ({"jitter": 0.31}, "periodic jitter 0.31 is not allowed: use a share of the interval from 0 to 0.3"),
        ({"jitter": -0.1}, "periodic jitter -0.1 is not allowed"),
        ({"max_parallel": 0}, "periodic max_parallel 0 is not allowed: use an int of 1 or more"),
        ({"overlap": "drop"}, "periodic overlap 'drop' is not allowed: use one of skip, queue, parallel"),
        ({"disable_after": 0}, "periodic disable_after 0 is not allowed: use an int of 1 or more"),
    ],
)
def test_settings_outside_their_range_are_refused(bad, text):
    """R7: the error gives the setting, the value and what is allowed; nothing is added."""
    driver = Driver(kernel(None))
    with driver.refuses(ConfigError, text):
        driver.periodic(**bad)
