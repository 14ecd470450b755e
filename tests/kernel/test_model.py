"""The plain model itself, against cases computed by hand from the rules."""

from __future__ import annotations

import pytest

from model import Aging, Illegal, Limits, Model, Policy, Refused, Retry, Strict, Submission
from model.simulate import simulate

SECOND = 1_000_000_000


def task(id, at_ms=0, duration_ms=10, **rest):
    return {"id": id, "at_ms": at_ms, "duration_ms": duration_ms, **rest}


def run(*tasks, ops=(), **config):
    return simulate({"config": config, "tasks": list(tasks), "ops": list(ops)})


def events(*tasks, ops=(), **config):
    return [f"{ms} {kind} {name}" for ms, kind, name in run(*tasks, ops=ops, **config)["events"]]


def starts(*tasks, ops=(), **config):
    return [(ms, name) for ms, kind, name in run(*tasks, ops=ops, **config)["events"] if kind == "start"]


def test_background_is_level_with_fresh_normal_work_at_25_seconds_and_goes_first():
    """P4: Aging(5 s, 10) lifts 0 to 50 at 25 s; the older one wins the tie."""
    stream = [task(f"n{second:02d}", second * 1000, 1000) for second in range(30)]
    order = starts(task("b", 0, 1000, priority=0), *stream, slots=1)
    assert order[:25] == [(second * 1000, f"n{second:02d}") for second in range(25)]
    assert order[25] == (25_000, "b")
    assert order[26] == (26_000, "n25")


def test_strict_order_never_corrects_starvation():
    """P3: the same stream, and the BACKGROUND task comes last."""
    stream = [task(f"n{second:02d}", second * 1000, 1000) for second in range(30)]
    assert starts(task("b", 0, 1000, priority=0), *stream, slots=1, order="strict")[-1] == (30_000, "b")


@pytest.mark.parametrize(
    ("base", "cap", "waited", "effective"),
    [(0, 100, 4, 0), (0, 100, 5, 10), (95, 100, 5, 100), (0, None, 60, 120), (50, 60, 50, 60), (80, 60, 50, 80)],
)
def test_aging_gains_whole_steps_up_to_its_cap(base, cap, waited, effective):
    """P4: the gain never lifts above the cap and never lowers below the base."""
    assert Aging(cap=cap).effective(base, waited * SECOND) == effective


def test_promotions_count_only_steps_that_lifted():
    """V2: with a cap of 60 a NORMAL task gains one step, however long it waits."""
    assert Aging(cap=60).promotions(50, 50 * SECOND) == 1
    assert Aging(boost=7, cap=60).promotions(50, 50 * SECOND) == 2


def test_higher_priority_first_then_submission_order():
    """P2, S1: three LOW and two HIGH submitted together on two slots."""
    tasks = [task(name, priority=20) for name in "abc"] + [task(name, priority=80) for name in "de"]
    assert starts(*tasks, slots=2) == [(0, "d"), (0, "e"), (10, "a"), (10, "b"), (20, "c")]


def test_tasks_woken_together_enter_in_order_of_submission():
    """P2: whatever their ids."""
    tasks = [task("root"), *(task(name, after=["root"]) for name in ["b", "a", "B"])]
    assert starts(*tasks, slots=1) == [(0, "root"), (10, "b"), (20, "a"), (30, "B")]


def test_a_demand_above_a_soft_limit_starts_when_nothing_holds_a_slot():
    """B2: first in order, even though a later one would fit."""
    tasks = [task("first", ram=5), task("big", 1, ram=50, priority=80), task("late", 2, ram=5)]
    assert starts(*tasks, ram=10) == [(0, "first"), (2, "late"), (12, "big")]


def test_backfill_none_holds_the_rest_back_until_the_first_fits():
    """B5: the later small one waits too; the one behind a scope gate is passed over."""
    tasks = [task("a", cpu=2), task("big", 1, cpu=3, priority=80), task("small", 2, cpu=1)]
    assert starts(*tasks, cpu=3, backfill="none") == [(0, "a"), (10, "big"), (20, "small")]
    assert starts(*tasks, cpu=3) == [(0, "a"), (2, "small"), (12, "big")]


def test_displace_drops_the_newest_of_the_lowest_priority_with_its_descendants():
    """D2: `c` is the newest of priority 0; its child goes with it, then the newcomer enters."""
    tasks = [
        task("run", priority=100),
        task("b", 1, priority=0),
        task("c", 1, priority=0),
        task("child", 1, after=["c"]),
        task("new", 1, priority=50),
    ]
    assert events(*tasks, slots=1, queue_limit=3, overflow="displace")[:4] == [
        "0 start run",
        "1 drop c",
        "1 cancel child",
        "10 finish run",
    ]


def test_displace_spares_what_the_newcomer_depends_on():
    """D2: the only one of lower priority is its own dependency, so the newcomer is dropped."""
    tasks = [task("run"), task("low", 1, priority=0), task("new", 1, priority=80, after=["low"])]
    assert "1 drop new" in events(*tasks, slots=1, queue_limit=1, overflow="displace")


