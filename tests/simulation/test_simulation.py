"""The simulator: hand-computed cases of the rules in virtual time."""

import pytest

from simulated import events, op, simulate, task


def starts(*args, **kwargs):
    return [(ms, name) for ms, word, name in events(*args, **kwargs) if word == "start"]


def test_each_outcome_has_its_event_and_its_final_word():
    """T2: finished, cancelled, dropped and rejected, each under its own word."""
    tasks = [
        task("success"),
        task("error", outcome="error"),
        task("timeout", timeout_ms=5),
        task("cancelled", 0, 99),
        task("dependency", after=["error"]),
        task("busy", 0, 50, scope="narrow"),
        task("max_wait", 1, scope="narrow", max_wait_ms=3),
        task("displaced", 6, scope="narrow", priority=0),
        task("pending", 6, scope="narrow", priority=90),
        task("queue_full", 6, scope="narrow", priority=0),
        task("infeasible", 6, cpu=9),
    ]
    narrow = {"slots": 1, "queue_limit": 1, "overflow": "displace"}
    ops = [op(7, "cancel", "cancelled"), op(7, "pause", "pending")]
    result = simulate(*tasks, ops=ops, cpu=4, scopes={"narrow": narrow})
    assert {name: word for _, word, name in result.events} == {
        "success": "finish", "error": "finish", "timeout": "finish", "cancelled": "cancel", "dependency": "cancel",
        "busy": "finish", "max_wait": "drop", "displaced": "drop", "queue_full": "drop", "infeasible": "reject",
    }  # fmt: skip
    assert result.final == {
        "success": "success", "error": "error", "timeout": "timeout", "cancelled": "aborted", "dependency": "aborted",
        "busy": "success", "max_wait": "rejected", "displaced": "rejected", "pending": "pending",
        "queue_full": "rejected", "infeasible": "rejected",
    }  # fmt: skip


def test_slots_default_to_unbounded():
    """S1: the simulator reads no environment."""
    assert {ms for ms, _ in starts(*(task(f"t{number}") for number in range(50)))} == {0}


def test_completions_come_in_start_order():
    """C0, X2: one that was parked meanwhile still completes at its rank."""
    tasks = [task("first", 0, 10), task("second", 4, 11)]
    ops = [op(2, "pause", "first"), op(7, "resume", "first")]
    assert events(*tasks, ops=ops)[2:] == [(15, "finish", "first"), (15, "finish", "second")]


def test_one_instant_goes_completions_timers_submissions_ops_dispatch():
    """C0: all five at 10 ms, in this order."""
    tasks = [
        task("done", 0, 10),
        task("slow", 0, 50, timeout_ms=10),
        task("dup", 0, 50),
        task("new", 10, 5),
        task("dup", 10, 5),
        task("doomed", 10, 5),
    ]
    told = events(*tasks, ops=[op(10, "cancel", "dup"), op(10, "cancel", "doomed")], slots=3)
    assert [event for event in told if event[0] == 10] == [
        (10, "finish", "done"),
        (10, "finish", "slow"),
        (10, "reject", "dup"),
        (10, "cancel", "dup"),
        (10, "cancel", "doomed"),
        (10, "start", "new"),
    ]


def test_submissions_of_one_instant_keep_the_order_of_the_file_even_if_times_go_back():
    """C0."""
    tasks = [task("late", 5), task("b", 0), task("a", 0)]
    assert starts(*tasks, slots=1) == [(0, "b"), (10, "a"), (20, "late")]


def test_an_error_aborts_its_scope_at_that_instant():
    """O10: what runs there is cancelled, what waits there too, and later tasks are refused; others go on."""
    tasks = [
        task("bad", 0, 5, scope="s", outcome="error"),
        task("runs", 0, 50, scope="s"),
        task("waits", 1, scope="s"),
        task("late", 6, scope="s"),
        task("other", 0, 50),
    ]
    scopes = {"s": {"slots": 2, "on_error": "abort"}}
    told = events(*tasks, scopes=scopes)[3:]
    assert told[:3] == [(5, "finish", "bad"), (5, "cancel", "runs"), (5, "cancel", "waits")]
    assert told[3:] == [(6, "reject", "late"), (50, "finish", "other")]


