"""A repair that is itself broken off, and begun again."""

import pytest

from whywait.kernel import waiting
from whywait.kernel.base import Decision
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Limits


@pytest.mark.parametrize("breaks_at", [1, 2, 3])
def test_a_repair_that_is_broken_off_forgets_no_wait(monkeypatch, breaks_at):
    """P6, V3: tasks keep their places and their time in READY, wherever in the lane the first repair ended."""
    kernel = Kernel(Limits(slots=1))
    kernel.submit(0, kernel.root)
    kernel.dispatch(0)
    tasks = [kernel.submit(now, kernel.root) for now in (10, 20, 30)]
    calls = []
    become_ready = waiting.become_ready

    def broken_off(*args: object) -> None:
        become_ready(*args)
        calls.append(args)
        if len(calls) == breaks_at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(waiting, "become_ready", broken_off)
        with pytest.raises(KeyboardInterrupt):
            kernel.repair(40, Decision())
    kernel.repair(50, Decision())
    assert [task.since for task in tasks] == [10, 20, 30]
    assert list(tasks[0].lane) == tasks
    assert [waiting.ready_wait_of(kernel, 60, task) for task in tasks] == [{"slot": 50}, {"slot": 40}, {"slot": 30}]
