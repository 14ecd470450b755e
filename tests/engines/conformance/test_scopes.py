"""O: scopes, and what leaving and disposing them means."""

import asyncio
import gc
import threading

import pytest
from bodies import Oops

from patience import PATIENCE_S, until, until_async
from whywait.errors import (
    ConfigError,
    DisposeIncomplete,
    InvalidTransition,
    ScopeClosed,
    ScopeExists,
    TaskAborted,
    UnknownScope,
)


@pytest.fixture
def give_up_soon(promises, monkeypatch):
    """Do not wait for the end of bodies that this engine cannot end."""
    if not promises.ends_deaf:
        monkeypatch.setattr("whywait.runtime.leaving.KILL_S", 0.2)


def test_a_scope_runs_from_attached_to_disposed(authority, body):
    """O1: its state follows its life; DISPOSED is the end."""
    scope = authority.scope("s")
    states = [scope.state]
    scope.submit(body.value).result(PATIENCE_S)
    states.append(scope.state)
    scope.suspend()
    states.append(scope.state)
    scope.resume()
    states.append(scope.state)
    scope.dispose()
    states.append(scope.state)
    assert states == ["ATTACHED", "RUNNING", "SUSPENDED", "RUNNING", "DISPOSED"]
    for step in (scope.suspend, scope.resume):
        with pytest.raises(InvalidTransition):
            step()
    scope.dispose()
    with pytest.raises(ScopeClosed):
        scope.submit(body.value)
    with pytest.raises(ScopeClosed):
        scope.scope("inside")


def test_suspending_keeps_what_is_pending_from_starting(authority, body, stage):
    """O2: what runs goes on; nothing is accepted; child scopes are covered; others are not."""
    parent = authority.scope("parent")
    child = parent.scope("child")
    running = parent.submit(body.hold, stage, "a", "gate")
    pending = [parent.submit(body.note, stage, "b"), child.submit(body.note, stage, "b")]
    stage.wait("a")
    parent.suspend()
    for scope in (parent, child):
        with pytest.raises(ScopeClosed) as caught:
            scope.submit(body.value)
        assert caught.value.cause == "scope_state"
    stage.mark("gate")
    assert running.result(PATIENCE_S) == "a"
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1
    assert [handle.state for handle in pending] == ["READY", "READY"]
    assert not stage.has("b")
    assert {handle.why().primary for handle in pending} == {"scope_state"}
    parent.resume()
    for handle in pending:
        handle.result(PATIENCE_S)
    assert stage.count("b") == 2


def test_disposing_ends_what_runs_and_what_waits(wide, body, stage):
    """O4: all ABORTED/scope_disposed; only dependents outside the scope get `dependency`; others go on."""
    scope = wide.scope("s")
    running = scope.submit(body.hold, stage, "a", "never", id="a")
    inside = [
        scope.submit(body.note, stage, "b", after=[running]),
        scope.submit(body.note, stage, "b", after=[running]),
    ]
    paused = scope.submit(body.note, stage, "b", after=[running])
    paused.pause()
    outside = wide.submit(body.value, running)
    other = wide.submit(body.value, 1)
    stage.wait("a")
    scope.dispose()
    assert scope.state == "DISPOSED"
    for handle in (running, *inside, paused):
        assert handle.done()
        assert (handle.outcome, handle.cause) == ("aborted", "scope_disposed")
        with pytest.raises(TaskAborted):
            handle.result()
    assert (outside.cause, outside.why().root) == ("dependency", "a")
    assert other.result(PATIENCE_S) == 1
    assert stage.has("a.left")
    assert not stage.has("b")


def test_disposing_ends_a_parked_task(make, body, stage):
    """O4: it wakes up to its abort."""
    authority = make(pause_timeout=PATIENCE_S)
    scope = authority.scope("s")
    handle = scope.submit(body.steps, stage, "a", "never")
    stage.wait("a")
    handle.pause()
    scope.dispose()
    assert (handle.outcome, scope.state) == ("aborted", "DISPOSED")


