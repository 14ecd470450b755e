"""The command engine: output, exit codes, signals to whole groups, and nothing left behind."""

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from patience import PATIENCE_S, until
from process_bodies import is_alive, marked, read, run_script
from whywait import (
    Command,
    CommandFailed,
    CommandResult,
    ConfigError,
    TaskAborted,
    TaskFailed,
    TaskTimeout,
    WhywaitError,
)
from whywait.engines.command import engine
from whywait.engines.command.engine import CommandEngine

OPTIONS = {"slots": 2, "grace": 0.1}

DEAF = "trap '' TERM; echo $$ > {0}; while :; do sleep 0.02; done"
OBEDIENT = "trap 'echo term > {0}.said; exit 0' TERM; echo $$ > {0}; while :; do sleep 0.02; done"
COUNTING = "echo $$ > {0}; while [ ! -e {1} ]; do echo x >> {0}.count; sleep 0.01; done"


@pytest.fixture
def authority(make):
    return make()


def pid_in(path):
    return int(until(lambda: read(path).strip(), "the command's start"))


# What a command is and gives


def test_command_chooses_its_engine(authority):
    """T4: a Command is carried out by the command engine without being asked for it; a shell string on request."""
    assert authority.submit(Command("echo $((1 + 2))")).result(PATIENCE_S).stdout == "3\n"
    assert authority.submit("echo hi", engine="command").result(PATIENCE_S).stdout == "hi\n"
    assert authority.submit(Command(["echo", "a  b", "$HOME"])).result(PATIENCE_S).stdout == "a  b $HOME\n"


FEW_FILES = """if True:
    import os, resource
    from whywait import Authority, Command
    with Authority(slots=40) as authority:
        str(authority.submit(int).why())  # what explains is imported
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        gate = Command(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"])
        handles = [authority.submit(gate) for _ in range(40)]
        while not any("waits for other commands to end" in str(handle.why()) for handle in handles):
            pass
        os.mkdir("go")  # a file would take a descriptor
        handles += [authority.submit(gate) for _ in range(80)]
        for handle in handles:
            handle.result()
        print("all have run")
"""


def test_with_few_file_descriptors_commands_wait_for_others_to_end(tmp_path):
    """T4: the system cannot start more of them now; the reason says so."""
    program = [sys.executable, "-c", FEW_FILES]
    done = subprocess.run(program, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "all have run\n"), done.stderr


def test_a_command_that_the_system_cannot_start_alone_fails_and_can_be_cancelled(make, monkeypatch):
    """T2, T5: nothing will make room for it; what waits for room heeds its signal."""

    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    authority = make()
    longer = authority.submit(Command("sleep 1000"))
    until(lambda: longer.usage is not None, "its start")
    monkeypatch.setattr("whywait.engines.command.engine.ProcessTree", refuse)
    handle = authority.submit(Command("true"))
    until(lambda: "the system gives no more of them" in str(handle.why()), "that it waits")
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    longer.cancel()
    longer.exception(PATIENCE_S)
    with pytest.raises(CommandFailed, match="Resource temporarily unavailable"):
        authority.submit(Command("true")).result(PATIENCE_S)


def test_both_outputs_are_kept_apart(authority):
    """T5: the result carries exit code, stdout and stderr, as text and as bytes."""
    result = authority.submit(Command("echo out; echo err >&2; printf '\\377' ")).result(PATIENCE_S)
    assert isinstance(result, CommandResult)
    assert (result.returncode, result.stdout, result.stderr) == (0, "out\n\\xff", "err\n")
    assert (result.stdout_bytes, result.stdout_dropped, result.stderr_dropped) == (b"out\n\xff", 0, 0)


def test_output_beyond_the_limit_keeps_the_tail(authority):
    """T5: the head of what is too long is dropped and counted, for each output by itself."""
    program = "import sys; sys.stdout.write('x' * 3_000_000 + 'end'); sys.stderr.write('e' * 500_000 + 'stop')"
    result = authority.submit(Command([sys.executable, "-c", program], limit=10)).result(PATIENCE_S)
    assert (result.stdout, result.stdout_dropped) == ("xxxxxxxend", 2_999_993)
    assert (result.stderr, result.stderr_dropped) == ("eeeeeestop", 499_994)
    assert authority.submit(Command("echo abc", limit=0)).result(PATIENCE_S).stdout_dropped == 4


