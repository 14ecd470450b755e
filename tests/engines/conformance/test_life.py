"""T: the life of a task as its user sees it."""

import gc
import traceback
import weakref

import bodies
import documented
import pytest
from bodies import Oops, Thing, colour
from promises import PROMISES

from patience import PATIENCE_S, until
from whywait import Engine, Retry
from whywait.engines.registry import MAKERS
from whywait.errors import (
    StaleRef,
    TaskAborted,
    TaskTimeout,
    WhywaitError,
)
from whywait.task.context import current


def test_the_table_of_promises_has_every_engine():
    """O5: what an engine cannot promise is declared; only commands, which run no function, are not in the table."""
    assert set(PROMISES) == set(MAKERS) - {"command"}


def test_every_body_has_both_forms():
    """T4: each engine gets the form that it runs natively."""
    assert vars(bodies.in_form("plain")).keys() == vars(bodies.in_form("coroutine")).keys()


def test_a_result_comes_back(authority, body):
    """T2, T5: a body that returns makes a SUCCESS with its result."""
    handle = authority.submit(body.add, 1, 2, kwargs={"third": 3})
    assert handle.result(PATIENCE_S) == 6
    assert handle.exception(PATIENCE_S) is None
    assert handle.done()
    assert (handle.state, handle.outcome, handle.cause) == ("DISPOSED", "success", None)


def test_large_values_go_in_and_come_out(authority, body):
    """T5: arguments and results larger than any buffer arrive whole."""
    blob = b"x" * 3_000_000
    assert authority.submit(body.value, blob).result(PATIENCE_S) == blob


def test_both_forms_run_in_one_authority(authority):
    """T4: plain functions and coroutine functions are submitted alike, under the same slots."""
    assert authority.submit(bodies.add, 1, 2).result(PATIENCE_S) == 3
    assert authority.submit(bodies.add_async, 3, 4).result(PATIENCE_S) == 7


def test_the_engine_can_be_chosen_for_one_task_and_for_one_scope(make, engine, body):
    """T4: whoever carries a task out, it is the same authority that permits it."""
    authority = make(engine=None)
    assert authority.submit(body.add, 1, 2, engine=engine).result(PATIENCE_S) == 3
    with authority.scope("s", engine=engine) as scope:
        assert scope.submit(body.add, 3, 4).result(PATIENCE_S) == 7


def test_the_own_error_is_raised_as_itself(authority, body):
    """T2: what a body raises is what `result` raises, with type, attributes and where it came from."""
    handle = authority.submit(body.fail, "broken", 7)
    with pytest.raises(Oops, match="broken") as caught:
        handle.result(PATIENCE_S)
    assert type(caught.value) is Oops
    assert caught.value.code == 7
    assert handle.exception() is caught.value
    assert (handle.outcome, handle.cause) == ("error", "exception")


def test_an_error_tells_where_it_was_raised(authority, body, promises):
    """T2: the traceback leads into the body; from a process it comes as text."""
    error = authority.submit(body.fail, "broken").exception(PATIENCE_S)
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert (body.fail.__name__ in frames) == promises.has_frames
    assert f"in {body.fail.__name__}" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_an_error_that_ends_programs_ends_only_the_task(authority, body, error):
    """T2, T5: SystemExit and its kin are an outcome like any other error; the next task runs."""
    handle = authority.submit(body.raise_it, error)
    assert type(handle.exception(PATIENCE_S)) is type(error)
    assert handle.outcome == "error"
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1


def test_a_body_knows_its_own_ref(authority, body):
    """T4: `whywait.current()` is the task that runs."""
    handle = authority.submit(body.my_ref)
    assert handle.result(PATIENCE_S) == handle.ref


def test_outside_a_task_there_is_no_current_one():
    """T4: `whywait.current()` outside raises and says so."""
    with pytest.raises(WhywaitError, match="inside a running task"):
        current()


def test_a_task_that_runs_too_long_times_out(authority, body, stage):
    """T6: after `timeout` the abort signal fires; the outcome is TIMEOUT and the slot comes back."""
    handle = authority.submit(body.hold, stage, "a", "never", timeout=0.05)
    with pytest.raises(TaskTimeout):
        handle.result(PATIENCE_S)
    assert (handle.outcome, handle.cause) == ("timeout", "run_timeout")
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1


def test_the_slot_comes_back_only_when_the_body_has_really_ended(authority, body, stage):
    """T4: a body that runs on after its timeout keeps its slot; it is DISPOSING meanwhile."""
    for timeout in (0.05, 0.5, 5.0):  # on a busy machine it may be over before the body has begun
        slow = authority.submit(body.deaf, stage, "a", "gate", timeout=timeout)
        until(lambda slow=slow: slow.done() or (stage.has("a") and slow.state == "DISPOSING"))
        if not slow.done():
            break
    other = authority.submit(body.note, stage, "b")
    assert not slow.done()
    assert (other.state, authority.stats()["active"]) == ("READY", 1)
    assert not stage.has("b")
    stage.mark("gate")
    other.result(PATIENCE_S)
    assert slow.outcome == "timeout"
    assert stage.has("a.left")


