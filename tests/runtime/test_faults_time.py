"""Clocks that jump, machines that sleep for an hour, and work that never stops coming."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from kernel_driver import SECOND, Driver, end_of, kernel, policy
from whywait.kernel.limits import Retry
from whywait.kernel.order import Aging, Strict

HOUR = 3600 * SECOND
BACKGROUND, HIGH, CRITICAL = 0, 80, 100

JUMPING = """
    import itertools, time
    real, jumps = time.time, itertools.cycle((0.0, 1e6, -1e6, 1e9, -1e9))
    time.time = lambda: real() + next(jumps)
    time.time_ns = lambda: int(time.time() * 1e9)

    import threading
    from whywait import Authority, Retry, TaskDropped, TaskTimeout

    gate = threading.Event()
    fails = iter([True, True, False])

    def flaky():
        if next(fails):
            raise OSError

    with Authority(slots=1) as authority:
        ticks = []
        scope = authority.scope("work")
        periodic = scope.periodic(ticks.append, 1, every=0.01)
        scope.submit(flaky, retry=Retry(3, backoff=0.01)).result(20)
        late = scope.submit(lambda: gate.wait(20), timeout=0.05)
        dropped = scope.submit(int, max_wait=0.02)
        assert isinstance(dropped.exception(20), TaskDropped), dropped
        gate.set()
        assert late.exception(20) is None or isinstance(late.exception(), TaskTimeout)
        while len(ticks) < 5:
            time.sleep(0.005)
        waited = scope.submit(int)
        waited.result(20)
        assert 0 <= waited.why().waited < 20, waited.why().waited
        times = [event.time_ns for event in authority.events()]
        assert times == sorted(times)
    print("through")
"""


def test_a_wall_clock_that_jumps_moves_nothing():
    """C0, R2: timeouts, waits, backoff and ticks go by a clock that nobody sets; the wall clock leaps by decades."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(JUMPING)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "through\n", done.stderr