def test_queue_limit_counts_before_anything_of_the_instant_starts():
    """D1: the second of the same instant is dropped though slots are free."""
    assert events(task("a"), task("b"), queue_limit=1)[:2] == ["0 drop b", "0 start a"]


def test_max_wait_expires_after_one_last_chance():
    """D3, C0: at 10 ms the slot is free, so `a` starts; `b` does not and is dropped."""
    tasks = [task("run"), task("a", max_wait_ms=10), task("b", max_wait_ms=10)]
    assert events(*tasks, slots=1)[1:4] == ["10 finish run", "10 start a", "10 drop b"]


def test_failure_cancels_all_descendants_in_submission_order():
    """G3."""
    tasks = [task("x", outcome="error"), task("y", after=["x"]), task("z", after=["y"]), task("w", after_ended=["z"])]
    assert events(*tasks) == [
        "0 start x",
        "10 finish x",
        "10 cancel y",
        "10 cancel z",
        "10 start w",
        "20 finish w",
    ]


def test_a_retried_task_enters_at_the_back_and_its_dependents_follow():
    """T7: two attempts fail, the third succeeds, backoff doubles (3 ms, then 6 ms)."""
    tasks = [task("x", retry=2, fails=2, backoff_ms=3), task("y", after=["x"])]
    assert events(*tasks) == [
        "0 start x",
        "10 finish x",
        "13 start x",
        "23 finish x",
        "29 start x",
        "39 finish x",
        "39 start y",
        "49 finish y",
    ]


def test_a_completion_at_the_instant_of_its_timeout_is_a_success():
    """T6, C0."""
    assert run(task("x", timeout_ms=10))["final"] == {"x": "success"}
    assert run(task("x", timeout_ms=9))["final"] == {"x": "timeout"}


def test_a_parked_body_keeps_its_slot_and_runs_its_remaining_time():
    """X2: paused from 4 to 9 ms, so it ends at 15 ms, and the other waits all that time."""
    ops = [{"at_ms": 4, "do": "pause", "id": "x"}, {"at_ms": 9, "do": "resume", "id": "x"}]
    assert events(task("x"), task("y", 1), ops=ops, slots=1)[1:3] == ["15 finish x", "15 start y"]


def test_ops_that_do_not_apply_change_nothing():
    """X4."""
    ops = [{"at_ms": 10, "do": do, "id": "x"} for do in ("pause", "resume", "cancel")]
    assert events(task("x"), ops=ops) == ["0 start x", "10 finish x"]


def test_refusals_leave_nothing_behind():
    """T3, T9: an id is taken by acceptance only; a dependency on the refused is refused."""
    tasks = [
        task("x", cpu=9),
        task("y", after=["x"]),
        task("x", 1),
        task("x", 2),
        task("y", 3, after=["x"]),
    ]
    assert events(*tasks, cpu=4) == [
        "0 reject x",
        "0 reject y",
        "1 start x",
        "2 reject x",
        "11 finish x",
        "11 start y",
        "21 finish y",
    ]


def test_when_busy_reject_counts_holders_and_ready():
    """S3: one slot: the second of the same instant is refused; a QUEUED one would not have counted."""
    assert events(task("a"), task("b"), slots=1, when_busy="reject")[0] == "0 reject b"


def test_waits_divide_by_cause():
    """V7: `slot_higher` while HIGH runs, `slot` while NORMAL runs, `cpu` once dispatch has got to it."""
    model = Model(Limits(slots=1), hard={"cpu": 2}, order=Strict())
    high = model.submit(0, model.root, "high", 80, {"cpu": 1})
    low = model.submit(0, model.root, "low", 20, {"cpu": 2})
    normal = model.submit(0, model.root, "normal", 50)
    assert model.dispatch(0) == [high]
    model.ended(5, high, "success")
    assert model.dispatch(5) == [normal]
    model.ended(8, normal, "success")
    assert model.dispatch(8) == [low]
    assert low.waits == {"slot_higher": 8}
    assert low.starved_ns == 8
    assert normal.waits == {"slot_higher": 5}


def test_a_gate_stays_the_cause_until_it_opens():
    """V7: cpu closed when dispatch got there; later the slots run out first, but cpu has not opened for it."""
    model = Model(Limits(slots=2), hard={"cpu": 2}, order=Strict())
    holder = model.submit(0, model.root, "holder", 50, {"cpu": 2})
    waiting = model.submit(0, model.root, "waiting", 50, {"cpu": 1})
    model.dispatch(0)
    filler = model.submit(4, model.root, "filler", 50)
    model.dispatch(4)
    model.ended(10, holder, "success")
    taker = model.submit(10, model.root, "taker", 80, {"cpu": 1})
    assert model.dispatch(10) == [taker]
    model.ended(12, filler, "success")
    assert model.dispatch(12) == [waiting]
    assert waiting.waits == {"cpu": 10, "slot_higher": 2}


