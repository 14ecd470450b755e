"""What is asked of the system about processes."""

import os
import subprocess
import time

from whywait.trees import system

STARTS = 100


def test_a_process_is_found_by_its_environment_from_its_first_moment_on(monkeypatch):
    """M3: what a program has started under its permission is known, even if that program is killed right after."""
    missed = 0
    for number in range(STARTS):
        with subprocess.Popen(["sleep", "100"], env={"PATH": os.environ["PATH"], "NUMBER": str(number)}) as child:
            monkeypatch.setattr(system, "_all_pids", lambda pid=child.pid: [pid])
            missed += system.told_in_environment(f"NUMBER={number}".encode()) != [child.pid]
            child.kill()
    assert missed == 0


def test_a_process_without_an_environment_is_not_waited_for(monkeypatch):
    with subprocess.Popen(["sh", "-c", "echo; read line"], env={}, stdin=-1, stdout=-1) as child:
        child.stdout.readline()
        waits = []
        monkeypatch.setattr(system, "_all_pids", lambda: [child.pid])
        monkeypatch.setattr(time, "sleep", waits.append)
        assert system.told_in_environment(b"NUMBER=1") == []
        assert waits == []
        child.stdin.close()
