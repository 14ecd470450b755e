"""A2: an authority whose command is broken off fails as a whole and at once; nothing hangs, nothing goes on."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, AuthorityBroken, Call, Command, DisposeIncomplete, Executor, current
from whywait.runtime.authority import core_of


class Broke(BaseException):
    """What breaks a command off, as a signal handler might raise it."""


def break_off(authority):
    """Break a command off in the midst of its changes; the call that was interrupted raises its own exception."""

    def act(now):
        raise Broke

    with pytest.raises(Broke):
        core_of(authority).command(act)


def asleep(gate):
    """Be a body that ends when its gate opens or its task is asked to end."""
    while not gate.wait(0.002):
        current().checkpoint()


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def test_every_handle_raises_and_says_why(gate):
    """A2: those of running, waiting and dependent tasks, in threads that wait already too; what has ended stays."""
    authority = Authority(slots=1)
    ended = authority.submit(pow, 2, 8)
    assert ended.result(PATIENCE_S) == 256
    running = authority.submit(asleep, gate)
    waiting = authority.submit(int)
    behind = authority.submit(int, waiting)
    seen = []
    behind.add_done_callback(seen.append)
    waiter = threading.Thread(target=lambda: seen.append(type(behind.exception(PATIENCE_S))))
    waiter.start()
    break_off(authority)
    for handle in (running, waiting, behind):
        with pytest.raises(AuthorityBroken, match=r"the authority is broken: Broke\(\) broke a command off"):
            handle.result(PATIENCE_S)
        assert (handle.outcome, handle.cause) == ("error", "authority_broken")
    waiter.join(PATIENCE_S)
    until(lambda: len(seen) == 2)
    assert set(seen) == {behind, AuthorityBroken}
    assert ended.result() == 256
    authority.dispose()


def test_everything_that_is_asked_of_it_is_refused(gate):
    """A2: submissions, other commands and looks at the kernel; what subscribers and the ring have stays."""
    authority = Authority(slots=1)
    running = authority.submit(asleep, gate)
    scope = authority.scope("inside")
    break_off(authority)
    until(running.done)
    for ask in (
        lambda: authority.submit(int),
        lambda: scope.submit(int),
        lambda: authority.submit_many([Call(int)]),
        lambda: authority.scope("another"),
        lambda: authority.periodic(int, every=1.0),
        lambda: authority.resize(slots=2),
        running.cancel,
        running.why,
        authority.stats,
        authority.snapshot,
        authority.report,
        scope.wait,
    ):
        with pytest.raises(AuthorityBroken):
            ask()
    told = [event.details for event in authority.events() if event.kind == "TASK_FINISHED"]
    assert dict(told[-1]) == {"outcome": "error", "cause": "authority_broken"}
    authority.dispose()


def test_a_block_is_left_with_the_reason(gate):
    """A2, O6: a block that waits for its tasks raises, whether the authority breaks before or meanwhile."""

    def block(do):
        with Authority(slots=1) as authority:
            authority.submit(asleep, gate)
            do(authority)

    with pytest.raises(AuthorityBroken):
        block(break_off)
    with pytest.raises(AuthorityBroken):
        block(lambda authority: threading.Timer(0.05, break_off, (authority,)).start())

    async def main():
        async with Authority(slots=1) as authority:
            handle = authority.submit(asyncio.sleep, PATIENCE_S)
            await asyncio.sleep(0.01)
            break_off(authority)
            with pytest.raises(AuthorityBroken):
                await handle

    with pytest.raises(AuthorityBroken):
        asyncio.run(main())


def test_no_child_process_stays(tmp_path):
    """A2, O5: commands and worker processes are ended like those of a scope that is disposed of."""
    authority = Authority(slots=4, grace=0.2)
    sleeper = "import time; time.sleep(60)"
    command = authority.submit(Command([sys.executable, "-c", sleeper, str(tmp_path)]))
    process = authority.submit(time.sleep, 60, engine="process")
    until(lambda: "sleep" in children(tmp_path))
    until(lambda: process.state == "RUNNING")
    break_off(authority)
    for handle in (command, process):
        with pytest.raises(AuthorityBroken):
            handle.result(PATIENCE_S)
    authority.dispose()
    assert children(tmp_path) == ""


def children(mark):
    """Return the command lines of processes that name a path."""
    return subprocess.run(["pgrep", "-af", str(mark)], capture_output=True, text=True, check=False).stdout


def test_a_thread_that_cannot_be_ended_is_named():
    """A2, O5: the authority has not ended as long as a body of it runs."""
    stuck, begun = threading.Event(), threading.Event()

    def ignores():
        begun.set()
        stuck.wait(PATIENCE_S)

    authority = Authority(slots=1, grace=0.05)
    authority.submit(ignores, id="deaf")
    assert begun.wait(PATIENCE_S)
    break_off(authority)
    with pytest.raises(DisposeIncomplete, match="deaf still running"):
        authority.dispose()
    stuck.set()
    authority.dispose(grace=PATIENCE_S)


def test_futures_of_an_executor_raise():
    """A2: the standard library's waits end too."""
    gate = threading.Event()
    executor = Executor(max_workers=1)
    running, waiting = executor.submit(gate.wait, PATIENCE_S), executor.submit(int)
    break_off(executor._pool.authority)
    for future in (running, waiting):
        assert isinstance(future.exception(PATIENCE_S), AuthorityBroken)
    gate.set()
    executor.shutdown()


def test_a_refusal_breaks_nothing():
    """A1, T3: what a command refuses it refuses before it changes anything."""
    with Authority(slots=1, cpu=1) as authority:
        authority.submit(int, id="once").result(PATIENCE_S)
        for options in ({"id": "once"}, {"cpu": 2}, {"priority": 200}, {"after": ["nothing"]}):
            with pytest.raises(Exception, match=r"once|cpu|priority|nothing"):
                authority.submit(int, **options)
        assert authority.submit(int).result(PATIENCE_S) == 0


SERVICE = """
import sys
import time
from whywait.machine.home import Home
from whywait.machine.service import Service

def broken(now):
    raise MemoryError

service = Service(Home(sys.argv[1]), slots=1, cpu=1)
try:
    service.core.command(broken)
except MemoryError:
    time.sleep(60)
"""


def test_a_service_that_breaks_ends_with_an_error(tmp_path):
    """A2, M5: and the next one takes its home over, as after a kill."""
    for _ in range(2):
        command = [sys.executable, "-c", SERVICE, str(tmp_path / "home")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ended.returncode == 70, ended.stderr
        assert "the authority is broken, and all of its tasks end: MemoryError() broke a command off" in ended.stderr