def test_a_body_that_shrugs_off_the_abort_is_ended_where_the_engine_can(make, body, stage, promises):
    """O5: after `grace`; elsewhere dispose names the survivor and the scope stays DISPOSING."""
    authority = make(grace=0.05)
    scope = authority.scope("s")
    handle = scope.submit(body.reluctant, stage, "a", "gate", id="survivor")
    stage.wait("a")
    if promises.ends_reluctant:
        scope.dispose()
        assert (scope.state, handle.outcome) == ("DISPOSED", "aborted")
    else:
        with pytest.raises(DisposeIncomplete, match="survivor"):
            scope.dispose()
        stage.mark("gate")
        assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1


def test_a_deaf_body_is_killed_or_named(make, body, stage, promises, give_up_soon):
    """O5: dispose never claims what is not true, and what could not be ended keeps its slot."""
    authority = make(grace=0.05)
    scope = authority.scope("s")
    handle = scope.submit(body.deaf, stage, "a", "gate", id="survivor")
    stage.wait("a")
    if promises.ends_deaf:
        scope.dispose()
        assert (scope.state, handle.outcome) == ("DISPOSED", "aborted")
        assert not stage.has("a.left")
    else:
        with pytest.raises(DisposeIncomplete, match="survivor") as caught:
            scope.dispose()
        assert caught.value.survivors == ("survivor",)
        assert (scope.state, handle.state, handle.done()) == ("DISPOSING", "DISPOSING", False)
        with pytest.raises(ScopeExists):
            authority.scope("s")
        other = authority.submit(body.note, stage, "b")
        assert other.state == "READY"
        stage.mark("gate")
        other.result(PATIENCE_S)
        until(lambda: scope.state == "DISPOSED")
        assert handle.outcome == "aborted"
        with pytest.raises(UnknownScope):
            authority.get_scope("s")
    authority.scope("s").dispose()


def test_the_grace_given_to_dispose_counts_for_all_below(make, body, stage, promises):
    """O5, O7: a child scope that would be more patient is not asked."""
    authority = make(slots=1, grace=60.0)
    child = authority.scope("parent", grace=60.0).scope("child", grace=60.0)
    handle = child.submit(body.reluctant, stage, "a", "gate", id="survivor")
    stage.wait("a")
    if promises.ends_reluctant:
        authority.get_scope("parent").dispose(grace=0.05)
        assert (handle.outcome, child.state) == ("aborted", "DISPOSED")
    else:
        with pytest.raises(DisposeIncomplete, match="survivor"):
            authority.get_scope("parent").dispose(grace=0.05)


def test_an_authority_that_could_not_be_disposed_can_be_later(make, body, stage, promises, give_up_soon):
    """O5: the second dispose finds the body gone and releases everything."""
    authority = make(grace=0.05)
    handle = authority.submit(body.deaf, stage, "a", "gate")
    stage.wait("a")
    if not promises.ends_deaf:
        with pytest.raises(DisposeIncomplete):
            authority.dispose()
        stage.mark("gate")
        handle.exception(PATIENCE_S)
    authority.dispose()
    assert handle.outcome == "aborted"


def test_an_exception_is_injected_into_a_thread_where_it_is_allowed(make, body, stage, promises):
    """O5: `inject=True` ends a body that runs Python code and ignores its signal; else it ends by itself."""
    authority = make(grace=0.05, inject=True)
    handle = authority.submit(body.waits, stage, "a", "gate")
    stage.wait("a")
    handle.cancel()
    if not promises.ends_injected:
        with pytest.raises(TimeoutError):
            handle.exception(0.2)
        stage.mark("gate")
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert authority.submit(body.value, 1).result(PATIENCE_S) == 1