def test_a_failed_task_is_tried_again_under_new_refs(authority, body, stage):
    """T7: each attempt is a new task with a new Ref; the handle follows, and lists them."""
    handle = authority.submit(body.flaky, stage, "a", 2, retry=2)
    assert handle.result(PATIENCE_S) == 3
    refs = handle.attempts
    assert len(refs) == len(set(refs)) == 3
    assert refs == sorted(refs)
    assert refs[-1] == handle.ref
    for ref in refs:
        with pytest.raises(StaleRef):
            authority.get(ref)


def test_only_the_given_errors_are_tried_again(authority, body, stage):
    """T7: `Retry(on=...)` names the types that are worth another attempt."""
    other = authority.submit(body.flaky, stage, "a", 9, retry=Retry(2, on=(KeyError,)))
    own = authority.submit(body.flaky, stage, "b", 1, retry=Retry(2, on=(KeyError, Oops)))
    assert isinstance(other.exception(PATIENCE_S), Oops)
    assert own.result(PATIENCE_S) == 2
    assert (len(other.attempts), len(own.attempts)) == (1, 2)


def test_the_old_ref_is_stale_while_the_new_attempt_lives(authority, body, stage):
    """T7, T8: while a retry backs off it is QUEUED, found by its new ref only, and can be cancelled."""
    handle = authority.submit(body.flaky, stage, "a", 9, id="job", retry=Retry(1, backoff=60.0))
    until(lambda: len(handle.attempts) == 2)
    old, new = handle.attempts
    assert handle.state == "QUEUED"
    assert not handle.done()
    assert authority.get(new) == authority.get("job") == handle
    with pytest.raises(StaleRef):
        authority.get(old)
    assert [reason.kind for reason in handle.why().reasons] == ["backoff"]
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert stage.count("a") == 1


def dies(reference):
    gc.collect()
    return reference() is None


def test_arguments_are_let_go_when_the_task_has_ended(authority, body):
    """T5: nothing keeps the arguments of a finished task, not even its handle."""
    first, second = Thing("first"), Thing("second")
    watched = [weakref.ref(first), weakref.ref(second)]
    handle = authority.submit(body.name_of, first)
    by_name = authority.submit(body.name_of, kwargs={"thing": second})
    assert [handle.result(PATIENCE_S), by_name.result(PATIENCE_S)] == ["first", "second"]
    del first, second
    for reference in watched:
        until(lambda reference=reference: dies(reference), "the end of an argument")


def test_a_result_lives_as_long_as_the_handle(authority, body):
    """T5: the handle keeps the result; nothing else does."""
    handle = authority.submit(body.make_thing, "x")
    reference = weakref.ref(handle.result(PATIENCE_S))
    gc.collect()
    assert reference().name == "x"
    del handle
    until(lambda: dies(reference), "the end of the result")


def test_a_result_is_let_go_while_the_engine_is_busy_with_others(authority, body, stage):
    """T5: whoever carries out the next task does not hold on to the one before."""
    first = authority.submit(body.hold, stage, "first", "start")
    made = authority.submit(body.make_thing, "x")
    last = authority.submit(body.hold, stage, "last", "gate")
    stage.mark("start")
    stage.wait("last")
    watched = [weakref.ref(made.result(PATIENCE_S)), weakref.ref(first), weakref.ref(made)]
    del first, made
    for reference in watched:
        until(lambda reference=reference: dies(reference), "the end of what was finished")
    stage.mark("gate")
    assert last.result(PATIENCE_S) == "last"


def test_a_failed_task_lets_go_of_its_arguments_with_its_handle(authority, body):
    """T5: an error's traceback may hold them; once the handle is gone, nothing does."""
    thing = Thing("x")
    reference = weakref.ref(thing)
    handle = authority.submit(body.raise_it, Oops(thing.name))
    failing = authority.submit(body.add, thing)
    assert isinstance(handle.exception(PATIENCE_S), Oops)
    assert isinstance(failing.exception(PATIENCE_S), TypeError)
    del thing, handle, failing
    until(lambda: dies(reference), "the end of the argument")


def test_context_variables_are_those_of_the_submission(authority, body, promises):
    """T4: captured at submit, whatever becomes of them until the task starts."""
    token = colour.set("red")
    try:
        handle = authority.submit(body.see_colour)
        colour.set("blue")
        again = authority.submit_many([body.see_colour])[0]
    finally:
        colour.reset(token)
    expected = ["red", "blue"] if promises.has_context else ["none", "none"]
    assert [handle.result(PATIENCE_S), again.result(PATIENCE_S)] == expected


def test_context_variables_that_a_body_sets_are_its_own(authority, body):
    """T4: the next body in its place does not see them, nor does who submitted."""
    first = authority.submit(body.paint, "red")
    second = authority.submit(body.paint, "blue", after=[first])
    assert [first.result(PATIENCE_S), second.result(PATIENCE_S)] == ["none", "none"]
    assert colour.get() == "none"


def test_arguments_and_results_are_the_same_objects_where_memory_is_shared(authority, body, promises):
    """T5: no copies, unless the body lives in another process."""
    thing = Thing("x")
    handle = authority.submit(body.value, thing)
    assert handle.result(PATIENCE_S).name == "x"
    assert (handle.result() is thing) == promises.shares_memory


def test_the_engine_on_the_page_is_short():
    """O5: what the page shows is all that an engine needs."""
    assert len(documented.SOURCE.splitlines()) <= 40
    assert documented.ThreadEach.__bases__ == (Engine,)
