"""The simulator's options and its result: what may be set, and what is told in numbers."""

import pytest

from simulated import events, op, simulate, task
from whywait.errors import ConfigError
from whywait.kernel.limits import Retry
from whywait.kernel.order import Aging, Strict
from whywait.simulation.simulation import Simulation
from whywait.simulation.workload import Workload


def test_options_win_over_the_file():
    workload = {"config": {"slots": 1, "order": "aging"}, "tasks": [task("x"), task("y")]}
    run = Simulation(workload, slots=None, order="strict").run().summary["run"]
    assert (run["slots"], run["order"]) == (None, "strict")
    assert Simulation(workload, order=Aging(every=2.0, boost=7, cap=None)).run().summary["run"]["every_ms"] == 2000


def test_options_are_in_seconds_and_take_objects():
    """T6, P3."""
    tasks = [task("x", 0, 5000, outcome="error", fails=1), task("y", 0, 9000)]
    options = {"timeout": 8, "retry": Retry(1, backoff=0.5), "order": Strict(), "ram": "1GB", "max_wait": "1h"}
    assert events(*tasks, options=options) == [
        (0, "start", "x"),
        (0, "start", "y"),
        (5000, "finish", "x"),
        (5500, "start", "x"),
        (8000, "finish", "y"),
        (10_500, "finish", "x"),
    ]


def test_options_of_real_bodies_are_accepted_and_mean_nothing():
    assert simulate(task("x"), options={"pause_timeout": 1.5, "grace": 2.0, "engine": None}).final == {"x": "success"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"slot": 2}, 'slot: unknown key; did you mean "slots"'),
        ({"slots": 0}, "slots: 0 is not allowed"),
        ({"order": "fifo"}, 'order: "fifo" is not an order'),
        ({"retry": -1}, "retry: -1 is not allowed"),
        ({"timeout": "soon"}, 'timeout: "soon" is not a duration'),
        ({"resources": {"slot": 3}}, "config: a resource cannot be named 'slot'"),
        ({"soft": {"x": 1}, "resources": {"x": 1}}, "config: resource 'x' is both hard and soft"),
        ({"resources": {"ram": 1}}, 'resources: "ram" has a key of its own'),
    ],
)
def test_a_wrong_option_is_named(options, told):
    with pytest.raises(ConfigError) as refusal:
        Simulation({"tasks": []}, **options)
    assert str(refusal.value).startswith(told)


def test_a_wrong_workload_is_refused_before_anything_runs():
    with pytest.raises(ConfigError, match=r"tasks\[0\]\.after"):
        Simulation({"tasks": [task("x", after=["nowhere"])]})


def test_a_simulation_can_be_run_again_and_a_checked_workload_used_again():
    """V3: the same commands and times give the same events."""
    workload = Workload({"config": {"slots": 1}, "tasks": [task("x"), task("y", retry=1, fails=1)]})
    simulation = Simulation(workload)
    assert simulation.run().to_dict() == simulation.run().to_dict() == Simulation(workload).run().to_dict()


def test_progress_is_told_now_and_then():
    told = []
    tasks = [task(f"t{number}", number // 100) for number in range(10_000)]
    Simulation({"tasks": tasks}, progress=lambda done, total: told.append((done, total))).run()
    assert len(told) >= 4
    assert told == sorted(told)
    assert all(0 < done <= total == 20_000 for done, total in told)


def test_an_empty_workload_gives_an_empty_result():
    result = simulate().to_dict()
    assert result["events"] == []
    assert result["final"] == {}
    assert result["summary"]["makespan_ms"] == 0


def test_events_are_lists_and_final_is_in_file_order():
    result = simulate(task("b"), task("a")).to_dict()
    assert result["events"][0] == [0, "start", "b"]
    assert list(result["final"]) == ["b", "a"]
    assert set(result) == {"events", "final", "summary"}


def test_the_summary_of_a_small_run_is_exact():
    """V2, V4, V7: one slot; low is READY from 0 to 30 while high (from 10 on) holds the slot for 20 ms."""
    tasks = [task("first", 0, 10), task("low", 0, 10, priority=20, ram=5), task("high", 5, 20, priority=80)]
    summary = simulate(*tasks, slots=1, ram=10, starvation_timeout_ms=25).summary
    assert summary["makespan_ms"] == 40
    assert summary["peak_running"] == 1
    assert summary["utilisation"] == {
        "slots": {"mean": 1.0, "peak": 1, "limit": 1, "share": 1.0},
        "ram": {"mean": 1.25, "peak": 5, "limit": 10, "share": 0.125},
    }
    assert summary["waited_for_ms"] == {"slot": 5, "slot_higher": 30}
    assert summary["ready_wait_ms"]["all"] == {"tasks": 3, "p50": 5, "p90": 30, "p99": 30, "max": 30}
    assert list(summary["ready_wait_ms"]["by_priority"]) == ["80", "50", "20"]
    assert summary["starved"] == {
        "now": 0,
        "longest_ms": 30,
        "total_ms": 30,
        "tasks": 1,
        "timeout_ms": 25,
        "past_timeout": 1,
        "worst": [{"id": "low", "attempt": 1, "priority": 20, "ms": 30}],
    }


def test_the_makespan_begins_with_the_first_submission():
    assert simulate(task("x", 1_700_000_000_000)).summary["makespan_ms"] == 10


def test_waiting_without_a_start_counts_too():
    """V1, V7: a cancelled and a dropped task have waited."""
    tasks = [task("runs", 0, 100), task("cancelled"), task("dropped", max_wait_ms=30)]
    summary = simulate(*tasks, ops=[op(20, "cancel", "cancelled")], slots=1).summary
    assert summary["waited_for_ms"] == {"slot": 50}


def test_quantiles_are_exact():
    """V4: of 100 waits of 0, 10, ... 990 ms the median is the 50th."""
    summary = simulate(*(task(f"t{number:03d}") for number in range(100)), slots=1).summary
    assert summary["ready_wait_ms"]["all"] == {"tasks": 100, "p50": 490, "p90": 890, "p99": 980, "max": 990}


def test_a_parked_body_holds_what_it_holds_to_the_end():
    """X2."""
    summary = simulate(task("x", cpu=2), task("y", 0, 20), ops=[op(5, "pause", "x")], cpu=4, slots=2).summary
    assert summary["utilisation"]["slots"]["mean"] == 2.0
    assert summary["utilisation"]["cpu"]["mean"] == 2.0