def test_leaving_a_block_waits_for_all_tasks(authority, body, stage):
    """O6: also for those of child scopes; then the scope is DISPOSED."""
    with authority.scope("s") as scope:
        handles = [scope.submit(body.note, stage, "a", i) for i in range(20)]
        handles += [scope.scope("child").submit(body.note, stage, "a", 20)]
    assert [handle.result() for handle in handles] == list(range(21))
    assert scope.state == "DISPOSED"


def test_leaving_a_block_waits_for_paused_tasks(authority, body, stage, caplog):
    """O6: they may be resumed; that is logged once."""
    first = authority.submit(body.hold, stage, "a", "gate")
    helper = threading.Thread(target=lambda: (until(lambda: "(paused for" in caplog.text), handle.resume()))
    with authority.scope("s") as scope:
        handle = scope.submit(body.value, 1)
        handle.pause()
        stage.mark("gate")
        first.result(PATIENCE_S)
        helper.start()
    helper.join()
    assert handle.result() == 1
    assert caplog.text.count("leaving scope 's' waits for 1 task: ") == caplog.text.count("(paused for ") == 1


def test_leaving_by_an_exception_disposes(authority, body, stage):
    """O6: what runs is aborted, what waits is ended, the exception goes on."""
    with pytest.raises(Oops, match="mine"), authority.scope("s") as scope:  # noqa: PT012 - leaving it is the test
        running, pending = scope.submit(body.hold, stage, "a", "never"), scope.submit(body.note, stage, "b")
        stage.wait("a")
        raise Oops("mine")
    assert (running.cause, pending.cause, scope.state) == ("scope_disposed", "scope_disposed", "DISPOSED")
    assert not stage.has("b")


def test_an_error_that_nobody_looked_at_is_logged(authority, body, caplog):
    """O6: with on_error="continue" the rest goes on; an error that somebody saw is not logged."""
    with authority.scope("s") as scope:
        seen = scope.submit(body.fail, "seen", id="seen")
        assert isinstance(seen.exception(PATIENCE_S), Oops)
        scope.submit(body.fail, "unseen", id="lost")
        other = scope.submit(body.value, 1)
    assert other.result() == 1
    del seen

    def logged(name):
        gc.collect()  # it is logged when nobody can look any more
        return [record for record in caplog.records if f"task {name} " in record.getMessage()]

    until(lambda: logged("lost"))
    assert (len(logged("lost")), len(logged("seen"))) == (1, 0)


def test_the_first_error_aborts_the_rest_where_that_is_asked_for(wide, body, stage, promises):
    """O6: on_error="abort" leaves as an ExceptionGroup of what failed."""
    with pytest.raises(ExceptionGroup) as caught, wide.scope("s", on_error="abort") as scope:  # noqa: PT012 - leaving it is the test
        first = scope.submit(body.hold, stage, "first", "gate")
        running = scope.submit(body.hold, stage, "a", "never") if promises.crowd > 1 else None
        scope.submit(body.fail, "broken", after=[first], priority="critical")
        pending = [scope.submit(body.hold, stage, "b", "never", after=[first]) for _ in range(3)]
        stage.mark("gate")
    assert [type(error) for error in caught.value.exceptions] == [Oops]
    assert {handle.cause for handle in pending} == {"scope_disposed"}
    assert running is None or running.cause == "scope_disposed"
    assert scope.state == "DISPOSED"
    assert not stage.has("b")


def test_an_error_that_also_leaves_the_block_is_not_lost(authority, body):
    """O6: the block raises what the failed task raised, when that is the same error, inside the group."""
    with pytest.raises(ExceptionGroup) as caught, authority.scope("s", on_error="abort") as scope:
        scope.submit(body.fail, "broken").result(PATIENCE_S)
    assert caught.group_contains(Oops, match="broken")


