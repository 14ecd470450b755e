"""Commands that are broken off by a signal, a full stack or a lack of memory: nothing hangs, no count is wrong.

In the compiled core nothing comes between the steps of a command, so nothing is lost. In the interpreted one each
attack ends in a refusal that has changed nothing, or in a broken authority.
"""

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import whywait
from interrupts import Interrupt, at_every_place
from patience import FREE_THREADED, PATIENCE_S
from whywait import Authority, AuthorityBroken, Call, Executor, TaskAborted
from whywait.kernel import invariants
from whywait.runtime.authority import core_of


def is_broken(authority, handles, where):
    """Return whether the authority is broken; assert that all of it is, or that all of it goes on."""
    core = core_of(authority)
    try:
        assert authority.submit(int).result(PATIENCE_S) == 0, where
    except AuthorityBroken:
        for handle in handles:
            assert isinstance(handle.exception(PATIENCE_S), AuthorityBroken | TaskAborted | None), where
        with pytest.raises(AuthorityBroken):
            authority.stats()
        authority.dispose()
        return True
    for handle in handles:
        if handle.state == "PAUSED":
            handle.resume()
        handle.exception(PATIENCE_S)
    with core.lock:
        invariants.check(core.kernel, 1 << 62, rested=False)
    stats = authority.stats()
    assert stats["active"] == stats["queued"] == 0, where
    authority.dispose()
    return False


def submit(authority, scope, handles):
    handles.append(scope.submit(int, cpu=1, priority=80, timeout=60, max_wait=60, id="named"))


def submit_plainly(authority, scope, handles):
    handles.append(authority.submit(int))


def submit_many(authority, scope, handles):
    handles.extend(authority.submit_many([Call(int), Call(int, options={"after": ["first"], "id": "last"})]))


def cancel(authority, scope, handles):
    handles[1].cancel()


def pause_and_resume(authority, scope, handles):
    handles[1].pause()
    handles[1].resume()


def open_scope(authority, scope, handles):
    handles.append(scope.scope("inside").submit(int))


def dispose_scope(authority, scope, handles):
    scope.dispose()


def resize(authority, scope, handles):
    authority.resize(slots=2, gpus={"0": "8GB"})


@pytest.mark.parametrize(
    "command",
    [submit, submit_plainly, submit_many, cancel, pause_and_resume, open_scope, dispose_scope, resize],
)
def test_an_interrupt_at_every_place_of_a_command(command):
    """A1, A2: the command has happened, or has not, or the authority is broken; what waits for it never hangs."""
    broken = []

    def attempt(place):
        gate, handles = threading.Event(), []
        authority = Authority(slots=1, cpu=4, gpus=["8GB", "8GB"])
        scope = authority.scope("doomed")
        handles.append(authority.submit(gate.wait, PATIENCE_S, id="first"))
        handles.append(scope.submit(int))
        with Interrupt(place) as interrupt:
            command(authority, scope, handles)
        gate.set()
        broken.append(is_broken(authority, handles, interrupt.where))
        return interrupt.where

    at_every_place(attempt, least=-1 if whywait.compiled else 5)  # compiled, there may be no such place
    assert any(broken) != whywait.compiled


def at_depth(frames, fn):
    return fn() if not frames else at_depth(frames - 1, fn)


def test_a_visitor_that_submits_at_every_depth():
    """A1, A2: it overflows in one submission or another; each task that was accepted runs once, or all fail."""
    ran, broken = [], []

    def visit(authority, handles, padding):
        handles.append(authority.submit(ran.append, None))
        at_depth(padding, lambda: visit(authority, handles, padding))

    for layout in range(30):
        handles = []
        ran.clear()
        authority = Authority(slots=2)
        with pytest.raises((RecursionError, AuthorityBroken)):
            at_depth(layout, lambda: visit(authority, handles, layout % 7))  # noqa: B023 - called at once
        broken.append(is_broken(authority, handles, layout))
        assert broken[-1] or len(handles) <= len(ran) <= len(handles) + 1
    assert not (whywait.compiled and any(broken))


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("make", [lambda: Authority(slots=2), lambda: Executor(max_workers=2)])
def test_signals_at_any_moment(make):
    """A1, A2: real signals that interrupt a stream of submissions lose no task, no slot and no wake-up."""
    ran, accepted, interrupts = [], [], 0

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, interrupt)
    executor = make()
    authority = executor if isinstance(executor, Authority) else executor._pool.authority
    try:
        for _ in range(200):
            with suppress(AuthorityBroken):
                try:
                    signal.setitimer(signal.ITIMER_PROF, 1e-6)  # it comes with the next tick of the processor's time
                    while True:
                        accepted.append(executor.submit(ran.append, None))
                except KeyboardInterrupt:
                    interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    broken = is_broken(authority, accepted, "a signal")
    assert not (whywait.compiled and broken)
    assert broken or len(accepted) <= len(ran) <= len(accepted) + interrupts
    assert broken or interrupts > 100


only_if_python_survives = pytest.mark.skipif(
    FREE_THREADED or (3, 12) <= sys.version_info < (3, 14),
    reason="this interpreter crashes without memory: 3.12 and 3.13 in a call with **, free-threaded ones anyway",
)


@only_if_python_survives
@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("missing", [1, 3, 30])
def test_no_memory_at_each_allocation(missing, attempts):
    """A1, A2: whichever allocation fails, and so many after it, the task ends once, was never, or all fail."""
    pytest.importorskip("_testcapi", reason="this Python cannot be told to be out of memory")
    command = [sys.executable, str(Path(__file__).with_name("no_memory.py")), str(missing), str(attempts)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(ended.stdout.split()[-1]) > 30, "there was no lack of memory"
