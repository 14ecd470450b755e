"""What is asked of the system about processes."""

import os
import subprocess
import sys
import time

from whywait.trees import system

STARTS = 100


def test_a_process_is_found_by_its_environment_from_its_first_moment_on(monkeypatch):
    """M3: what a program has started under its permission is known, even if that program is killed right after."""
    missed = 0
    for number in range(1, STARTS):
        with subprocess.Popen(["sleep", "100"], env={"PATH": os.environ["PATH"], "NUMBER": f"{number:x}"}) as child:
            monkeypatch.setattr(system, "_all_pids", lambda pid=child.pid: [pid])
            missed += system.bearers("NUMBER", {number}) != {number: [child.pid]}
            child.kill()
    assert missed == 0


def test_a_process_without_an_environment_is_not_waited_for(monkeypatch):
    with subprocess.Popen(["sh", "-c", "echo; read line"], env={}, stdin=-1, stdout=-1) as child:
        child.stdout.readline()
        waits = []
        monkeypatch.setattr(system, "_all_pids", lambda: [child.pid])
        monkeypatch.setattr(time, "sleep", waits.append)
        assert system.bearers("NUMBER", {1}) == {}
        assert waits == []
        child.stdin.close()


def test_one_look_finds_the_processes_of_all_marks():
    """M3: whatever they are known by; a process of another mark is of none."""
    with subprocess.Popen(["sleep", "100"], env={"PATH": os.environ["PATH"], "MARK": "aa"}) as told:
        own = system.new_mark()
        mark = f"from whywait.trees.system import set_mark; set_mark({own}); print(flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", mark], stdin=-1, stdout=-1) as marked:
            marked.stdout.readline()
            assert system.bearers("MARK", {0xAA, 0xA, own}) == {0xAA: [told.pid], own: [marked.pid]}
            marked.stdin.close()
        told.kill()


def test_processes_whose_environment_is_not_known_yet_are_waited_for_together(monkeypatch):
    """M3: many programs that begin at once on a busy machine delay the end of a lease by a second, not by one each."""
    passed = []
    monkeypatch.setattr(system, "_all_pids", lambda: range(1000, 1040))
    monkeypatch.setattr(system, "_environment", lambda _: None)
    monkeypatch.setattr(system, "mark_of", lambda _: 0)
    monkeypatch.setattr(time, "sleep", passed.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(passed))
    assert system.bearers("MARK", {1}) == {}
    assert 1 <= sum(passed) < 1.1
