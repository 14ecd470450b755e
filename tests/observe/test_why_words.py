"""What people read: every reason, condition, cause, ending and event has its words, exact to the letter."""

from __future__ import annotations

import re

import pytest

from kernel_driver import SECOND, Driver, kernel, policy
from whywait.kernel.events import Event, Kind
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, Limits, Retry
from whywait.kernel.order import Strict
from whywait.kernel.reasons import ConditionKind, ReasonKind
from whywait.kernel.state import CAUSES_OF, STATE_WORDS, Cause, ScopeState, TaskState, Wait
from whywait.observe import explain
from whywait.observe.event_words import event_in_words
from whywait.observe.explain import in_words

GB = 10**9


def said(driver: Driver, task) -> str:
    return str(in_words(driver.why(task)))


def lines(text: str) -> list[str]:
    return text.splitlines()


def values(closed_set: type) -> list[str]:
    return [value for name, value in vars(closed_set).items() if name.isupper()]


@pytest.mark.parametrize("kind", values(ReasonKind))
def test_every_reason_has_words(kind):
    """V1: the set is closed."""
    assert kind in explain._REASONS


@pytest.mark.parametrize("kind", values(ConditionKind))
def test_every_condition_has_words(kind):
    """V1: the set is closed."""
    assert kind in explain._CONDITIONS


@pytest.mark.parametrize("cause", values(Wait))
def test_every_wait_cause_has_words(cause):
    """V7: as a part of a wait and as a label; a budget gate is called by its name."""
    assert cause in explain.CAUSES
    assert cause in explain.CAUSE_LABELS
    assert explain.cause_in_words("licence") == "waiting for licence"


@pytest.mark.parametrize("cause", [cause for causes in CAUSES_OF.values() for cause in causes if cause])
def test_every_ending_has_words(cause):
    """T2: none of them is told by its code alone."""
    assert "(" not in explain.ending_in_words("error", cause, "other")


@pytest.mark.parametrize("kind", values(Kind))
def test_every_event_has_words(kind):
    """V3: whatever its details."""
    details = {
        "state": "READY", "priority": 50, "cause": "vram", "outcome": "error", "from": "READY", "to": "READY",
        "limit": 2, "asked": 1, "ram": 2, "engine": "ray", "node": "ab12", "machine": "m", "pid": 7,
        "starved_ns": 1, "attempt": 2, "interval_ns": 1, "code": "SRS-E-RUN-002", "reason": "failures", "tasks": 1,
        "on": 3,
    }  # fmt: skip
    told = event_in_words(Event(1, 0, kind, "s", None, "x", None, tuple(details.items())))
    assert kind not in told
    assert re.search(r"\bx\b|\bscope s\b", told)


def test_an_event_of_a_kind_that_is_new_is_told_by_its_name():
    """V3: nothing is left without words."""
    event = Event(1, 0, "STREAM_OPENED", "s", 1, "x", None, (("stream", "out"), ("limit", 8)))
    assert event_in_words(event) == "x: stream opened (stream out, limit 8)"


def test_slots():
    """V1: how many, and who has them for how long."""
    driver = Driver(kernel(2))
    driver.submit("train", lasts=None)
    driver.submit("train-4", lasts=None)
    driver.dispatch()
    task = driver.submit("resize")
    driver.until(41 * SECOND)
    assert lines(said(driver, task)) == [
        "resize has waited 41.0 s:",
        "  slots: all 2 are taken, by train (41.0 s) and train-4 (41.0 s)",
        "  priority: 50, lifted to 99 by waiting",
        "  it starts when a slot is free",
    ]


def test_scope_slots():
    """V1, S2: whose slots; the only one."""
    driver = Driver(kernel(None))
    scope = driver.scope("render", slots=1)
    driver.submit("first", scope=scope, lasts=None)
    task = driver.submit("second", scope=scope)
    driver.until(2)
    assert lines(said(driver, task)) == [
        "second has waited 2 ms:",
        "  slots of scope render: the only one is taken, by first (2 ms)",
        "  it starts when a slot of scope render is free",
    ]


