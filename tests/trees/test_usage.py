"""What process trees use: measured from outside, with all their descendants."""

import mmap
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, Command, Record, Retry, TaskFailed
from whywait.support.usage import Usage
from whywait.trees import meter as meters
from whywait.trees.meter import Watch, meter
from whywait.trees.tree import ProcessTree

MB = 1_000_000
# Allocates so many MB, touches them, says what it had at most by its own account (in kB), and waits to be told to end.
ALLOCATE = """if True:
    import resource, sys, time
    data = bytearray(int(sys.argv[1]) * 1_000_000)
    for at in range(0, len(data), 4096):
        data[at] = 1
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024} ")
    sys.stdout.flush()
    time.sleep(float(sys.argv[2]))
"""
FORK = """if True:
    import os, sys, time
    data = bytearray(100_000_000)
    for at in range(0, len(data), 4096):
        data[at] = 1
    for _ in range(int(sys.argv[1])):
        if not os.fork():
            time.sleep(600)
    print("ready", flush=True)
    time.sleep(600)
"""
SPIN = (
    "import time; end = time.process_time() + float(__import__('sys').argv[1])\nwhile time.process_time() < end: pass"
)


def close_to(measured, reported):
    """U1: within 5 % or 10 MB."""
    return abs(measured - reported) <= max(reported * 0.05, 10 * MB)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size", [5, 60, 300])
def test_the_peak_is_what_the_child_process_says_of_itself(size):
    """U1: also if it ended long before anything could look at it."""
    with Authority() as authority:
        handle = authority.submit(Command([sys.executable, "-c", ALLOCATE, str(size), "0"]))
        reported = int(handle.result(PATIENCE_S).stdout)
        assert close_to(handle.usage.peak_ram, reported), (handle.usage, reported)
        assert handle.usage.how in {"sampled", "cgroup"}


@pytest.mark.usefixtures("way")
def test_the_peak_of_several_processes_together_is_measured():
    """U1: descendants that have left the group and the session count as well."""
    one = f"{sys.executable} -c '{ALLOCATE}' 60 600"
    written = []
    command = Command(f"setsid env -i {one} & (setsid {one} &) & {one}; wait", on_output=written.append)
    with Authority() as authority:
        handle = authority.submit(command)

        def reported():
            each = b"".join(written).split()
            return sum(map(int, each)) if len(each) == 3 else 0

        until(
            lambda: reported() and handle.usage and 0.8 * reported() < handle.usage.peak_ram < 1.1 * reported(),
            lambda: handle.usage,
        )
        handle.cancel()