def test_held_back_is_its_own_cause():
    """B5, V7."""
    model = Model(hard={"cpu": 2}, backfill="none")
    model.submit(0, model.root, "a", demand={"cpu": 1})
    model.submit(0, model.root, "b", demand={"cpu": 2})
    late = model.submit(0, model.root, "c", demand={"cpu": 1})
    model.dispatch(0)
    assert model.wait_cause(late) == "held_back"


def test_starvation_is_reported_once():
    """V2: READY under HIGH for 30 s."""
    model = Model(Limits(slots=1), order=Strict())
    model.submit(0, model.root, "high", 80)
    model.submit(0, model.root, "low", 20)
    model.dispatch(0)
    for now in (29 * SECOND, 30 * SECOND, 31 * SECOND):
        model.fire(now)
    assert [(event[0], event[4]) for event in model.events if event[1] == "TASK_STARVED"] == [(30 * SECOND, "low")]


def test_dispose_ends_children_first_and_waits_for_bodies():
    """O4, O7."""
    model = Model()
    outer = model.open_scope(0, "outer")
    inner = model.open_scope(0, "inner", outer)
    body = model.submit(0, inner, "body")
    model.dispatch(0)
    queued = model.submit(1, outer, "queued", after=["inner/body"])
    outside = model.submit(1, model.root, "outside", after=[body])
    model.events.clear()
    model.dispose(2, outer)
    assert [(kind, name) for _, kind, _, _, name, _ in model.events] == [
        ("SCOPE_DISPOSING", None),
        ("SCOPE_DISPOSING", None),
        ("TASK_ABORT_ASKED", "body"),
        ("TASK_CANCELLED", "queued"),
        ("TASK_CANCELLED", "outside"),
    ]
    assert (queued.cause, outside.cause, outside.roots) == ("scope_disposed", "dependency", {"body"})
    model.ended(3, body, "success")
    assert (body.outcome, body.cause) == ("aborted", "scope_disposed")
    assert (inner.state, outer.state) == ("DISPOSED", "DISPOSED")


def test_a_batch_is_all_or_nothing():
    """D6."""
    model = Model(Limits(queue_limit=1))
    with pytest.raises(Refused):
        model.submit_many(0, [Submission(model.root, "a"), Submission(model.root, "b", after=["a"])])
    assert model.tasks == []
    assert model.events == [(0, "TASK_DROPPED", "", None, "b", {"cause": "queue_full"})]


def test_suspending_gates_child_scopes():
    """O1, O2: only from RUNNING; pending ones stay pending, new ones are refused."""
    model = Model()
    outer = model.open_scope(0, "outer")
    inner = model.open_scope(0, "inner", outer, Limits(slots=1))
    with pytest.raises(Illegal):
        model.suspend(0, outer)
    first = model.submit(0, inner, "first")
    second = model.submit(0, inner, "second")
    assert model.dispatch(0) == [first]
    model.suspend(0, outer)
    model.ended(1, first, "success")
    assert model.dispatch(1) == []
    assert model.wait_cause(second) == "scope_state"
    with pytest.raises(Refused):
        model.submit(1, inner, "third")
    model.resume_scope(2, outer)
    assert model.dispatch(2) == [second]


def test_overlap_queue_holds_one_trigger_behind_the_running_iteration():
    """R2, R4: ticks at 10, 20, 30 with a body from 10 to 35."""
    model = Model()
    model.add_periodic(0, model.root, 10, "p", overlap="queue")
    model.fire(10)
    (first,) = model.dispatch(10)
    for now in (20, 30):
        model.fire(now)
        assert model.dispatch(now) == []
    model.ended(35, first, "success")
    (second,) = model.dispatch(35)
    assert second.waits == {"overlap": 15}
    skipped = [(event[0], event[5]["code"]) for event in model.events if event[1] == "PERIODIC_SKIPPED"]
    assert skipped == [(30, "SRS-E-RUN-003")]


def test_a_stall_is_one_trigger_that_says_how_many_it_missed():
    """R2: planned for 10, fired at 37: the ticks of 20 and 30 are missed, the next is at 40."""
    model = Model()
    model.add_periodic(0, model.root, 10, "p")
    model.fire(37)
    assert model.next_deadline() == 40
    ticks = [event[5] for event in model.events if event[1] == "PERIODIC_TICK"]
    assert ticks == [{"missed": 2}]


def test_error_of_the_last_attempt_is_final():
    """T7."""
    model = Model(policy=Policy(retry=Retry(1)))
    first = model.submit(0, model.root, "x")
    model.dispatch(0)
    model.ended(1, first, "error", "exception")
    (second,) = model.dispatch(1)
    assert first.latest() is second
    model.ended(2, second, "error", "exception")
    assert second.retried_as is None