def test_a_resource_in_human_units():
    """V1: need, free, limit, who holds how much for how long; what is missing."""
    driver = Driver(kernel(None, vram=6 * GB))
    driver.submit("upscale-7", vram=4500 * GB // 1000, lasts=None)
    task = driver.submit("paint", vram=4 * GB)
    driver.until(850)
    assert lines(said(driver, task)) == [
        "paint has waited 850 ms:",
        "  vram: needs 4.0 GB, 1.5 GB of 6.0 GB free, held by upscale-7 (4.5 GB, 850 ms)",
        "  it starts when 2.5 GB more vram is free",
    ]


def test_a_named_resource_counts_in_pieces_and_many_holders_are_summed_up():
    """V1, B3: three are named."""
    driver = Driver(kernel(None, licence=5))
    for number in range(5):
        driver.submit(f"s{number}", licence=1, lasts=None)
    task = driver.submit("late", licence=2)
    driver.until(1)
    assert lines(said(driver, task))[1:] == [
        "  licence: needs 2, 0 of 5 free, held by s0 (1, 1 ms), s1 (1, 1 ms), s2 (1, 1 ms) and 2 more",
        "  it starts when 2 more licence is free",
    ]


def test_a_soft_demand_above_the_limit():
    """V1, B2: it is no deadlock."""
    driver = Driver(kernel(None, ram=4 * GB))
    driver.submit("s", ram=1 * GB, lasts=None)
    driver.dispatch()
    task = driver.submit("huge", ram=9 * GB)
    driver.until(1)
    assert lines(said(driver, task))[1:] == [
        "  ram: needs 9.0 GB, more than the limit of 4.0 GB, so nothing else may run with it, held by s (1.0 GB, 1 ms)",
        "  it starts when nothing else runs",
    ]


def test_never():
    """V1, B1: a limit that was lowered; told apart from "not now"."""
    driver = Driver(kernel(None, cpu=4), check=False)
    driver.submit("runs", cpu=1, lasts=None)
    driver.dispatch()
    task = driver.submit("wide", cpu=4)
    after = driver.submit("after", after=["wide"])
    driver.until(1)
    driver.kernel.resources["cpu"].limit = 3
    assert lines(said(driver, task)) == [
        "wide has waited 1 ms and can never start as things are:",
        "  cpu: needs 4, and the limit is 3",
        "  it starts when somebody raises the limit of cpu",
    ]
    assert lines(said(driver, after)) == [
        "after has waited 1 ms and can never start as things are:",
        "  dependencies: wide can never start as things are",
        "  it starts when wide has succeeded",
    ]


def test_scope_state():
    """V1, O2: which scope, if it is not its own."""
    driver = Driver(kernel(1))
    outer = driver.scope("outer")
    inner = driver.scope("inner", outer)
    driver.submit("starts it", scope=inner, lasts=1)
    task = driver.submit("task", scope=inner)
    driver.dispatch()
    driver.suspend(outer)
    driver.until(5)
    assert lines(said(driver, task)) == [
        "task has waited 5 ms:",
        "  scope outer is suspended",
        "  it starts when scope outer is resumed",
    ]


def test_held_back():
    """V1, B5: by whom, and what that one waits for."""
    driver = Driver(kernel(None, backfill="none", cpu=2))
    driver.submit("runs", cpu=1, lasts=None)
    driver.dispatch()
    driver.submit("wide", cpu=2)
    small = driver.submit("small")
    driver.until(10)
    assert lines(said(driver, small)) == [
        "small has waited 10 ms:",
        "  held back: wide comes first and waits for cpu held by runs",
        "  in line: 1 task ahead of it: wide",
        "  priority: 50; the next lift is in 5.0 s",
        "  it starts when wide has started and it is its turn",
    ]


def test_dispatch():
    """V1: nothing is in the way."""
    driver = Driver(kernel(1))
    assert lines(said(driver, driver.submit("task"))) == [
        "task has waited 0 ms:",
        "  nothing stops it",
        "  it starts when the scheduler looks next, which is at once",
    ]


def test_dependencies_down_to_the_root():
    """V1: where each stands; three are told."""
    driver = Driver(kernel(1))
    driver.submit("train", lasts=None)
    driver.dispatch()
    driver.submit("fetch")
    driver.submit("cut", after=["fetch"])
    task = driver.submit("encode", after=["train", "cut"])
    driver.until(3 * SECOND)
    assert lines(said(driver, task)) == [
        "encode has waited 3.0 s:",
        "  dependencies: train has been running for 3.0 s; cut waits for fetch, which waits for a slot held by train",
        "  it starts when train has succeeded and cut has succeeded",
    ]


def test_a_long_chain_is_cut():
    """V1: the first steps, and the root."""
    driver = Driver(kernel(1))
    driver.submit("t0", lasts=None)
    driver.dispatch()
    for number in range(1, 9):
        task = driver.submit(f"t{number}", after=[f"t{number - 1}"])
    driver.until(1)
    assert lines(said(driver, task))[1] == (
        "  dependencies: t7 waits for t6, which waits for t5, which waits for t4, which waits for t3, which waits for "
        "t2, and so on (2 more, at last t0, which has been running for 1 ms)"
    )


def test_a_dependency_that_is_paused_or_backs_off():
    """V1: where it stands, whatever that is; any end will do where any end will do."""
    driver = Driver(kernel(1))
    paused = driver.submit("paused")
    driver.pause(paused)
    driver.submit("fails", fails=1, lasts=1, policy=policy(retry=Retry(1, backoff=10)))
    task = driver.submit("task", after=["paused"], after_ended=["fails"])
    driver.until(5)
    assert lines(said(driver, task))[1:] == [
        "  dependencies: paused is paused; fails is backing off before a retry",
        "  it starts when paused has succeeded and fails has ended",
    ]


def test_backoff():
    """V1, T7: until when."""
    driver = Driver(kernel(1))
    task = driver.submit("upload", fails=1, lasts=100, policy=policy(retry=Retry(1, backoff=3)))
    driver.until(600)
    assert lines(said(driver, task)) == [
        "upload (attempt 2) has waited 500 ms:",
        "  backing off: the next attempt may start in 2.5 s",
        "  it starts when 2.5 s have passed",
    ]


def test_overlap():
    """V1, R4: behind the iteration before."""
    driver = Driver(kernel(None))
    driver.periodic("sample", every=10, lasts=None, overlap="queue")
    driver.until(25)
    (waiting,) = [task for task in driver.kernel.root.tasks.values() if task.pending]
    (running,) = driver.kernel.running.values()
    assert lines(said(driver, waiting)) == [
        f"{waiting.id} has waited 5 ms:",
        f"  overlap: the iteration before it still runs: {running.id} (15 ms)",
        f"  it starts when {running.id} has ended",
    ]


def test_paused():
    """V1, X1: since when; and what else."""
    driver = Driver(kernel(1))
    driver.submit("first")
    task = driver.submit("task", after=["first"])
    driver.pause(task)
    driver.until(4)
    assert lines(said(driver, task)) == [
        "task has waited 4 ms:",
        "  paused for 4 ms: somebody has to resume it",
        "  dependencies: first has been running for 4 ms",
        "  it starts when it is resumed and first has succeeded",
    ]


def test_starved_and_in_line():
    """V1, V2: who is ahead, who starves it."""
    driver = Driver(kernel(1, Strict()))
    driver.submit("train", 80, lasts=None)
    driver.dispatch()
    for number in range(5):
        driver.submit(f"h{number}", 80)
    task = driver.submit("backup", 0)
    driver.until(90 * SECOND)
    assert lines(said(driver, task)) == [
        "backup has waited 1m 30s:",
        "  slots: the only one is taken, by train (1m 30s)",
        "  in line: 5 tasks ahead of it: h0, h1, h2 and 2 more",
        "  starved for 1m 30s: train of higher priority holds a slot",
        "  it starts when a slot is free and it is its turn",
    ]


def test_the_primary_reason_comes_first():
    """V1, V7: what dispatch found, although the order of the gates is another."""
    driver = Driver(kernel(None, ram=1))
    scope = driver.scope("s")
    driver.submit("starts it", scope=scope, lasts=1)
    driver.submit("hog", ram=1, lasts=None)
    task = driver.submit("task", scope=scope, ram=1)
    driver.until(10)
    driver.suspend(scope)
    assert [line.split(":")[0].strip() for line in lines(said(driver, task))[1:3]] == ["ram", "scope s is suspended"]


def test_running_parked_and_asked_to_end():
    """V1: what it does, since when, what it holds, who waits for it."""
    driver = Driver(kernel(1, vram=6 * GB))
    driver.submit("before", lasts=10)
    task = driver.submit("train", vram=4 * GB, lasts=None, obeys=False)
    driver.submit("next")
    driver.submit("pack", after_ended=["train"])
    driver.until(1010)
    waiting = ["  1 task waits for its slot: next", "  1 task waits for its end: pack"]
    waited = ["  it waited 10 ms:", "    10 ms waiting for a slot"]
    assert lines(said(driver, task)) == [
        "train has been running for 1.0 s and holds a slot and 4.0 GB vram",
        *waiting,
        *waited,
    ]
    driver.pause(task)
    driver.parked(task)
    driver.until(1510)
    assert lines(said(driver, task))[0] == (
        "train has been paused for 500 ms (somebody has to resume it), started 1.5 s ago, "
        "and holds a slot and 4.0 GB vram"
    )
    driver.cancel(task)
    driver.until(1710)
    assert lines(said(driver, task)) == [
        "train was asked to end 200 ms ago (cancelled), its body has not ended yet and holds a slot and 4.0 GB vram",
        *waiting,
        *waited,
    ]


def test_finished():
    """V1, T2: outcome, cause, division; the largest part first."""
    driver = Driver(kernel(1, Strict()))
    driver.submit("high", 80, lasts=30)
    driver.submit("level", lasts=10)
    task = driver.submit("task", lasts=1)
    failed = driver.submit("failed", 10, lasts=1, outcome="error")
    doomed = driver.submit("doomed", after=["failed"])
    late = driver.submit("late", 0, policy=policy(max_wait=5))
    gone = driver.submit("gone", 0)
    driver.cancel(gone)
    at_once = driver.submit("at once", 100)
    driver.until(200)
    assert lines(said(driver, task)) == [
        "task succeeded",
        "  it waited 50 ms:",
        "    40 ms waiting for a slot that a higher priority held",
        "    10 ms waiting for a slot",
    ]
    assert lines(said(driver, failed))[0] == "failed failed: its body raised an exception"
    assert lines(said(driver, doomed))[0] == "doomed was ended, because failed did not succeed"
    assert lines(said(driver, late))[0] == "late was dropped: it had waited as long as it may"
    assert lines(said(driver, gone))[0] == "gone was cancelled"
    assert lines(said(driver, at_once)) == ["at once succeeded", "  it did not wait"]


def test_finished_after_retries():
    """V1, T7: the whole wait, over all attempts."""
    driver = Driver(kernel(1))
    first = driver.submit("upload", fails=1, lasts=10, policy=policy(retry=Retry(1, backoff=0.02)))
    driver.until(100)
    why = driver.kernel.why(driver.now_ns, first)
    assert lines(str(in_words(why))) == [
        "upload succeeded in attempt 2",
        "  it waited 20 ms over 2 attempts:",
        "    20 ms backing off before a retry",
    ]


def test_causes_that_are_no_ending_of_a_living_task_are_left_out():
    """T2: what refuses a submission is told by the error that it raises."""
    refusals = {Cause.QUEUE_FULL, Cause.BUSY, Cause.SPAWN_LIMIT, Cause.INFEASIBLE, Cause.DUPLICATE}
    assert not refusals & explain._ENDINGS.keys()


def test_holders_that_use_more_than_they_asked_for_are_told_so():
    """U2, V1: in the reason of what waits, and in the answer for the holder; one that keeps its promise is not."""
    driver = Driver(kernel(4, ram=10 * GB))
    honest, greedy, free = (driver.submit(name, ram=ram, lasts=None) for name, ram in HOLDERS.items())
    driver.until(0)
    for task, used in ((honest, 1 * GB), (greedy, 3 * GB), (free, 4 * GB)):
        driver.measured(task, used)
    waits = driver.submit("waits", ram=5 * GB)
    driver.until(500)
    assert lines(said(driver, waits))[1] == (
        "  ram: needs 5.0 GB, 1.0 GB of 10.0 GB free, held by honest (2.0 GB, 500 ms), "
        "greedy (uses 3.0 GB, more than the 1.0 GB it asked for, 500 ms) and free (uses 4.0 GB, asked for none, 500 ms)"
    )
    assert [lines(said(driver, task))[0].partition(" holds ")[2] for task in (honest, greedy, free)] == [
        "a slot and 2.0 GB ram",
        "a slot and 3.0 GB ram (more than the 1.0 GB it asked for)",
        "a slot and 4.0 GB ram (asked for none)",
    ]


def test_nothing_is_free_where_more_is_held_than_there_is():
    """U2, V1: no task has less than nothing, though what was not asked for is beyond the limit."""
    driver = Driver(kernel(4, ram=2 * GB))
    greedy = driver.submit("greedy", ram=1 * GB, lasts=None)
    driver.until(0)
    driver.measured(greedy, 3 * GB)
    waits = driver.submit("waits", ram=1 * GB)
    driver.until(500)
    assert "ram: needs 1.0 GB, 0 B of 2.0 GB free, held by greedy (uses 3.0 GB," in lines(said(driver, waits))[1]


HOLDERS = {"honest": 2 * GB, "greedy": 1 * GB, "free": 0}


def test_a_job_that_has_only_a_number_is_not_taken_for_a_unit():
    """V1, N4: it is called a job wherever a sentence names it."""
    driver = Driver(Kernel(Limits(slots=4), Budget({}, {}, {"gpu": {"0": 24 * GB, "1": 12 * GB}})))
    four = driver.submit("4", gpu=1, lasts=None)
    driver.submit("3", gpu=1, lasts=None)
    waits = driver.submit("5", gpu=1)
    after = driver.submit("6", after=["5"])
    driver.until(500)
    assert lines(said(driver, waits))[:2] == [
        "job 5 has waited 500 ms:",
        "  no gpu is free: gpu 0 is held by job 3; gpu 1 is held by job 4",
    ]
    assert lines(said(driver, four))[1] == "  1 task waits for its gpu: job 5"
    assert lines(said(driver, after))[1:] == [
        "  dependencies: job 5 waits for gpu held by job 3 and job 4",
        "  it starts when job 5 has succeeded",
    ]
    driver.pause(four)
    driver.parked(four)
    assert "gpu 1 is held by job 4 (paused)" in said(driver, waits)


def test_no_sentence_has_a_state_in_capitals():
    """V1: a reader knows that a task waits, runs, is paused, is ending or has ended."""
    assert set(STATE_WORDS) == {*values(TaskState), *values(ScopeState)}
    driver = Driver(kernel(1))
    task = driver.submit("x", lasts=None, obeys=False)
    driver.submit("behind")
    driver.until(0)
    told = [said(driver, task)]
    driver.pause(task)
    driver.parked(task)
    told.append(said(driver, driver.submit("next")))
    driver.cancel(task)
    told += [said(driver, task), *(event_in_words(event) for event in driver.events)]
    assert not re.search(r"\b[A-Z]{4,}\b", "\n".join(told))
