"""S and B: limits that hold at every instant, seen from inside the bodies."""

import pytest

from patience import PATIENCE_S, until
from whywait import Call, Strict
from whywait.errors import Infeasible, Rejected


def results(handles):
    return [handle.result(PATIENCE_S) for handle in handles]


def test_as_many_run_as_there_are_slots_and_never_more(make, body, stage, promises):
    """S1: all slots are filled, none is exceeded; an engine without parallelism has one slot, whatever is asked."""
    width = min(3, promises.crowd)
    authority = make(slots=3)
    results([authority.submit(body.meet, stage, "room", 1, width) for _ in range(12)])
    assert stage.peak("room") == width


def test_without_slots_everything_starts_at_once(make, body, stage, promises):
    """S1: `slots=None` is unbounded, except for an engine that runs one after the other."""
    authority = make(slots=None)
    results([authority.submit(body.meet, stage, "room", 1, promises.crowd) for _ in range(promises.crowd)])
    assert stage.peak("room") == promises.crowd


def test_the_limit_holds_with_retries_and_failures_in_between(make, body, stage, promises):
    """S1: a body that fails gives its slot back once, whatever follows."""
    authority = make(slots=2)
    handles = []
    for i in range(8):
        handles.append(authority.submit(body.meet, stage, "room", 1, 1))
        handles.append(authority.submit(body.flaky, stage, f"f{i}", 1, retry=1))
        authority.submit(body.fail, "x")
    results(handles)
    assert stage.peak("room") <= min(2, promises.crowd)
    until(lambda: authority.stats()["active"] == 0)
    assert authority.snapshot().slots.free == authority.snapshot().slots.limit


def test_the_limits_of_scope_and_authority_both_hold(make, body, stage, promises):
    """S2: each at every instant."""
    width = min(3, promises.crowd)
    authority = make(slots=3)
    narrow, other = authority.scope("narrow", slots=1), authority.scope("other")
    handles = []
    for _ in range(6):
        handles.append(narrow.submit(body.meet, stage, "narrow", 1, 1))
        handles.append(other.submit(body.meet, stage, "both", 1, min(2, width)))
        handles.append(authority.submit(body.meet, stage, "both", 1, min(2, width)))
    results(handles)
    assert stage.peak("narrow") == 1
    assert stage.peak("both") <= width


def test_a_full_scope_does_not_hold_up_others(make, body, stage, promises):
    """S2, B5: a task that its scope's slots stop is passed over."""
    authority = make(slots=2)
    narrow = authority.scope("narrow", slots=1)
    first = narrow.submit(body.hold, stage, "a", "gate")
    second = narrow.submit(body.note, stage, "b", priority="critical")
    stage.wait("a")
    other = authority.submit(body.note, stage, "c")
    if promises.crowd > 1:
        other.result(PATIENCE_S)
        assert second.state == "READY"
        assert not stage.has("b")
    stage.mark("gate")
    results([first, second, other])


def test_a_task_without_a_slot_runs_while_all_are_taken(make, body, stage, promises):
    """S6: it counts as active and frees nothing for others; an engine that runs one after the other runs it later."""
    authority = make(slots=1)
    first = authority.submit(body.hold, stage, "a", "gate")
    stage.wait("a")
    second = authority.submit(body.value, 2)
    beside = authority.submit(body.hold, stage, "b", "gate", slot=False)
    until(lambda: authority.stats()["active"] == 2)
    if promises.crowd > 1:
        stage.wait("b")
    assert second.state == "READY"
    stage.mark("gate")
    results([first, second, beside])
    assert [view.slot for view in authority.snapshot().running] == []


def test_when_busy_reject_refuses_what_would_have_to_wait(make, body, stage):
    """S3: slot holders and READY tasks fill the slots; the refusal names the check."""
    authority = make(when_busy="reject")
    first = authority.submit(body.hold, stage, "a", "gate", id="first")
    stage.wait("a")
    with pytest.raises(Rejected, match="slot") as caught:
        authority.submit(body.value)
    assert (caught.value.check, caught.value.cause) == ("when_busy", "busy")
    stage.mark("gate")
    assert first.result(PATIENCE_S) == "a"
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1


def test_a_scope_has_a_limited_number_of_tasks_in_its_life(authority, body, stage):
    """S4, S5: `max_spawn` counts what was accepted, those of child scopes too, retries not."""
    scope = authority.scope("s", max_spawn=3)
    handles = [scope.submit(body.flaky, stage, "a", 1, retry=1), scope.submit(body.value)]
    handles.append(scope.scope("child").submit(body.value))
    with pytest.raises(Rejected, match="max_spawn") as caught:
        scope.submit(body.value)
    assert caught.value.cause == "spawn_limit"
    with pytest.raises(Rejected):
        authority.get_scope("child").submit(body.value)
    results(handles)


def test_a_childs_tasks_count_against_its_ancestors(make, body, stage, promises):
    """S5: the parent's slots hold for all below it together."""
    authority = make(slots=None)
    parent = authority.scope("parent", slots=2)
    children = [parent.scope(f"child{i}", slots=2) for i in range(3)]
    handles = [scope.submit(body.meet, stage, "room", 1, min(2, promises.crowd)) for scope in children * 3]
    results([*handles, parent.submit(body.meet, stage, "room", 1, 1)])
    assert stage.peak("room") == min(2, promises.crowd)


