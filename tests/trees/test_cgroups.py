"""Cgroups: those that were left are removed, and what they count of memory is read.

The system that runs the tests may count no memory by cgroups, so files as it would write them stand in for it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patience import until
from whywait.trees import cgroups
from whywait.trees.meter import Watch
from whywait.trees.system import oom_kills
from whywait.trees.tree import ProcessTree, dismiss_guards

MB = 1_000_000


def count(folder, current, **stat):
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in stat.items()))


def test_memory_that_a_cgroup_counts_is_taken_from_it(tmp_path):
    """U1: without the copies of files that the system would give back; the highest is the peak, and the way is told."""
    told = []
    watch = Watch(0, str(tmp_path), told.append)
    count(tmp_path, 300 * MB, anon=200 * MB, inactive_file=60 * MB, active_file=30 * MB, slab_reclaimable=10 * MB)
    watch.look()
    assert (watch.ram, watch.how) == (200 * MB, "cgroup")
    count(tmp_path, 50 * MB, anon=50 * MB, inactive_file=0, active_file=0)
    watch.look()
    assert (watch.ram, watch.peak, told) == (50 * MB, 200 * MB, [200 * MB, 50 * MB])


def test_a_cgroup_that_counts_no_memory_is_sampled(tmp_path):
    """U1: its processes are looked at one by one."""
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n0\n")
    watch = Watch(0, str(tmp_path))
    watch.look()
    assert watch.how == "sampled"
    assert watch.ram > 5 * MB


def test_processes_that_were_killed_for_memory_are_counted(tmp_path):
    """U3: by the cgroup itself, where it does."""
    assert oom_kills(str(tmp_path)) == oom_kills("") == 0
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert oom_kills(str(tmp_path)) == 2


def test_what_was_left_is_removed(tmp_path):
    """O5: cgroups of programs that were killed, but none that something else has made, and no probe of a living one."""
    mine, alive = tmp_path / "other", tmp_path / f"whywait-probe-{os.getpid()}"
    left = [tmp_path / "whywait-ab12-1", tmp_path / "whywait-ab12-2" / "inner", tmp_path / "whywait-probe-999999999"]
    for folder in (mine, alive, *left):
        folder.mkdir(parents=True)
    cgroups.remove_left(tmp_path)
    assert sorted(tmp_path.iterdir()) == [mine, alive]


PROGRAM = """if True:
    import time
    from whywait.trees.tree import ProcessTree
    tree = ProcessTree(["sleep", "1000"])
    print(tree.guard, tree.pid, tree.cgroup, flush=True)
    time.sleep(1000)
"""


def test_a_program_that_is_killed_with_its_helpers_leaves_a_cgroup_to_the_next():
    """O5: the next start removes it as soon as nothing is in it."""
    if not cgroups.base():
        pytest.skip("this system lets the tests make no cgroup")
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
    *pids, group = program.stdout.readline().split()
    family = (program.pid, *map(int, pids))
    for pid in family:  # none of them sees the end of another
        os.kill(pid, signal.SIGSTOP)
    for pid in reversed(family):  # the end of a parent would let the system continue them
        os.kill(pid, signal.SIGKILL)
    program.wait()
    program.stdout.close()
    until(lambda: not Path(os.fsdecode(group), "cgroup.procs").read_text(), "the end of all")
    assert Path(os.fsdecode(group)).is_dir()
    cgroups._base.cache_clear()
    with ProcessTree(["true"]) as tree:
        tree.wait_all()
    dismiss_guards()
    assert not Path(os.fsdecode(group)).exists()


def test_a_tree_that_makes_processes_as_quickly_as_they_are_killed(tmp_path):
    """O5: it is killed by its cgroup in one step."""
    if not cgroups.base():
        pytest.skip("this system lets the tests make no cgroup")
    chain = tmp_path / "chain.sh"
    chain.write_text('[ -e stop ] && exit; setsid sh "$0" & exit')
    try:
        with ProcessTree(["sh", str(chain)], cwd=tmp_path) as tree:
            assert tree.wait() == 0
            tree.kill()
            assert tree.wait_all(30)
    finally:
        (tmp_path / "stop").touch()
    dismiss_guards()
    assert not Path(tree.cgroup).exists()