def test_every_attempt_starts_and_finishes_under_the_same_id():
    """T7: fails=2 makes the first two attempts fail; the backoff doubles."""
    result = simulate(task("x", outcome="error", retry=3, fails=2, backoff_ms=5), task("y", after=["x"]))
    assert list(result.events) == [
        (0, "start", "x"),
        (10, "finish", "x"),
        (15, "start", "x"),
        (25, "finish", "x"),
        (35, "start", "x"),
        (45, "finish", "x"),
        (45, "start", "y"),
        (55, "finish", "y"),
    ]
    assert result.final == {"x": "success", "y": "success"}
    assert result.summary["attempts"] == 4
    assert result.summary["waited_for_ms"] == {"backoff": 15, "dependency": 45}


def test_a_running_task_ends_at_its_timeout_and_takes_its_descendants_along():
    """T6, G3: its own event first, then the descendants in submission order; no retry of a timeout."""
    tasks = [task("x", 0, 50, timeout_ms=20, retry=3), task("b", after=["x"]), task("a", after=["b"])]
    result = simulate(*tasks)
    assert list(result.events)[1:] == [(20, "finish", "x"), (20, "cancel", "b"), (20, "cancel", "a")]
    assert result.final == {"x": "timeout", "b": "aborted", "a": "aborted"}


def test_a_task_that_completes_at_the_instant_of_its_timeout_has_succeeded():
    """C0, T6."""
    assert simulate(task("x", 0, 20, timeout_ms=20)).final == {"x": "success"}


def test_a_dependency_must_have_been_accepted():
    """G1, T3: not yet submitted and refused are both a reject."""
    tasks = [
        task("early", after=["x"]),
        task("x", cpu=9),
        task("after", 1, after=["x"]),
        task("then", 2, after=["after"]),
    ]
    result = simulate(*tasks, cpu=1)
    assert [word for _, word, _ in result.events] == ["reject"] * 4
    assert result.summary["rejects"] == {"unknown_dependency": 3, "infeasible": 1}


def test_ids_are_global_over_scopes():
    """T9, G1: taken in one scope, refused in another; dependencies cross scopes."""
    tasks = [task("x", scope="a"), task("x", scope="b"), task("y", scope="b", after=["x"])]
    result = simulate(*tasks)
    assert next(iter(result.events)) == (0, "reject", "x")
    assert result.final == {"x": "success", "y": "success"}
    assert result.summary["rejects"] == {"duplicate": 1}


def test_the_id_of_a_refused_task_can_be_used_again():
    """T3: nothing of a refused submission stays behind."""
    tasks = [task("x", cpu=9), task("x", 5), task("x", 6)]
    result = simulate(*tasks, cpu=1)
    assert list(result.events) == [(0, "reject", "x"), (5, "start", "x"), (6, "reject", "x"), (15, "finish", "x")]
    assert result.final == {"x": "success"}


def test_a_failure_is_reported_with_what_it_brought_down():
    """G3: the root cause is named."""
    tasks = [task("root", outcome="error", retry=1), task("a", after=["root"]), task("b", after=["a"]), task("fine")]
    failures = simulate(*tasks).summary["failures"]
    assert failures == {
        "tasks": 1,
        "first": [{"id": "root", "outcome": "error", "cause": "exception", "attempts": 2, "brought_down": 2}],
    }


def test_a_drop_may_let_others_start_in_the_same_instant():
    """D3, B5, C0: dispatch again after the expiry."""
    tasks = [task("runs", 0, 50, cpu=2), task("big", cpu=4, max_wait_ms=20), task("small", 1, cpu=1)]
    assert (20, "small") in starts(*tasks, slots=2, cpu=4, backfill="none")


def test_a_running_task_that_is_cancelled_ends_at_that_instant():
    """X3: the slot is free at once, because a simulated body obeys at once."""
    tasks = [task("x", 0, 50), task("y", after=["x"]), task("z")]
    assert events(*tasks, ops=[op(5, "cancel", "x")], slots=1) == [
        (0, "start", "x"),
        (5, "cancel", "x"),
        (5, "cancel", "y"),
        (5, "start", "z"),
        (15, "finish", "z"),
    ]


