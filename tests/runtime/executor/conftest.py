"""What the tests of an Executor share: executors of four workers and of one, and a gate that holds their tasks."""

import threading

import pytest

from patience import PATIENCE_S
from whywait import Executor


@pytest.fixture
def gate():
    """An event that tasks wait for; executors that are fixtures open it before they wait for their tasks."""
    return threading.Event()


@pytest.fixture
def executor(gate):
    with Executor(4) as each:
        yield each
        gate.set()


@pytest.fixture
def one(gate):
    with Executor(1) as each:
        yield each
        gate.set()


@pytest.fixture
def block(gate):
    """Submit a task to an executor that runs until the gate opens; return its future once it runs."""

    def submit(executor):
        started = threading.Event()

        def body():
            started.set()
            assert gate.wait(PATIENCE_S)
            return True

        future = executor.submit(body)
        assert started.wait(PATIENCE_S)
        return future

    return submit