def test_async_blocks_do_the_same(make, body, stage):
    """O6: waiting when left normally, disposing when left by an exception, an ExceptionGroup where asked for."""

    async def main():
        async with make(slots=2) as authority:
            async with authority.scope("s") as scope:
                handles = [scope.submit(body.value, i) for i in range(5)]
            assert [handle.result() for handle in handles] == list(range(5))
            with pytest.raises(Oops, match="mine"):  # noqa: PT012 - leaving it is the test
                async with authority.scope("t") as scope:
                    running = scope.submit(body.hold, stage, "a", "never")
                    await until_async(lambda: stage.has("a"))
                    raise Oops("mine")
            assert (running.cause, scope.state) == ("scope_disposed", "DISPOSED")
            with pytest.raises(ExceptionGroup):
                async with authority.scope("u", on_error="abort") as scope:
                    scope.submit(body.fail, "broken")
            scope = authority.scope("v")
            late = scope.submit(body.hold, stage, "b", "never")
            await scope.dispose_async()
            assert late.cause == "scope_disposed"

    asyncio.run(main())


def test_a_dispose_that_gave_up_on_a_loop_that_is_gone_harms_nobody(make, body, stage, promises, give_up_soon):
    """O5: the body ends after the loop is closed; its slot comes back and the next task runs."""
    authority = make(grace=0.05)
    scope = authority.scope("s")
    handle = scope.submit(body.deaf, stage, "a", "gate")
    waiting = authority.submit(body.value, 1)
    stage.wait("a")

    async def main():
        if promises.ends_deaf:
            await scope.dispose_async()
        else:
            with pytest.raises(DisposeIncomplete):
                await scope.dispose_async()

    asyncio.run(main())
    stage.mark("gate")
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert waiting.result(PATIENCE_S) == 1


def test_disposing_a_parent_disposes_its_children_first(wide, body, stage):
    """O7: all of them, to any depth."""
    top = wide.scope("top")
    middle = top.scope("middle")
    bottom = middle.scope("bottom")
    handle = bottom.submit(body.hold, stage, "a", "never")
    stage.wait("a")
    top.dispose()
    assert [scope.state for scope in (top, middle, bottom)] == ["DISPOSED"] * 3
    assert handle.cause == "scope_disposed"
    gone = [event.scope for event in wide.events() if event.kind == "SCOPE_DISPOSED"]
    assert gone == ["bottom", "middle", "top"]
    wide.scope("bottom")


def test_a_scope_that_is_not_mounted_takes_no_tasks(authority, body):
    """O8: it is INIT until mount(); submissions and periodics are refused; the block can be left."""
    with authority.scope("s", mount=False) as scope:
        assert scope.state == "INIT"
        with pytest.raises(ScopeClosed, match="scope 's' is not open yet") as caught:
            scope.submit(body.value)
        assert caught.value.cause == "scope_state"
        with pytest.raises(ScopeClosed, match="scope 's' is not open yet: it takes no periodics"):
            scope.periodic(body.value, every=1)
        scope.mount()
        assert scope.state == "ATTACHED"
        with pytest.raises(InvalidTransition):
            scope.mount()
        assert scope.submit(body.value, 1).result(PATIENCE_S) == 1
    with authority.scope("s", mount=False) as never:
        pass
    assert never.state == "DISPOSED"
    with pytest.raises(ConfigError, match="mount 1 is not allowed: use True or False"):
        authority.scope("t", mount=1)


def test_scopes_below_one_that_is_not_mounted_take_no_tasks(authority, body):
    """O2, O8: what is inside waits for mount() too, so that no body runs in a scope that is INIT."""
    outer = authority.scope("outer", mount=False)
    inner = outer.scope("inner").scope("innermost")
    with pytest.raises(ScopeClosed, match="scope 'outer' is not open yet") as caught:
        inner.submit(body.value)
    assert caught.value.cause == "scope_state"
    assert (outer.state, inner.state) == ("INIT", "ATTACHED")
    outer.mount()
    assert inner.submit(body.value, 1).result(PATIENCE_S) == 1
    assert (outer.state, inner.state) == ("RUNNING", "RUNNING")
