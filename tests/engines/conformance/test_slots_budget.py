"""S and B: limits that hold at every instant, seen from inside the bodies."""

from patience import PATIENCE_S, until
from whywait import Call


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


def test_a_childs_tasks_count_against_its_ancestors(make, body, stage, promises):
    """S5: the parent's slots hold for all below it together."""
    authority = make(slots=None)
    parent = authority.scope("parent", slots=2)
    children = [parent.scope(f"child{i}", slots=2) for i in range(3)]
    handles = [scope.submit(body.meet, stage, "room", 1, min(2, promises.crowd)) for scope in children * 3]
    results([*handles, parent.submit(body.meet, stage, "room", 1, 1)])
    assert stage.peak("room") == min(2, promises.crowd)


def test_cpu_is_never_exceeded(make, body, stage, promises):
    """B1: what runs demands no more than the cap together, and what fits runs."""
    authority = make(slots=None, cpu=4)
    demands = [3, 1, 2, 2, 4, 1, 1, 1, 1, 3]
    together = min(2, promises.crowd)
    results([authority.submit(body.meet, stage, "cpu", cpu, together, cpu=cpu) for cpu in demands])
    assert stage.peak("cpu") <= 4
    assert stage.peak("cpu") == 4


def test_named_resources_are_hard_or_soft(make, body, stage, promises):
    """B3: a hard one is never exceeded, a soft one only by a task that runs alone."""
    authority = make(slots=None, resources={"licence": 2}, soft={"disk": "1GB"})
    together = min(2, promises.crowd)
    handles = [authority.submit(body.meet, stage, "licence", 1, together, resources={"licence": 1}) for _ in range(6)]
    handles.append(authority.submit(body.value, resources={"disk": "2GB"}))
    results(handles)
    assert stage.peak("licence") == together


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