def test_a_paused_body_keeps_its_slot_and_its_remaining_time():
    """X1, X2, T4."""
    tasks = [task("x", 0, 10), task("y", 0, 10)]
    assert events(*tasks, ops=[op(4, "pause", "x"), op(100, "resume", "x")], slots=1) == [
        (0, "start", "x"),
        (106, "finish", "x"),
        (106, "start", "y"),
        (116, "finish", "y"),
    ]


def test_ops_that_do_not_apply_change_nothing():
    """X4: before the task exists, after it has ended, twice, or on one that was refused."""
    tasks = [task("x", 5), task("refused", cpu=2)]
    ops = [
        op(0, "cancel", "x"), op(0, "pause", "refused"), op(6, "resume", "x"), op(7, "pause", "x"), op(8, "pause", "x"),
        op(9, "resume", "x"), op(9, "resume", "x"), op(50, "pause", "x"), op(50, "cancel", "x"), op(50, "resume", "x"),
    ]  # fmt: skip
    assert events(*tasks, ops=ops, cpu=1) == [(0, "reject", "refused"), (5, "start", "x"), (17, "finish", "x")]


def test_a_task_that_nobody_resumes_stays_pending_and_the_run_ends():
    """X2, V2: what it keeps from running is pending too, however it starves."""
    tasks = [task("x", priority="high"), task("y"), task("q"), task("r", after=["q"])]
    result = simulate(*tasks, ops=[op(1, "pause", "x"), op(1, "pause", "q")], slots=1)
    assert result.final == dict.fromkeys("xyqr", "pending")
    assert result.summary["outcomes"]["pending"] == 4


def test_an_op_follows_a_retry_to_the_present_attempt():
    """T7, X3."""
    tasks = [task("x", outcome="error", retry=5)]
    assert simulate(*tasks, ops=[op(15, "cancel", "x")]).final == {"x": "aborted"}


def periodic(**fields):
    return {"id": "p", "every_ms": 10, "duration_ms": 3, "until_ms": 40, **fields}


def test_ticks_are_ordinary_tasks_until_the_periodic_is_switched_off():
    """R2, R3, R5: ticks at 10, 20, 30; the one at 40 comes too late."""
    result = simulate(periodics=[periodic()])
    assert [(ms, word) for ms, word, _ in result.events] == [
        (10, "start"), (13, "finish"), (20, "start"), (23, "finish"), (30, "start"), (33, "finish"),
    ]  # fmt: skip
    assert result.summary["iterations"] == 3
    assert set(result.final.values()) == {"success"}


@pytest.mark.parametrize(
    ("overlap", "begun", "skips"),
    [
        ("skip", [10, 40], {"SRS-E-RUN-002": 4}),
        ("queue", [10, 35], {"SRS-E-RUN-003": 3}),
        ("parallel", [10, 20, 35, 45], {"SRS-E-RUN-003": 1}),
    ],
)
def test_the_overlap_policy_decides_what_becomes_of_a_tick(overlap, begun, skips):
    """R4: with iterations of 25 ms every 10 ms; at 65 ms the pending trigger is dropped with the periodic (R5)."""
    result = simulate(periodics=[periodic(duration_ms=25, until_ms=65, overlap=overlap, max_parallel=2)])
    assert [ms for ms, word, _ in result.events if word == "start"] == [*begun, *([60] if overlap != "skip" else [])]
    assert result.summary["skips"] == skips


def test_jitter_comes_from_the_seed_alone():
    """R2, R7, V3: the same seed gives the same run, another seed another one; the grid does not drift."""
    spec = periodic(every_ms=1000, until_ms=20_000, jitter=0.3)

    def run(seed):
        return events(periodics=[spec], options={"seed": seed})

    assert run(1) == run(1)
    assert run(1) != run(2)
    ticks = [ms for ms, word, _ in run(1) if word == "start"]
    assert all(abs(ms - 1000 * number) <= 300 for number, ms in enumerate(ticks, 1))
    assert any(isinstance(ms, float) for ms in ticks)
