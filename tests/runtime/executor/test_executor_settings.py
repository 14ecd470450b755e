"""What an Executor has beyond a thread pool: its settings, and the authority behind it."""

import threading
from concurrent.futures import Future

import pytest

from patience import PATIENCE_S
from whywait import Executor, TaskAborted, TaskTimeout
from whywait.task.context import current


def capture(*args, **kwargs):
    return args, kwargs


class TestSettings:
    @pytest.mark.parametrize(
        ("variable", "value", "given", "slots"),
        [
            ("WHYWAIT_SLOTS", "3", None, 3),
            ("WHYWAIT_SLOTS", "3", 2, 2),
            ("WHYWAIT_SCHEDULER", "unbounded", None, None),
            ("WHYWAIT_SCHEDULER", "unbounded", 2, 2),
            ("WHYWAIT_SCHEDULER", "simple", None, 1),
            ("WHYWAIT_SCHEDULER", "simple", 2, 1),
        ],
    )
    def test_environment_stands_between_argument_and_default(self, monkeypatch, variable, value, given, slots):
        """E1, E2: the environment gives the default number of workers; the simple scheduler has one slot."""
        for name in ("WHYWAIT_SCHEDULER", "WHYWAIT_SLOTS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(variable, value)
        with Executor(given) as executor:
            assert executor.authority.settings.limits.slots == slots
            assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]

    def test_slots_go_by_the_name_of_max_workers(self):
        """Two names for one number would be a contradiction."""
        with pytest.raises(TypeError, match="max_workers"):
            Executor(slots=3)

    def test_another_engine(self):
        """The authority's options are at hand, the engine among them; an initializer needs the executor's own."""
        with Executor(2, engine="thread") as executor:
            assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]
            assert executor.submit(capture, 1, x=2).result(PATIENCE_S) == ((1,), {"x": 2})
        with pytest.raises(ValueError, match="initializer"):
            Executor(engine="thread", initializer=int)
        with pytest.raises(ValueError, match="inject"):
            Executor(inject=True)


class TestAuthority:
    def test_why_a_future_waits(self, one, gate, block):
        """V1: `why(future)` says whose permission a pending task waits for."""
        running = block(one)
        pending = one.submit(int)
        why = one.why(pending)
        assert why.state == "READY"
        assert [reason.kind for reason in why.reasons] == ["slot"]
        assert f"@{running.ref.number} (" in str(why)
        assert one.why(running).state == "RUNNING"
        gate.set()
        pending.result(PATIENCE_S)
        assert one.why(pending).outcome == "success"

    def test_why_of_a_stranger(self, one):
        """Futures of others are refused."""
        with Executor(1) as other:
            for future in (Future(), other.submit(int)):
                with pytest.raises(ValueError, match="not a future of this executor"):
                    one.why(future)

    def test_shares_its_slots_with_tasks_of_its_authority(self, one, gate, block):
        """S1: what is submitted to `.authority` waits for the same slot, and shutdown waits for it."""
        block(one)
        handle = one.authority.submit(int)
        assert handle.state == "READY"
        gate.set()
        one.shutdown()
        assert handle.result() == 0

    def test_a_future_can_be_a_dependency_of_such_a_task(self, one):
        """G4: for the authority a future of its executor is a handle."""
        assert one.authority.submit(abs, one.submit(int, "-3")).result(PATIENCE_S) == 3

    def test_retries_are_followed(self):
        """T7: with `retry`, the future gives the result of the attempt that succeeded, and runs all the time."""
        attempts = []

        def body():
            attempts.append(future.running())
            if len(attempts) < 3:
                raise OSError
            return "at last"

        ready = threading.Event()
        with Executor(1, retry=5) as executor:
            executor.submit(ready.wait, PATIENCE_S)
            future = executor.submit(body)
            ready.set()
            assert future.result(PATIENCE_S) == "at last"
        assert attempts == [True] * 3

    def test_a_task_that_runs_too_long(self, gate):
        """T6: with `timeout`, the future's exception says so."""
        with Executor(1, timeout=0.05) as executor:
            future = executor.submit(lambda: current().signal.wait(PATIENCE_S))
            assert isinstance(future.exception(PATIENCE_S), TaskTimeout)
            assert not future.cancelled()

    def test_disposing_the_authority(self, gate):
        """O4: pending futures are cancelled, running ones get TaskAborted once the body has ended."""
        executor = Executor(1)
        running = executor.submit(lambda: current().signal.wait(PATIENCE_S))
        pending = executor.submit(int)
        executor.authority.dispose()
        assert pending.cancelled()
        assert isinstance(running.exception(PATIENCE_S), TaskAborted)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(int)
        executor.shutdown()
