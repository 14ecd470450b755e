"""D, P, T: many tasks, many submitters, many authorities."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from promises import ENGINES

from patience import PATIENCE_S
from whywait import Call
from whywait.errors import (
    ConfigError,
    ForeignRef,
    Rejected,
    ScopeClosed,
    TaskAborted,
    TaskFailed,
    UnknownScope,
    UnknownTask,
)

FINALISER = Path(__file__).with_name("finaliser.py")


def test_an_empty_batch_and_bare_functions(authority, body):
    """D6: nothing in, nothing out; a function without arguments needs no Call."""
    assert authority.submit_many([]) == []
    assert [handle.result(PATIENCE_S) for handle in authority.submit_many([body.value, Call(body.value, (1,))])] == [
        None,
        1,
    ]


def test_many_small_tasks(wide, body):
    """T5: every one gets its own result."""
    handles = wide.submit_many([Call(body.value, (i,)) for i in range(500)])
    handles += [wide.submit(body.value, i) for i in range(500, 1000)]
    assert [handle.result(PATIENCE_S) for handle in handles] == list(range(1000))
    stats = wide.stats()
    assert (stats["submitted"], stats["completed"], stats["active"], stats["queued"]) == (1000, 1000, 0, 0)


def test_many_threads_submit_at_once(wide, body):
    """T3: nothing is lost, nothing is done twice."""

    def submit(base):
        return [wide.submit(body.value, base + i) for i in range(50)]

    with ThreadPoolExecutor(6) as pool:
        batches = list(pool.map(submit, range(0, 600, 100)))
    handles = [handle for batch in batches for handle in batch]
    assert [handle.result(PATIENCE_S) for handle in handles] == [
        base + i for base in range(0, 600, 100) for i in range(50)
    ]
    assert len({handle.ref for handle in handles}) == 300


def test_authorities_do_not_meet(make, body, stage):
    """T8: each has its own slots, ids, scopes and events."""
    first, second = make(), make()
    held = first.submit(body.hold, stage, "a", "gate", id="job")
    stage.wait("a")
    assert second.submit(body.value, 2, id="job").result(PATIENCE_S) == 2
    assert second.scope("s").submit(body.value, 3).result(PATIENCE_S) == 3
    assert first.scope("s").state == "ATTACHED"
    with pytest.raises(ForeignRef):
        second.why(held.ref)
    with pytest.raises(UnknownTask):
        first.why("elsewhere")
    second.dispose()
    assert held.state == "RUNNING"
    stage.mark("gate")
    assert held.result(PATIENCE_S) == "a"
    assert {event.scope for event in first.events() if event.number is not None} == {"default"}


def test_a_callback_may_submit(authority, body):
    """T3: also one that goes on submitting for a while."""
    handles = []
    finished = threading.Event()

    def callback(handle):
        if handle.result() < 20:
            handles.append(authority.submit(body.add, handle.result(), 1))
            handles[-1].add_done_callback(callback)
        else:
            finished.set()

    authority.submit(body.value, 0).add_done_callback(callback)
    assert finished.wait(PATIENCE_S)
    assert [handle.result(PATIENCE_S) for handle in handles] == list(range(1, 21))


def test_a_task_may_submit(authority, body, promises):
    """T3: where the body can reach the authority at all; elsewhere the task fails and says why."""
    outer = authority.submit(body.submit_more, authority, body.value, 7)
    if promises.shares_memory:
        assert outer.result(PATIENCE_S).result(PATIENCE_S) == 7
    else:
        with pytest.raises(TaskFailed, match="pickled"):
            outer.result(PATIENCE_S)
        assert authority.submit(body.value, 1).result(PATIENCE_S) == 1


def test_submitting_while_the_scope_is_disposed(wide, body):
    """T3, O4: from another thread; each submission is refused or ends, none is lost and nobody hangs."""
    for round_number in range(5):
        scope = wide.scope(f"s{round_number}")
        accepted, begun = [], threading.Event()

        def submit(scope=scope, accepted=accepted, begun=begun):
            while True:
                try:
                    accepted.append(scope.submit(body.value, 1))
                except ScopeClosed:
                    return
                if len(accepted) > 10:
                    begun.set()

        submitter = threading.Thread(target=submit)
        submitter.start()
        assert begun.wait(PATIENCE_S)
        scope.dispose()
        submitter.join(PATIENCE_S)
        assert not submitter.is_alive()
        for handle in accepted:
            error = handle.exception(PATIENCE_S)
            assert error is None or isinstance(error, TaskAborted)
        assert scope.state == "DISPOSED"


def test_scopes_come_and_go_in_many_threads(wide, body):
    """O3, O4: opening and disposing at the same time disturbs nobody."""

    def use(number):
        for i in range(15):
            with wide.scope(f"{number}-{i}") as scope:
                handle = scope.submit(body.value, i)
            assert handle.result() == i

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(use, number) for number in range(4)]:
            future.result(PATIENCE_S)
    assert [view.key for view in wide.snapshot().scopes] == ["default"]
    assert list(wide._core.scopes) == ["default"]


def test_cancel_races_with_the_end(wide, body):
    """X3: whoever wins, there is one outcome, and slots are not lost."""
    for _ in range(60):
        handle = wide.submit(body.value, 1)
        other = threading.Thread(target=handle.cancel)
        other.start()
        error = handle.exception(PATIENCE_S)
        other.join()
        assert handle.outcome == ("success" if error is None else "aborted")
    assert wide.submit(body.value, 1).result(PATIENCE_S) == 1
    assert wide.stats()["active"] == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_finaliser_may_submit_and_never_deadlocks(engine, promises):
    """T3: in the middle of anything, wherever the collector strikes: it works or it raises."""
    command = [sys.executable, "-W", "error", str(FINALISER), engine, promises.form]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    worked, refused = map(int, done.stdout.split())
    assert worked > 0
    assert worked + refused >= 100


def test_a_batch_of_an_authority_goes_to_several_scopes_at_one_instant(make, body, stage):
    """D6, G5: by scope or key; dependencies go across; priority decides which starts first."""
    authority = make(slots=1)
    left = authority.scope("left")
    authority.scope("right", slots=1)
    calls = [
        Call(body.line, (stage, "order", "low"), {"priority": "low", "id": "low"}, left),
        Call(body.line, (stage, "order", "high"), {"priority": "high", "id": "high"}, "right"),
        Call(body.line, (stage, "order", "after"), {"after": ["left/low"], "id": "after"}),
    ]
    handles = authority.submit_many(calls)
    for handle in handles:
        handle.result(PATIENCE_S)
    assert stage.lines("order") == ["high", "low", "after"]
    assert [handle.ref.scope for handle in handles] == ["left", "right", "default"]


def test_a_batch_over_scopes_is_all_or_nothing(make, body):
    """D6: one scope refuses, the others get nothing."""
    authority = make(slots=1)
    open_one, full = authority.scope("open"), authority.scope("full", max_spawn=0)
    with pytest.raises(Rejected, match="max_spawn is 0"):
        authority.submit_many([Call(body.value, (1,), None, open_one), Call(body.value, (2,), None, full)])
    assert authority.stats()["submitted"] == 0


def test_a_batch_names_the_scope_that_is_wrong(make, body):
    """D6, T3: unknown, of another authority, or not inside the scope that the batch is submitted to."""
    authority, other = make(slots=1), make(slots=1)
    scope = authority.scope("s")
    with pytest.raises(UnknownScope, match="task number 0 of the batch: no living scope has the key 'nowhere'"):
        authority.submit_many([Call(body.value, (1,), None, "nowhere")])
    with pytest.raises(UnknownScope, match="task late: no living scope has the key 'gone'"):
        scope.submit_many([body.value, Call(body.value, (1,), {"id": "late"}, "gone")])
    for where, text in (
        (3, "scope 3 is not allowed: use a scope of this authority or its key"),
        (other.scope("t"), "is not allowed: use a scope of this authority"),
    ):
        with pytest.raises(ConfigError, match=text):
            authority.submit_many([Call(body.value, (1,), None, where)])
    authority.scope("beside")
    with pytest.raises(ConfigError, match="scope 'beside' is not inside scope 's': submit the batch to the authority"):
        scope.submit_many([Call(body.value, (1,), None, "beside")])
    (inside,) = scope.submit_many([Call(body.value, (1,), None, scope.scope("inside"))])
    assert inside.result(PATIENCE_S) == 1
