"""Faults that show after a long time or many tries only. ``--scale 1`` is a full run."""

import gc
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from itertools import count
from pathlib import Path

import pytest

import interleave
from commands import drive
from model.simulate import simulate
from patience import until
from process_bodies import marked, pid
from strategies import Seeded, make_workload
from stress import Storm
from whywait import Authority, Simulation

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def quiet():
    """Do not keep a line in memory for each of a million failures."""
    log = logging.getLogger("whywait")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


def simulate_both(seed):
    """Simulate a random workload by the kernel and by the model."""
    workload = make_workload(Seeded(seed))
    told, expected = Simulation(workload).run().to_dict(), simulate(workload)
    assert {part: told[part] for part in ("events", "final")} == {part: expected[part] for part in ("events", "final")}


STORMS = {"commands": (lambda seed: drive(Seeded(seed), 60), 20_000), "workload": (simulate_both, 100_000)}


@pytest.mark.parametrize("kind", STORMS)
def test_storms_in_virtual_time(kind, scale, seed, figures):
    """C0, V3: the kernel and the model agree on every seed; ``--seed`` tries one again."""
    run, count = STORMS[kind]
    runs = max(1, round(count * scale))
    for number in range(seed, seed + runs):
        try:
            run(number)
        except BaseException:
            print(f"--seed {number}")
            raise
    figures.update(first_seed=seed, runs=runs)


def resident_mb():
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / 1e6


def fail_or_not(number, alive):
    if number % 10 == 0:
        raise TracedError(number, alive)
    return number


class TracedError(Exception):
    """Counts how many of its kind are still there."""

    def __init__(self, number, alive):
        super().__init__(number)
        self.alive = alive
        alive.append(None)

    def __del__(self):
        self.alive.pop()


def test_completions_leave_memory_flat(scale, figures):
    """T5, T9: ten million ends, one in ten with an error: memory does not grow, and errors go with their handles."""
    total = round(10_000_000 * scale)
    batch, alive, sizes = 1000, [], []
    began = time.monotonic()
    with Authority(slots=2) as authority:
        for done in range(0, total, batch):
            handles = [authority.submit(fail_or_not, number, alive) for number in range(batch)]
            failed = sum(handle.exception(WAIT_S) is not None for handle in handles)
            assert failed == batch // 10
            del handles
            if done // batch % max(1, total // batch // 100) == 0:
                sizes.append(resident_mb())
        until(lambda: gc.collect() is not None and len(alive) <= 2)  # one for each thread's last error, at most
        stats = authority.stats()
    quarter = len(sizes) // 4
    early, late = max(sizes[quarter : 2 * quarter]), max(sizes[3 * quarter :])
    assert late < early + 2, sizes
    figures.update(
        completions=stats["completed"],
        failures=stats["by_outcome"]["error"],
        megabytes_after_half=round(early, 1),
        megabytes_at_the_end=round(late, 1),
        errors_still_alive=len(alive),
        microseconds_each=round((time.monotonic() - began) / total * 1e6, 1),
    )


@pytest.mark.parametrize("act", [interleave.cancel, interleave.dispose])
def test_both_are_held_at_every_pair_of_lines(act, scale, figures):
    """X3, T2: an end and a cancel, each held at a line, go on in either order."""
    stride = max(1, round(scale**-0.5))
    tried, outcomes = 0, set()
    for finish_line in count(0, stride):
        reached = False
        for act_line in count(0, stride):
            pairs = [
                interleave.meet("thread", act, finish_line, act_line, comes_first="actor", goes_on_first=first)
                for first in ("actor", "finisher")
            ]
            tried += len(pairs)
            outcomes.update(outcome for _, outcome in pairs)
            reached = reached or any(held[0] is not None for held, _ in pairs)
            if all(held[1] is None for held, _ in pairs):
                break
        if not reached:
            break
    assert outcomes == {"success", "aborted"}
    figures.update(interleavings=tried, every_so_many_lines=stride)


def test_threads_in_a_storm(scale, seed, figures):
    """S2, T2, X3, O4: many threads, random pauses, cancels and disposals, the interpreter switching all the time."""
    found = Storm(seed, threads=16, seconds=max(5.0, 600 * scale), operations=sys.maxsize).run()
    figures.update(found)


PARENT = """
    import sys, time
    from whywait import Authority, Command
    a = Authority(slots=6)
    bodies = [a.submit(time.sleep, 1000, engine="process") for _ in range(3)]
    commands = [a.submit(Command("trap '' TERM; sleep 1000 & sleep 1000")) for _ in range(3)]
    print("up", flush=True)
    time.sleep(1000)
"""


def test_nobody_outlives_a_killed_parent(scale, seed, figures):
    """O5: SIGKILL to the program at a random moment; two seconds later none of its descendants is left."""
    dice = random.Random(seed)
    worst = 0.0
    tries = max(5, round(100 * scale))
    for _ in range(tries):
        mark = f"whywait-soak-{uuid.uuid4()}"
        program = [sys.executable, "-c", textwrap.dedent(PARENT)]
        with subprocess.Popen(program, stdout=subprocess.PIPE, env={**os.environ, "MARK": mark}) as parent:
            assert parent.stdout.readline() == b"up\n"
            time.sleep(dice.random() * 0.5)
            parent.kill()
            parent.wait()
            killed = time.monotonic()
            until(lambda mark=mark: not marked(mark), "the end of all descendants")
            worst = max(worst, time.monotonic() - killed)
    assert worst < 2.0
    figures.update(kills=tries, longest_survival_ms=round(worst * 1000))


def test_workers_die_at_any_moment(scale, seed, figures):
    """T2, T4: whenever a worker process is killed, its task ends once and its slot comes back."""
    dice = random.Random(seed)
    total = max(500, round(50_000 * scale))
    lost = killed = 0
    with Authority(slots=3, engine="process") as authority:
        known = set()
        for _ in range(0, total, 100):
            handles = [authority.submit(pid) for _ in range(100)]
            if known and dice.random() < 0.7:
                time.sleep(dice.random() * 0.003)
                victim = dice.choice(sorted(known))
                known.discard(victim)
                if Path(f"/proc/{victim}/stat").exists():
                    os.kill(victim, signal.SIGKILL)
                    killed += 1
            for handle in handles:
                if handle.exception(WAIT_S) is None:
                    known.add(handle.result())
                else:
                    assert handle.cause == "worker_lost"
                    lost += 1
            known = {worker for worker in known if _is_descendant(worker)}
        stats = authority.stats()
    assert stats["active"] == 0
    assert killed > total // 1000, "too few were killed to say anything"
    figures.update(tasks=stats["completed"], killed=killed, lost=lost)


def _is_descendant(process):
    """Return whether a process lives and was started, by whatever guards, by this program."""
    while process > 1:
        try:
            stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        except OSError:
            return False
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state in "ZX":
            return False
        if int(parent) == os.getpid():
            return True
        process = int(parent)
    return False