def test_an_hour_of_sleep():
    """R2, D3, T6, V2: all that came due meanwhile happens once, at the moment of waking; then all goes on."""
    driver = Driver(kernel(1))
    periodic = driver.periodic("tick", every=100, lasts=1, priority=CRITICAL)
    running = driver.submit("running", lasts=None, policy=policy(timeout=SECOND))
    patient = driver.submit("patient", lasts=5)
    impatient = driver.submit("impatient", policy=policy(max_wait=SECOND))
    retried = driver.submit("retried", fails=1, lasts=1, policy=policy(retry=1))
    driver.stall_until(HOUR)
    driver.until(HOUR + 50)
    assert end_of(running) == ("DISPOSED", "timeout", "run_timeout")
    assert end_of(patient)[1] == "success"
    assert end_of(impatient)[1:] in {("rejected", "max_wait"), ("success", None)}  # at that instant it has its chance
    assert end_of(retried)[1] == "success"
    (tick,) = [event for event in driver.events if event.kind == "PERIODIC_TICK"]
    assert dict(tick.details) == {"missed": HOUR // 100 - 1}
    driver.until(HOUR + 1050)
    assert periodic.run_count == 11
    assert driver.kernel.running == {}


def test_a_due_run_timeout_waits_for_reports_and_nothing_else_does():
    """T6, R2, T7, D3: ends that were reported are taken in first; ticks, backoff and max_wait go by the clock."""
    driver = Driver(kernel(3))
    periodic = driver.periodic("tick", every=100, lasts=1)
    ended, endless = (driver.submit(name, lasts=None, policy=policy(timeout=SECOND)) for name in ("ended", "endless"))
    retried = driver.submit("retried", fails=1, lasts=1, policy=policy(retry=Retry(1, backoff=2)))
    driver.until(SECOND - 1)
    blocking = driver.submit("blocking", lasts=None)
    impatient = driver.submit("impatient", policy=policy(max_wait=SECOND))
    driver.dispatch()
    assert (blocking.state, impatient.state) == ("RUNNING", "READY")
    ticks = periodic.run_count
    driver.stall_until(4 * SECOND, breath_ms=500)
    assert (ended.state, endless.state) == ("RUNNING", "RUNNING")
    assert periodic.run_count == ticks + 1
    assert end_of(impatient)[1:] == ("rejected", "max_wait")
    assert retried.state == "READY"
    driver.end(ended)
    driver.until(4.5 * SECOND - 1)
    assert (end_of(ended)[1], endless.state) == ("success", "RUNNING")
    assert periodic.run_count == ticks + 5
    driver.until(4.5 * SECOND)
    assert end_of(endless) == ("DISPOSED", "timeout", "run_timeout")


def test_an_hour_of_suspension():
    """O2, R5, V7: a scope is suspended for an hour; its tasks wait, its ticks are dropped one by one, others run on."""
    driver = Driver(kernel(1), check=False)
    scope = driver.scope("still")
    first = driver.submit("first", scope=scope, lasts=10)
    driver.until(10)
    waiting = driver.submit("waiting", scope=scope)
    driver.periodic("tick", every=SECOND, scope=scope, lasts=1)
    driver.suspend(scope)
    for minute in range(60):
        driver.at(10 + minute * 60 * SECOND)
        driver.submit(f"other{minute}", lasts=SECOND)
    driver.until(10 + HOUR - 1)
    assert (first.outcome, waiting.state) == ("success", "READY")
    assert len(driver.story("periodic_skipped")) == 3599
    assert driver.why(waiting).primary == "scope_state"
    driver.at(10 + HOUR)
    driver.resume_scope(scope)
    driver.until(20 + HOUR)
    assert waiting.outcome == "success"
    assert driver.waits(waiting)["scope_state"] == HOUR


def test_a_program_that_was_stopped_goes_on():
    """R2: SIGSTOP and SIGCONT: missed ticks are one trigger, and what was submitted runs."""
    program = """
        import sys, time
        from whywait import Authority
        with Authority(slots=1) as authority:
            scope = authority.scope("work")
            periodic = scope.periodic(int, every=0.005, id="tick")
            while periodic.status().run_count < 2:
                time.sleep(0.001)
            print("go", flush=True)
            sys.stdin.readline()
            missed = 0
            while missed < 6:  # a machine under load misses one now and then
                time.sleep(0.005)
                ticks = [event for event in authority.events() if event.kind == "PERIODIC_TICK"]
                missed = max(dict(event.details)["missed"] for event in ticks)
            assert authority.submit(abs, -1).result(20) == 1
        print("through", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "go\n"
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)  # the stop itself; it is long against the interval, whatever the machine
        os.kill(child.pid, signal.SIGCONT)
        assert child.communicate("\n", timeout=60)[0] == "through\n"
        assert child.returncode == 0


@pytest.mark.parametrize(("feed", "cap", "starts_at"), [(HIGH, 99, 40), (CRITICAL, 100, 50)])
def test_an_endless_feed_of_more_important_work_holds_nothing_up_for_ever(feed, cap, starts_at):
    """P4: BACKGROUND is level with HIGH at 40 s, with CRITICAL at 50 s if the cap allows; being older it is first."""
    driver = Driver(kernel(1, Aging(cap=cap)), check=False)
    lowest = driver.submit("lowest", BACKGROUND, lasts=SECOND)
    for second in range(120):
        driver.at(second * SECOND)
        for number in range(3):  # three times what can be done
            driver.submit(f"f{second}.{number}", feed, lasts=SECOND)
    driver.until(120 * SECOND)
    started = {name: at for at, name in driver.starts}
    assert starts_at * SECOND <= started["lowest"] <= 50 * SECOND
    assert lowest.outcome == "success"


def test_an_endless_feed_of_critical_work_starves_the_rest_below_the_cap_and_says_so():
    """P4, V2: with the cap as it is by default no waiting makes a task CRITICAL."""
    driver = Driver(kernel(1, Aging()), check=False)
    lowest = driver.submit("lowest", BACKGROUND)
    for second in range(120):
        driver.at(second * SECOND)
        driver.submit(f"f{second}", CRITICAL, lasts=SECOND)
    driver.until(120 * SECOND - 1)
    assert lowest.state == "READY"
    assert len(driver.story("starved")) == 1


def test_an_endless_feed_under_strict_order_starves_and_says_so():
    """P3, V2: it never starts, by intention, and is reported once."""
    driver = Driver(kernel(1, Strict()), check=False)
    lowest = driver.submit("lowest", BACKGROUND)
    for second in range(300):
        driver.at(second * SECOND)
        driver.submit(f"f{second}", HIGH, lasts=SECOND)
    driver.until(300 * SECOND - 1)
    assert lowest.state == "READY"
    assert len(driver.story("starved")) == 1
    assert driver.waits(lowest) == {"slot_higher": 300 * SECOND - 1}


def test_what_has_ended_while_the_program_was_stopped_has_not_timed_out(tmp_path):
    """T6: SIGSTOP for 4 s, bodies of 0.5 s with a timeout of 2 s, on threads, in processes and as commands."""
    program = tmp_path / "stopped.py"
    program.write_text(
        textwrap.dedent("""
        import time
        from whywait import Authority, Command

        if __name__ == "__main__":
            with Authority(slots=18) as authority:
                warm = [authority.submit(abs, number, engine="process") for number in range(6)]
                assert [handle.result(60) for handle in warm] == list(range(6))
                handles = []
                for _ in range(6):
                    handles.append(authority.submit(time.sleep, 0.5, timeout=2))
                    handles.append(authority.submit(time.sleep, 0.5, timeout=2, engine="process"))
                    handles.append(authority.submit(Command(["sleep", "0.5"]), timeout=2))
                while any(handle.state != "RUNNING" for handle in handles):
                    time.sleep(0.001)
                late = authority.submit(time.sleep, 30, timeout=2, engine="process")
                time.sleep(0.2)  # so that all commands have begun
                print("go", flush=True)
                print(*sorted({handle.exception(60) and handle.outcome or "success" for handle in handles}), flush=True)
                late.exception(60)
                print(late.outcome, flush=True)
        """)
    )
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "go\n"
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(4)
        os.kill(child.pid, signal.SIGCONT)
        assert child.communicate(timeout=60)[0] == "success\ntimeout\n"
        assert child.returncode == 0