def test_directory_environment_and_arguments(authority, tmp_path):
    """G4: where and with what a command runs; what is submitted beside it, handles too, becomes its arguments."""
    command = Command('pwd; echo "$GREETING $1"; test -n "$PATH"', cwd=tmp_path, env={"GREETING": "hello"})
    assert authority.submit(command, "you there").result(PATIENCE_S).stdout == f"{tmp_path}\nhello you there\n"
    number = authority.submit(len, "abcd")
    assert authority.submit(Command(["expr", "1", "+"]), number).result(PATIENCE_S).stdout == "5\n"


def test_commands_are_checked(authority):
    """T3: what can never be run is refused where it is made, or fails with a clear word."""
    for args, options in (("", {}), ([], {}), ("x", {"limit": -1}), ("x", {"limit": True})):
        with pytest.raises(ConfigError):
            Command(args, **options)
    with pytest.raises(WhywaitError, match="command engine"):
        authority.submit(Command("ls"), engine="thread").result(PATIENCE_S)
    with pytest.raises(TaskFailed, match="a Command or a shell string"):
        authority.submit(len, "x", engine="command").result(PATIENCE_S)
    with pytest.raises(TaskFailed, match="no keyword arguments"):
        authority.submit(Command("ls"), kwargs={"a": 1}).result(PATIENCE_S)


# Errors


def test_exit_code_is_an_error_with_the_tail_of_stderr(authority):
    """T2: ERROR/exit_code; the exception carries the code and what the command said last."""
    handle = authority.submit(Command("echo first >&2; echo it broke >&2; exit 3"))
    with pytest.raises(CommandFailed, match=r"exit code 3: first\nit broke") as caught:
        handle.result(PATIENCE_S)
    assert (handle.outcome, handle.cause) == ("error", "exit_code")
    assert isinstance(caught.value, TaskFailed)
    assert (caught.value.returncode, caught.value.stderr) == (3, "first\nit broke")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.returncode, copy.stderr) == (str(caught.value), 3, "first\nit broke")


def test_death_by_a_signal_is_told(authority):
    """T2: a command killed by somebody else is an ERROR that names the signal."""
    with pytest.raises(CommandFailed, match="SIGSEGV") as caught:
        authority.submit(Command("kill -SEGV $$")).result(PATIENCE_S)
    assert caught.value.returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("command", "says", "code"),
    [
        (Command(["whywait-no-such-program", "x"]), "command not found: 'whywait-no-such-program'", 127),
        (Command("whywait-no-such-program"), "not found", 127),
        (Command("ls", cwd="/nowhere/at/all"), "there is no directory /nowhere/at/all", 127),
        (Command(["/etc/passwd"]), "ermission denied", 126),
    ],
)
def test_what_cannot_be_started_is_told(authority, command, says, code):
    """T2: a command that is not there, or cannot be executed, is an ERROR with a clear message."""
    with pytest.raises(CommandFailed, match=says) as caught:
        authority.submit(command).result(PATIENCE_S)
    assert caught.value.returncode == code


# Signals


def test_cancel_is_sigterm(make, tmp_path):
    """X3: an abort reaches the command as SIGTERM, which it may obey."""
    authority = make(grace=60)
    handle = authority.submit(Command(OBEDIENT.format(tmp_path / "pid")))
    pid = pid_in(tmp_path / "pid")
    handle.cancel()
    with pytest.raises(TaskAborted):
        handle.result(PATIENCE_S)
    assert read(tmp_path / "pid.said") == "term\n"
    assert not is_alive(pid)


def test_sigterm_reaches_the_whole_group(make, tmp_path):
    """X3: everybody in the command's group gets the signal, not only its first process."""
    authority = make(grace=60)
    handle = authority.submit(Command(f"sleep 1000 & echo $! > {tmp_path / 'sleep'}; wait"))
    sleep = pid_in(tmp_path / "sleep")
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert not is_alive(sleep)


def test_deaf_command_is_killed(authority, tmp_path):
    """X3, T4: a command that ignores SIGTERM is killed after ``grace``, and only then its slot comes back."""
    handle = authority.submit(Command(DEAF.format(tmp_path / "pid")))
    pid = pid_in(tmp_path / "pid")
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert not is_alive(pid)


