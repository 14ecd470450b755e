"""What the tests of process trees share: both ways in which a tree is held, and sleeps that can be told apart."""

import itertools
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from whywait.trees import cgroups
from whywait.trees.tree import dismiss_guards

# A program whose first thread ends long before another.
OUTLIVED = """
import ctypes, sys, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
# A program whose descendants start others all the time, also such that outlive their parents.
GROWS = """
import os, time
if os.fork() and os.fork():
    time.sleep(1000)
while True:
    pid = os.fork()
    if not pid:
        if not os.fork():
            time.sleep(0.5)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def state_of(pid):
    """Return the state of the first thread of a process as the system tells it; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.fixture(params=["cgroup", "subreaper"])
def way(request, monkeypatch):
    """Hold trees by a cgroup, where one can be made, or without."""
    monkeypatch.setenv(cgroups.VARIABLE, "auto" if request.param == "cgroup" else "off")
    if request.param == "cgroup" and not cgroups.base():
        pytest.skip("this system lets the tests make no cgroup")
    yield request.param
    dismiss_guards()


@pytest.fixture
def sleeps():
    """Long sleeps of this test: ``name()`` gives the seconds of a new one, ``alive()`` the pids of all that live."""
    return Sleeps()


class Sleeps:
    def __init__(self):
        self._mark = f"9{uuid.uuid4().int % 10**7:07}"
        self._numbers = itertools.count()

    def name(self):
        return f"{self._mark}.{next(self._numbers)}"

    def alive(self):
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                words = entry.joinpath("cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else ()
                if words and words[0] == b"sleep" and words[1].startswith(self._mark.encode()):
                    found.append(int(entry.name))
        return found