def test_retries_pass_a_full_queue(make, body, stage):
    """S5: a retry is exempt from `queue_limit` and `when_busy`."""
    authority = make(queue_limit=1)
    flaky = authority.submit(body.flaky, stage, "a", 2, retry=2)
    assert flaky.result(PATIENCE_S) == 3
    busy = make(when_busy="reject")
    assert busy.submit(body.flaky, stage, "b", 2, retry=2).result(PATIENCE_S) == 3


def test_cpu_is_never_exceeded(make, body, stage, promises):
    """B1: what runs demands no more than the cap together, and what fits runs."""
    authority = make(slots=None, cpu=4)
    demands = [3, 1, 2, 2, 4, 1, 1, 1, 1, 3]
    together = min(2, promises.crowd)
    results([authority.submit(body.meet, stage, "cpu", cpu, together, cpu=cpu) for cpu in demands])
    assert stage.peak("cpu") <= 4
    assert stage.peak("cpu") == 4


def test_a_demand_above_a_hard_cap_is_refused(make, body):
    """B1, B3: it could never start; so is a demand of something that the budget does not have."""
    authority = make(cpu=2, resources={"licence": 1})
    for demand in ({"cpu": 3}, {"resources": {"licence": 2}}, {"resources": {"moon": 1}}):
        with pytest.raises(Infeasible) as caught:
            authority.submit(body.value, **demand)
        assert caught.value.cause == "infeasible"
    assert authority.stats()["submitted"] == 0


def test_a_soft_limit_is_exceeded_only_by_one_that_runs_alone(make, body, stage, promises):
    """B2: a demand above the limit is no deadlock; it runs when nothing else does."""
    authority = make(slots=None, ram="10MB")
    small = [authority.submit(body.hold, stage, f"small{i}", "gate", ram="4MB") for i in range(min(2, promises.crowd))]
    for i in range(len(small)):
        stage.wait(f"small{i}")
    huge = authority.submit(body.hold, stage, "huge", "end", ram="1GB")
    assert huge.state == "READY"
    stage.mark("gate")
    results(small)
    stage.wait("huge")
    late = authority.submit(body.note, stage, "late", ram="1MB")
    free = authority.submit(body.value, 1)
    if promises.crowd > 1:
        assert free.result(PATIENCE_S) == 1
    assert late.state == "READY"
    stage.mark("end")
    results([huge, late, free])


def test_named_resources_are_hard_or_soft(make, body, stage, promises):
    """B3: a hard one is never exceeded, a soft one only by a task that runs alone."""
    authority = make(slots=None, resources={"licence": 2}, soft={"disk": "1GB"})
    together = min(2, promises.crowd)
    handles = [authority.submit(body.meet, stage, "licence", 1, together, resources={"licence": 1}) for _ in range(6)]
    handles.append(authority.submit(body.value, resources={"disk": "2GB"}))
    results(handles)
    assert stage.peak("licence") == together


def test_a_task_is_not_gated_by_what_it_does_not_use(make, body, stage, promises):
    """B4: while the budget is used up, tasks without a demand run."""
    authority = make(slots=2, cpu=1, ram="1MB")
    first = authority.submit(body.hold, stage, "a", "gate", cpu=1, ram="1MB")
    stage.wait("a")
    free = authority.submit(body.value, 1)
    if promises.crowd > 1:
        assert free.result(PATIENCE_S) == 1
    else:
        assert free.why().primary == "slot"
    stage.mark("gate")
    results([first, free])


@pytest.mark.parametrize("backfill", ["greedy", "none"])
def test_what_does_not_fit_is_passed_over_or_holds_the_rest_back(make, body, stage, promises, backfill):
    """B5: greedy lets later ones start; none keeps them behind the first that only the budget stops."""
    authority = make(slots=3, cpu=2, backfill=backfill, order=Strict())
    first = authority.submit(body.hold, stage, "a", "gate", cpu=1)
    stage.wait("a")
    big = authority.submit(body.note, stage, "order", cpu=2, id="big", priority="high")
    small = authority.submit(body.note, stage, "small", cpu=1)
    if promises.crowd > 1 and backfill == "greedy":
        small.result(PATIENCE_S)
        assert big.state == "READY"
    elif promises.crowd > 1:
        assert small.why().primary == "held_back"
        assert [task.id for reason in small.why().reasons for task in reason.tasks] == ["big"]
    else:
        assert {big.state, small.state} == {"READY"}
    stage.mark("gate")
    results([first, big, small])


def test_the_budget_comes_back_after_every_kind_of_end(make, body, stage):
    """B1, T4: success, error, timeout, cancel: nothing of it is lost."""
    authority = make(slots=2, cpu=2, ram="2MB", resources={"licence": 1})
    demand = {"cpu": 2, "ram": "2MB", "resources": {"licence": 1}}
    calls = [
        Call(body.value, (1,), demand),
        Call(body.fail, ("x",), demand),
        Call(body.flaky, (stage, "f", 1), {**demand, "retry": 1}),
        Call(body.hold, (stage, "t", "never"), {**demand, "timeout": 0.05}),
        Call(body.hold, (stage, "c", "never"), {**demand, "id": "c"}),
    ]
    handles = authority.submit_many(calls)
    stage.wait("c")
    handles[-1].cancel()
    for handle in handles:
        handle.exception(PATIENCE_S)
    assert [handle.outcome for handle in handles] == ["success", "error", "success", "timeout", "aborted"]
    snapshot = authority.snapshot()
    assert all(gate.free == gate.limit for gate in (*snapshot.budget, snapshot.slots))