@pytest.mark.usefixtures("way")
def test_memory_that_processes_share_counts_once():
    """U1: ten forks of a process of 100 MB have 100 MB, not a thousand."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as output, ProcessTree([sys.executable, "-c", FORK, "10"], files={1: writing}) as tree:
        os.close(writing)
        output.readline()
        watch = tree.measure()
        watch.look()
        assert 90 * MB < watch.ram < 200 * MB


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("waited", ["{0} & {0} & wait", "(setsid {0} &) ; (setsid {0} &)"])
def test_cpu_time_is_measured(waited):
    """U1: seconds of all descendants, those included for which nothing but the guard has waited."""
    spin = f'{sys.executable} -c "{SPIN}" 0.3'
    with Authority() as authority:
        handle = authority.submit(Command(waited.format(spin)))
        handle.result(PATIENCE_S)
        assert 0.55 < handle.usage.cpu_s < 5


def test_usage_while_it_runs():
    """U1: `handle.usage` tells the peak so far."""
    with Authority() as authority:
        handle = authority.submit(Command([sys.executable, "-c", ALLOCATE, "80", "600"]))
        until(lambda: handle.usage is not None and handle.usage.peak_ram > 80 * MB, lambda: handle.usage)
        assert handle.exit_code is None
        handle.cancel()
        assert handle.exception(PATIENCE_S) is not None
    assert (handle.exit_code, handle.exit_signal) == (143, "SIGTERM")


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize("inject", [False, True])
def test_of_threads_the_cpu_time_is_measured_if_asked_for(inject):
    """U1: threads share the memory of their program."""
    with Authority() as authority:
        handle = authority.submit(spin, 0.02)
        handle.result(PATIENCE_S)
    assert (handle.usage, handle.exit_code) == (None, None)
    with Authority(thread_cpu=True, inject=inject) as authority:
        handle = authority.submit(spin, 0.05)
        handle.result(PATIENCE_S)
        failed = authority.submit(int, "x")
        assert isinstance(failed.exception(PATIENCE_S), ValueError)
    assert (handle.usage.how, handle.usage.peak_ram) == ("thread", None)
    assert 0.05 <= handle.usage.cpu_s < 1
    assert failed.usage.cpu_s < 0.05


def allocate(megabytes, seconds=0.0):
    # A mapping is given back to the system as it is closed; an allocator may keep what was freed.
    with mmap.mmap(-1, megabytes * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as data:
        for at in range(0, len(data), 4096):
            data[at] = 1
        time.sleep(0.02 + seconds)
        return len(data)


def test_each_task_of_a_worker_process_has_its_own_peak():
    """U1: what an earlier task of the same process had does not count."""
    with Authority(slots=1, engine="process") as authority:
        authority.submit(os.getpid).result(PATIENCE_S)
        peaks = []
        for size in (200, 5, 100):
            handle = authority.submit(allocate, size)
            handle.result(PATIENCE_S)
            peaks.append(handle.usage.peak_ram)
        short = authority.submit(os.getpid)
        short.result(PATIENCE_S)
    base = peaks[1] - 5 * MB
    assert close_to(peaks[0] - base, 200 * MB)
    assert close_to(peaks[2] - base, 100 * MB)
    assert base < 120 * MB
    assert short.usage is None


def test_exit_codes_and_signals_are_fields():
    """U1, T2: of the handle and of the end event, as a shell has them."""
    with Authority() as authority:
        codes = []
        for text in ("exit 0", "exit 3", "kill -KILL $$"):
            handle = authority.submit(Command(text))
            handle.exception(PATIENCE_S)
            codes.append((handle.exit_code, handle.exit_signal))
        ends = [dict(event.details) for event in authority.events() if event.kind == "TASK_FINISHED"]
    assert codes == [(0, None), (3, None), (137, "SIGKILL")]
    assert [(end["exit_code"], end.get("exit_signal")) for end in ends] == codes
    assert all(end["peak_ram"] > 0 and end["cpu_ms"] >= 0 and end["measured"] == "sampled" for end in ends)


def test_a_command_that_uses_more_than_it_asked_for():
    """U2: the budget counts what is used, so that another one waits; the overdraft is told."""
    with Authority(slots=2, ram="250MB") as authority:
        greedy = authority.submit(Command([sys.executable, "-c", ALLOCATE, "150", "600"]), ram="20MB", id="greedy")
        until(lambda: [event for event in authority.events() if event.kind == "TASK_OVERDRAWN"], "the overdraft")
        until(lambda: authority.snapshot().budget[0].free < 130 * MB, lambda: authority.snapshot().budget)
        waits = authority.submit(Command("true"), ram="200MB")
        assert waits.state == "READY"
        assert "greedy" in str(waits.why())
        greedy.cancel()
        waits.result(PATIENCE_S)


@pytest.mark.parametrize("hard_ram", [False, True])
def test_memory_that_a_task_has_not_asked_for_counts_too(hard_ram):
    """U2, M10: whether the limit is soft or hard."""
    with Authority(slots=2, ram="1GB", hard_ram=hard_ram, grace=0.1) as authority:
        hog = authority.submit(Command([sys.executable, "-c", ALLOCATE, "80", "600"]))

        def counted():
            return next(gate.free for gate in authority.snapshot().budget if gate.name == "ram")

        until(lambda: counted() < 920 * MB, counted)
        hog.cancel()
        assert hog.exception(PATIENCE_S) is not None
        assert counted() == 1000 * MB
        authority.resize(ram="2GB")
        assert counted() == 2000 * MB


@pytest.mark.parametrize("engine", ["command", "process"])
def test_an_overdraft_may_be_the_end_and_the_next_attempt_asks_for_more(engine):
    """U2, U3: ERROR/out_of_memory, then the same with twice the demand, and so on up to what is enough."""
    with Authority(slots=1, overdraft="kill", ram="1GB", grace=0.1) as authority:
        if engine == "command":
            body, args = Command([sys.executable, "-c", ALLOCATE, "150", "1"]), ()
        else:
            body, args = allocate, (150, 1.0)
        once = authority.submit(body, *args, engine=engine, ram="50MB")
        with pytest.raises(TaskFailed, match=r"used more memory than the 50\.0 MB that it had asked for"):
            once.result(PATIENCE_S)
        assert once.cause == "out_of_memory"
        again = authority.submit(body, *args, engine=engine, ram="60MB", retry=Retry(3, grow={"ram": 2.0}))
        again.result(PATIENCE_S)
        assert len(again.attempts) in {2, 3}


# What it costs


def test_a_thousand_children_leave_nothing():
    """U1, O5: no cgroup, no file, no thread; the fixtures of all tests look for the rest."""
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    with Authority(slots=8) as authority:
        handles = [authority.submit(Command(["true"])) for _ in range(1000)]
        groups = set()
        for handle in handles:
            handle.result(PATIENCE_S)
            groups.add(handle.usage.how)
        assert groups == {"sampled"}
    after = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    assert after <= before


def test_the_meter_takes_little_of_a_processor():
    """U1: the more there is to look at, the longer it rests."""
    seen = []

    class Slow(Watch):
        def look(self):
            seen.append(time.thread_time())
            while time.thread_time() < seen[-1] + 0.001:
                pass

    watches = [meter.add(Slow(1)) for _ in range(3)]
    for watch in watches:
        watch.begin()
    try:
        until(lambda: len(seen) > 3, "a second look")
        began, used = time.monotonic(), len(seen)
        time.sleep(3)
        share = (len(seen) - used) * 0.001 / (time.monotonic() - began)
    finally:
        for watch in watches:
            meter.remove(watch)
        meter.end()
    assert share < 2 * meters.SHARE + 0.003 / 3


def test_usage_travels_in_events():
    """U1, V3: it is read again as it was told."""
    for usage in (Usage(1.5, 7, "cgroup"), Usage(0.25, None, "thread")):
        assert Usage.of(dict(usage.facts())) == usage
    assert Usage.of({"outcome": "success"}) is None


def test_measures_are_recorded_and_replayed(tmp_path):
    """U4, V3: measured facts reach the kernel as commands, so that a replay gives the same events to the byte."""
    path = tmp_path / "run.rec"
    with Authority(slots=1, overdraft="kill", ram="1GB", grace=0.1, record=path) as authority:
        command = Command([sys.executable, "-c", ALLOCATE, "150", "1"])
        authority.submit(command, ram="100MB", retry=Retry(2, grow={"ram": 2.0})).result(PATIENCE_S)
        events = authority.events()
    assert {"TASK_MEASURED", "TASK_OVERDRAWN", "TASK_RETRIED"} <= {event.kind for event in events}
    assert [event.to_dict() for event in Record(path).replay()][: len(events)] == [event.to_dict() for event in events]


def test_a_measure_of_before_does_not_count_for_what_begins_now():
    """U1: a process is measured anew for each task, also if it is being looked at that moment."""
    told = []

    class Slow(Watch):
        def _sampled(self):
            if not told:
                told.append("begun")
                self.begin()  # another thread does, in the midst of the look
            return 10**9

    watch = Slow(0, told=told.append)
    watch.look()
    assert (watch.peak, watch.ram, told) == (0, 0, ["begun"])
    watch.look()
    assert (watch.peak, watch.ram, told) == (10**9, 10**9, ["begun", 10**9])