def test_a_command_whose_grace_is_over_before_it_runs_is_killed_when_it_does(authority, monkeypatch, tmp_path):
    """O5: on a busy machine the system may start a command after its time and its grace are over."""
    told = threading.Event()
    launch, kill = engine._launch, CommandEngine.kill

    def launch_late(*args):
        assert told.wait(PATIENCE_S)
        return launch(*args)

    def kill_early(self, execution):
        kill(self, execution)
        told.set()

    monkeypatch.setattr(engine, "_launch", launch_late)
    monkeypatch.setattr(CommandEngine, "kill", kill_early)
    handle = authority.submit(Command(DEAF.format(tmp_path / "pid")), timeout=0.05)
    with pytest.raises(TaskTimeout):
        handle.result(PATIENCE_S)


def test_kill_takes_those_whom_the_leader_left(authority, tmp_path):
    """O5: a deaf member of the group that still writes keeps the task alive after the leader's end; a kill ends it."""
    deaf = DEAF.format(tmp_path / "pid").replace("$$", "$(exec sh -c 'echo $PPID')")
    handle = authority.submit(Command(f"({deaf}) & echo gone"))
    pid = pid_in(tmp_path / "pid")
    assert handle.state == "RUNNING"
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert not is_alive(pid)


@pytest.mark.parametrize("leaving", ["", "setsid ", "setsid env -i "])
def test_silent_leftovers_end_with_the_command(authority, leaving):
    """O5: what a command leaves running without output ends with it, also what has left its group."""
    command = Command(f"{leaving}sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' &")
    pid = int(authority.submit(command).result(PATIENCE_S).stdout)
    assert not is_alive(pid)


def test_output_that_is_held_elsewhere_ends_nothing(authority, tmp_path):
    """T4: a process that is no descendant does not hold the task, even if it holds its output."""
    opened = tmp_path / "opened"
    command = Command(f"echo $$ > {tmp_path / 'pid'}; while [ ! -e {opened} ]; do sleep 0.01; done; echo done")
    handle = authority.submit(command)
    with open(f"/proc/{pid_in(tmp_path / 'pid')}/fd/1", "wb"):  # noqa: PTH123 - the same pipe once more
        opened.touch()
        assert handle.result(PATIENCE_S).stdout == "done\n"


@pytest.mark.parametrize("leaving", ["", "setsid "])
def test_output_of_a_descendant_is_awaited(authority, leaving):
    """T4: the task has not ended while a process of its tree can still write."""
    result = authority.submit(Command(f"{leaving}sh -c 'sleep 0.2; echo late' & echo early")).result(PATIENCE_S)
    assert result.stdout == "early\nlate\n"


BUSY = """
import os, sys, threading, time
for _ in range(3):
    if not os.fork():
        break
for _ in range(3):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
with open(f"{sys.argv[1]}.{os.getpid()}", "w"):
    time.sleep(600)
"""


def test_a_pause_returns_when_all_processes_have_stopped(make, tmp_path):
    """X1: not a moment before, though the command has many threads in four processes, all of them busy."""
    authority = make(pause_timeout=PATIENCE_S)  # a busy computer lets each of the threads run before it stops
    handle = authority.submit(Command([sys.executable, "-c", BUSY, str(tmp_path / "pid")]))
    until(lambda: len(list(tmp_path.iterdir())) == 4, "four processes")
    pids = [int(file.suffix[1:]) for file in tmp_path.iterdir()]
    for _ in range(10):
        handle.pause()
        states = [_state(f"{pid}/task/{thread}") for pid in pids for thread in _threads(pid)]
        assert handle.state == "PAUSED"
        assert set(states) <= {"T", "D"}  # D: still inside the system, from where it stops before it runs on
        assert len(states) == 16
        handle.resume()
        until(lambda: any(_state(pid) != "T" for pid in pids), "that they go on")
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)


def _threads(pid):
    return [path.name for path in Path(f"/proc/{pid}/task").iterdir()]


def test_pause_stops_and_resume_goes_on(authority, tmp_path):
    """X1, X2: a pause parks the command by SIGSTOP, a resume lets it go on by SIGCONT."""
    path, end = tmp_path / "pid", tmp_path / "end"
    handle = authority.submit(Command(COUNTING.format(path, end)))
    pid = pid_in(path)
    for _ in range(2):
        handle.pause()
        assert handle.state == "PAUSED"
        assert _state(pid) in {"T", "D"}  # D: it waits for a child that is stopped
        count = read(f"{path}.count")
        handle.resume()
        until(lambda before=count: len(read(f"{path}.count")) > len(before), "the next step")
    end.touch()
    assert handle.result(PATIENCE_S).returncode == 0


