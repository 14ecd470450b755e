"""Process trees: a child process with all its descendants is started, told of, and ended as one thing."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from patience import PATIENCE_S, until
from process_trees import GROWS, OUTLIVED, state_of
from whywait.errors import ConfigError
from whywait.trees import cgroups
from whywait.trees.system import descendants, end_marked, new_mark
from whywait.trees.tree import GROUP, ProcessTree, StartFailed, dismiss_guards

# A process that leaves its group, its session, its environment and its parent.
FLEEING = "setsid env -i sh -c 'sleep {0} & sleep {1} & exit' & sleep {2}"
FLED = 3
OF_THE_C_LIBRARY = 1 << 31 | 1 << 32  # signals that no program may use


def output_of(argv, **options):
    reading, writing = os.pipe()
    with os.fdopen(reading) as file, ProcessTree(argv, files={1: writing}, **options):
        os.close(writing)
        return file.read()


def flee(sleeps):
    return ["sh", "-c", FLEEING.format(*(sleeps.name() for _ in range(FLED)))]


# What a child process has and gives


@pytest.mark.usefixtures("way")
def test_the_exit_code_is_that_of_the_child_process():
    """T4: a code, or a signal as a negative number; then nothing is left, and what it used is known."""
    with ProcessTree(["sh", "-c", "exit 7"]) as tree:
        assert (tree.wait(), tree.wait_all()) == (7, True)
    with ProcessTree(["sh", "-c", "kill -TERM $$"]) as tree:
        assert tree.wait() == -signal.SIGTERM
    with ProcessTree([sys.executable, "-c", "x = b'x' * 50_000_000"]) as tree:
        assert (tree.wait(), tree.wait_all()) == (0, True)
        assert tree.peak > 50_000_000
        assert 0 < tree.cpu_s < PATIENCE_S


def test_it_says_how_the_tree_is_held(way):
    """T4: in a cgroup of its own, which is gone with its guard, or without one."""
    with ProcessTree(["sleep", "60"]) as tree:
        assert (tree.cgroup != "") == (way == "cgroup")
        if tree.cgroup:
            within = Path(tree.cgroup, "cgroup.procs").read_text(encoding="ascii").split()
            assert {int(pid) for pid in within} == {tree.pid}
    dismiss_guards()
    assert not (tree.cgroup and Path(tree.cgroup).exists())


@pytest.mark.usefixtures("way")
def test_a_guard_takes_one_tree_after_the_other(tmp_path):
    """C1: what is left of one tree, and how it ended, does not show in the next."""
    first = ProcessTree([sys.executable, "-c", "x = b'x' * 50_000_000; exit(3)"], cwd=tmp_path)
    assert (first.wait(), first.wait_all()) == (3, True)
    first.close()
    with pytest.raises(StartFailed):
        ProcessTree(["whywait-no-such-program"])
    with ProcessTree(["true"]) as second:
        assert (second.wait(), second.wait_all(), second.guard) == (0, True, first.guard)
        assert second.peak < 50_000_000 < first.peak
        assert Path(f"/proc/{second.guard}/cwd").readlink() == Path("/")
    with ProcessTree(["true"]), ProcessTree(["true"]) as third:
        assert third.guard != first.guard
    before = os.umask(0o027)
    try:
        with ProcessTree(["true"]) as other:
            assert other.guard not in {first.guard, third.guard}
    finally:
        os.umask(before)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_guard_that_was_killed_or_stopped_while_it_had_nothing_to_do(number):
    """O5: the next tree has another one, or wakes it."""
    with ProcessTree(["true"]) as first:
        first.wait_all()
    os.kill(first.guard, number)
    with ProcessTree(["true"]) as second:
        assert second.wait(PATIENCE_S) == 0
        assert (second.guard == first.guard) == (number == signal.SIGSTOP)


@pytest.mark.usefixtures("way")
def test_a_child_process_has_what_a_child_of_this_program_would_have(tmp_path):
    """T4: environment, folder, and whatever of this process changes after its guard was made."""
    ProcessTree(["true"]).close()
    assert output_of(["pwd"]) == str(Path.cwd()) + "\n"
    assert output_of(["sh", "-c", "pwd; echo $A; echo $HOME"], env={"A": "b c"}, cwd=tmp_path) == f"{tmp_path}\nb c\n\n"
    show = ["sh", "-c", "umask; ulimit -S -c; trap"]
    before = os.umask(0o027)
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, limits[1]))
        expected = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        assert output_of(show) == expected
        assert expected.startswith("0027\n0\n")
    finally:
        os.umask(before)
        resource.setrlimit(resource.RLIMIT_CORE, limits)


def test_signals_that_the_program_ignores_are_ignored_by_its_child_processes():
    """T4: a program under nohup has child processes under nohup; all other signals do what they do by themselves."""
    program = (
        "import signal, subprocess; from whywait.trees.tree import ProcessTree\n"
        "show = ['sh', '-c', 'grep Sig[BI] /proc/self/status']\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "subprocess.run(show)\n"
        "with ProcessTree(show) as tree: tree.wait()\n"
    )
    lines = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    expected, found = ([int(line.split()[1], 16) & ~OF_THE_C_LIBRARY for line in lines[at : at + 2]] for at in (0, 2))
    assert found == expected


@pytest.mark.usefixtures("way")
def test_it_leads_a_session_or_a_group_or_joins_one():
    """T4: a command in a terminal belongs to the group of the program that was started there."""
    show = ["sh", "-c", "ps -o sid=,pgid= -p $$"]
    sessions = [os.getsid(0)]
    for options, groups in (
        ({}, []),
        ({"group": GROUP}, sessions),
        ({"group": os.getpgrp()}, [*sessions, os.getpgrp()]),
    ):
        numbers = [int(word) for word in output_of(show, **options).split()]
        assert numbers[: len(groups)] == groups


@pytest.mark.usefixtures("way")
def test_what_cannot_be_started_says_at_which_step():
    """T2: the error of the system, and where it came up; nothing stays."""
    for argv, options, where, kind in (
        (["whywait-no-such-program"], {}, "exec", FileNotFoundError),
        (["/etc/passwd"], {}, "exec", PermissionError),
        (["ls"], {"cwd": "/nowhere"}, "cwd", FileNotFoundError),
        (["ls"], {"group": 1}, "group", PermissionError),
    ):
        with pytest.raises(StartFailed) as caught:
            ProcessTree(argv, **options)
        assert (caught.value.where, caught.value.errno) == (where, kind().errno or caught.value.errno)


def test_a_large_environment_travels(way):
    """T4: what the system takes, the guard takes."""
    env = {f"V{number}": "x" * 1000 for number in range(1000)}
    assert output_of(["sh", "-c", "env | wc -c"], env={**env, "PATH": os.environ["PATH"]}).strip().isdigit()


@pytest.mark.usefixtures("way")
def test_trees_are_started_by_many_threads_at_once():
    """C1: each thread gets its own tree."""
    codes = [None] * 40

    def start(number):
        with ProcessTree(["sh", "-c", f"exit {number}"]) as tree:
            codes[number] = tree.wait()

    threads = [threading.Thread(target=start, args=(number,)) for number in range(len(codes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == list(range(len(codes)))


def test_a_wrong_setting_is_told(monkeypatch):
    """E1: the variable, the value, and what is allowed."""
    monkeypatch.setenv(cgroups.VARIABLE, "yes")
    with pytest.raises(ConfigError, match="WHYWAIT_CGROUPS='yes' is not allowed: use auto or off"):
        ProcessTree(["true"])


# The end of a tree


@pytest.mark.usefixtures("way")
def test_kill_ends_everything(sleeps):
    """O5: also what has left the group, the session, the environment and the parent."""
    with ProcessTree(flee(sleeps)) as tree:
        until(lambda: len(sleeps.alive()) == FLED, "the sleeps")
        assert tree.wait(0.01) is None
        tree.kill()
        assert tree.wait() == -signal.SIGKILL
        assert tree.wait_all()
        assert sleeps.alive() == []


@pytest.mark.usefixtures("way")
def test_the_last_descendant_is_waited_for(sleeps, tmp_path):
    """O5: a tree is over when the last of it has ended, and what was held for it is let go then."""
    go = tmp_path / "go"
    os.mkfifo(go)
    reading, writing = os.pipe()
    with ProcessTree(["sh", "-c", f"setsid env -i cat {go} & exit 3"], held=[writing]) as tree:
        os.close(writing)
        assert tree.wait() == 3
        assert not tree.wait_all(0.05)
        os.set_blocking(reading, False)
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
        go.write_text("on")
        assert tree.wait_all(PATIENCE_S)
        os.set_blocking(reading, True)
        assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.usefixtures("way")
def test_a_signal_reaches_everything(sleeps, tmp_path):
    """X1: a tree is stopped and goes on as one."""
    with ProcessTree(flee(sleeps)) as tree:
        pids = until(lambda: len(sleeps.alive()) == FLED and sleeps.alive(), "the sleeps")
        tree.send_signal(signal.SIGSTOP)
        until(lambda: {state_of(pid) for pid in pids} == {"T"}, "the stop")
        tree.send_signal(signal.SIGCONT)
        until(lambda: {state_of(pid) for pid in pids} == {"S"}, "that it goes on")


@pytest.mark.usefixtures("way")
def test_a_tree_that_grows_is_stopped_as_a_whole():
    """X1: a process that is started while the others are being stopped is stopped too."""
    with ProcessTree([sys.executable, "-c", GROWS]) as tree:
        for _ in range(10):
            tree.send_signal(signal.SIGSTOP)
            until(lambda: {state_of(pid) for pid in descendants(tree.guard)} <= {"T", "Z", "D", ""}, "the stop of all")
            tree.send_signal(signal.SIGCONT)
            until(lambda: state_of(tree.pid) == "S", "that it goes on")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # since 3.12: pytest has threads
@pytest.mark.usefixtures("way")
def test_a_fork_of_the_program_does_not_end_its_trees(sleeps):
    """O5: a copy of the program that ends is not the program."""
    with ProcessTree(["sleep", sleeps.name()]) as tree:
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        assert tree.wait(0.05) is None
        assert len(sleeps.alive()) == 1


# What guards the trees


@pytest.mark.usefixtures("way")
def test_a_guard_that_is_killed_takes_its_tree_with_it(sleeps):
    """O5: what nothing guards is ended, and the program is told; other trees go on."""
    with ProcessTree(["sleep", sleeps.name()]), ProcessTree(flee(sleeps)) as tree:
        until(lambda: len(sleeps.alive()) == FLED + 1, "the sleeps")
        os.kill(tree.guard, signal.SIGKILL)
        assert tree.wait_all(PATIENCE_S)
        assert tree.is_lost
        assert tree.exit_code == -signal.SIGKILL
        assert len(sleeps.alive()) == 1
    until(lambda: not (tree.cgroup and Path(tree.cgroup).exists()), "the end of its cgroup")


@pytest.mark.usefixtures("way")
def test_what_has_a_mark_is_killed_however_long_it_takes_to_find_it():
    """O5: a machine may be so busy that the time is over with the first look."""
    mark = new_mark()
    with ProcessTree(["sleep", "60"], mark=mark) as tree:
        assert not end_marked(mark.__eq__, 0)
        assert tree.wait(PATIENCE_S) == -signal.SIGKILL


@pytest.mark.parametrize("way", ["subreaper"], indirect=True)
def test_a_process_whose_first_thread_has_ended_does_not_outlive_what_guards_it(way):
    """O5: it has ended when all its threads have."""
    with ProcessTree([sys.executable, "-c", OUTLIVED]) as tree:
        until(lambda: state_of(tree.pid) == "Z", "the end of the first thread")
        os.kill(tree.guard, signal.SIGKILL)
        assert tree.wait_all(PATIENCE_S)
        assert threads_of(tree.pid) <= 1  # the first, until its parent has heard of it


def threads_of(pid):
    return len(list(Path("/proc").glob(f"{pid}/task/*")))


@pytest.mark.usefixtures("way")
def test_a_guard_that_is_stopped_still_ends_its_tree(sleeps):
    """O5: a guard is woken when it is needed."""
    with ProcessTree(flee(sleeps)) as tree:
        until(lambda: len(sleeps.alive()) == FLED, "the sleeps")
        os.kill(tree.guard, signal.SIGSTOP)
        tree.kill()
        assert tree.wait_all(PATIENCE_S)
    assert sleeps.alive() == []


# The end of the program

PROGRAM = """if True:
    import os, signal, sys, time
    from whywait.trees.tree import ProcessTree
    depth, fault, *commands = sys.argv[1:]
    trees = []
    for number, command in enumerate(commands):
        if number == len(commands) - 1:  # before the last one is started
            for tree in trees if fault else ():
                os.kill(tree.guard, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
                tree.wait_all(0.1)
        trees.append(ProcessTree(["sh", "-c", command]))
    if depth != "0":
        trees.append(ProcessTree([sys.executable, __file__, str(int(depth) - 1), "", *commands]))
    print("ready", flush=True)
    time.sleep(600)
"""


IN_A_THREAD = PROGRAM.replace("import os", "import os, threading").replace(
    'trees.append(ProcessTree(["sh", "-c", command]))',
    'thread = threading.Thread(target=lambda: trees.append(ProcessTree(["sh", "-c", command]))); '
    "thread.start(); thread.join()",
)


def killed_program(tmp_path, sleeps, depth, fault, commands, count, text=PROGRAM):
    """Run the program until so many sleeps are there, kill it, wait until none is left; return their cgroups."""
    script = tmp_path / "program.py"
    script.write_text(text)
    program = subprocess.Popen([sys.executable, script, str(depth), fault, *commands], stdout=subprocess.PIPE)
    try:
        until(lambda: len(sleeps.alive()) == count, lambda: f"{count} sleeps, not {len(sleeps.alive())}")
        groups = [cgroup_of(pid) for pid in sleeps.alive()]
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
    until(lambda: not sleeps.alive(), lambda: f"the end of {len(sleeps.alive())} sleeps")
    return groups


def cgroup_of(pid):
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("0::") for line in lines if line.startswith("0::"))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("depth", [0, 2])
def test_nothing_survives_the_program(tmp_path, sleeps, depth):
    """O5: SIGKILL of the program ends all its trees, and those of the programs inside them."""
    command = FLEEING.format(*(sleeps.name() for _ in range(FLED)))
    killed_program(tmp_path, sleeps, depth, "", [command] * 2, 2 * FLED * (depth + 1))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("fault", "left"), [("kill", 1), ("stop", 3)])
def test_nothing_survives_the_program_and_a_fault_of_what_guards_it(tmp_path, sleeps, fault, left):
    """O5: the same when guards were killed, or stopped, before the last tree was started."""
    command = FLEEING.format(*(sleeps.name() for _ in range(FLED)))
    killed_program(tmp_path, sleeps, 0, fault, [command] * 3, left * FLED)


@pytest.mark.usefixtures("way")
def test_a_guard_that_is_stopped_sees_the_end_of_a_program_whose_starting_thread_has_ended(tmp_path, sleeps):
    """O5: the system continues the guard at the end of whatever thread is its parent then."""
    command = FLEEING.format(*(sleeps.name() for _ in range(FLED)))
    killed_program(tmp_path, sleeps, 0, "stop", [command] * 2, 2 * FLED, IN_A_THREAD)


def test_cgroups_do_not_stay(way, tmp_path, sleeps):
    """O5: a program that was killed leaves no cgroup behind, nor do the programs inside it."""
    groups = killed_program(tmp_path, sleeps, 1, "", [f"sleep {sleeps.name()}"], 2)
    if way == "subreaper":
        assert set(groups) == {cgroup_of(os.getpid())}
        return
    assert len(set(groups)) == 2
    assert all("/whywait-" in group for group in groups)
    mount = cgroups.base().removesuffix(cgroup_of(os.getpid()).rstrip("/"))
    until(lambda: not any(Path(mount + group).exists() for group in groups), "the end of the cgroups")


@pytest.mark.usefixtures("way")
def test_guards_that_are_dismissed_end_with_their_trees():
    """O5: at once those without a tree, killed or slow to end, the others with it; the next tree has a new one."""
    with ProcessTree(["true"]) as tree, ProcessTree(["true"]) as slow, ProcessTree(["true"]) as killed:
        slow.wait_all()
        slow.close()
        os.kill(killed.guard, signal.SIGKILL)
        killed.wait_all()
        killed.close()
        os.kill(slow.guard, signal.SIGSTOP)
        goes_on = threading.Timer(0.1, os.kill, (slow.guard, signal.SIGCONT))
        goes_on.start()
        dismiss_guards()
        assert (state_of(slow.guard), state_of(killed.guard), state_of(tree.guard) != "") == ("", "", True)
        goes_on.join()
        tree.wait_all()
    assert state_of(tree.guard) == ""
    with ProcessTree(["true"]) as last:
        assert last.wait(PATIENCE_S) == 0
