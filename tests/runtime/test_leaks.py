"""The fixture that looks for what tests leave behind finds each kind of it."""

import os
import subprocess
import sys
import threading

import pytest

import leaks
from leaks import Held, left_since


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """What is left here is meant to be."""
    monkeypatch.setattr(leaks, "PATIENCE_S", 0.05)
    monkeypatch.setattr(leaks, "GLANCE_S", 0.0)


def test_a_thread_is_found():
    """O5: by its name."""
    before, end = Held.now(), threading.Event()
    thread = threading.Thread(target=end.wait, name="forgotten")
    thread.start()
    (found,) = left_since(before)
    assert "forgotten" in found
    end.set()
    thread.join()
    assert left_since(before) == []


def test_a_child_is_found_until_it_was_waited_for():
    """O5: a process that has ended and that nobody has waited for is one, too."""
    before = Held.now()
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert left_since(before) == [f"children: {child.pid}"]
    child.wait()
    assert left_since(before) == []