def test_cancel_of_a_stopped_command(make, tmp_path):
    """X3: a stopped command is woken to see its SIGTERM."""
    authority = make(grace=60)
    handle = authority.submit(Command(OBEDIENT.format(tmp_path / "pid")))
    pid_in(tmp_path / "pid")
    handle.pause()
    handle.cancel()
    assert isinstance(handle.exception(PATIENCE_S), TaskAborted)
    assert read(tmp_path / "pid.said") == "term\n"


def test_dispose_leaves_nothing_running(make, tmp_path):
    """O5: after DISPOSED nothing of the scope runs, whether it obeyed, ignored the signal or was stopped."""
    scope = make(slots=3).scope("work")
    paths = [tmp_path / name for name in ("deaf", "obedient", "stopped")]
    programs = [DEAF, OBEDIENT, DEAF]
    handles = [scope.submit(Command(text.format(path))) for text, path in zip(programs, paths, strict=True)]
    pids = [pid_in(path) for path in paths]
    handles[2].pause()
    scope.dispose()
    assert scope.state == "DISPOSED"
    assert not any(map(is_alive, pids))
    assert [handle.cause for handle in handles] == ["scope_disposed"] * 3


# The parent's end


PARENT = """if True:
    import sys, time
    from whywait import Authority
    from whywait.engines.command.engine import Command
    a = Authority(slots=3, pause_timeout=60)
    handles = [a.submit(Command(text)) for text in sys.argv[2:]]
    handles[-1].pause()
    open(sys.argv[1], "w").write("x")
    time.sleep(1000)
"""


def test_commands_die_with_the_parent(tmp_path):
    """O5: when the program is killed by SIGKILL, its commands end, deaf and stopped ones too, and what guarded them."""
    mark = f"whywait-parent-{uuid.uuid4()}"
    paths = [tmp_path / name for name in ("one", "two", "three")]
    programs = [DEAF.format(path) for path in paths]
    parent = run_script(PARENT, tmp_path / "ready", *programs, env={**os.environ, "MARK": mark})
    try:
        until(lambda: read(tmp_path / "ready"), "the program")
        pids = [pid_in(path) for path in paths[:2]]
        assert all(map(is_alive, pids))
        parent.kill()
        parent.wait()
        until(lambda: not marked(mark), "the end of all")
    finally:
        parent.kill()
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        parent.wait()


STARTING = """if True:
    import sys, time
    from whywait import Authority
    from whywait.engines.command.engine import Command
    a = Authority(slots=50)
    open(sys.argv[1], "w").write("x")
    while True:
        a.submit(Command("sleep 1000"))
        time.sleep(0.001)
"""


@pytest.mark.parametrize("delay_ms", [0, 7, 20, 45])
def test_commands_die_with_the_parent_however_young(tmp_path, delay_ms):
    """O5: killed while it starts commands, one after the other, the program leaves none of them behind."""
    mark = f"whywait-parent-{uuid.uuid4()}"
    parent = run_script(STARTING, tmp_path / "ready", env={**os.environ, "MARK": mark})
    try:
        until(lambda: read(tmp_path / "ready"), "the program")
        time.sleep(delay_ms / 1000)
        parent.kill()
        parent.wait()
        until(lambda: not marked(mark), "the end of all")
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


def test_a_command_whose_guard_is_killed_is_an_error(make, tmp_path):
    """O5: what nothing guards any more is ended, and its task says so; the next one runs."""
    authority = make()
    handle = authority.submit(Command(DEAF.format(tmp_path / "pid")))
    pid = pid_in(tmp_path / "pid")
    os.kill(_parent(pid), signal.SIGKILL)
    with pytest.raises(CommandFailed, match="SIGKILL"):
        handle.result(PATIENCE_S)
    assert not is_alive(pid)
    authority.submit(Command("true")).result(PATIENCE_S)


def test_the_guards_end_with_close(make):
    """O5: after the authority is disposed, nothing of the engine is left."""
    authority = make()
    guard = int(authority.submit(Command("echo $PPID")).result(PATIENCE_S).stdout)
    authority.dispose()
    assert not is_alive(guard)


def _parent(pid):
    return int(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])


def _state(pid):
    return (read(f"/proc/{pid}/stat") or ") X").rpartition(")")[2].split()[0]
