"""Locks that no exception out of nowhere leaves taken."""

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import whywait
from patience import FREE_THREADED
from whywait.support.locks import SafeLock

ALARMS = 1000
PLAIN = {  # locks of the standard library's, and why a signal does no harm there
    "cli/bench_workload.py": "taken by threads of the engine only",
    "engines/thread.py": "a latch that one thread waits for",
    "engines/ray/collector.py": "taken by the pump's thread and its own; by others as their last act",
    "machine/store.py": "the condition of a SafeLock, which is taken in its place; a latch that one thread waits for",
    "runtime/clock.py": "the condition of a SafeLock, which is taken in its place",
    "runtime/watching.py": "a latch that one thread waits for",
    "support/waiters.py": "a latch that one thread waits for",
}


class Alarm(BaseException):
    """What the handler raises."""


def test_a_signal_leaves_no_lock_taken():
    """O6: wherever it comes, also in a block inside a block."""

    def ring(number, frame):
        raise Alarm

    def take():
        with lock:
            pass

    def take_again():
        with lock, lock:
            pass

    lock = SafeLock()
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(ALARMS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + number % 97 * 1e-6)
                while True:
                    take()
                    take_again()
            except Alarm:
                assert not lock._is_owned(), number
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


WITHOUT_MEMORY = """
import _testcapi, threading
from whywait.support.locks import SafeLock

def take(lock):
    with lock:
        pass

def take_and_raise(lock):
    with lock:
        raise ValueError

def attack():
    for use, missing in ((take, 1), (take, 30), (take_and_raise, 1), (take_and_raise, 30)):
        for first in range(12):
            lock = SafeLock()
            kept = [(each,) * size for size in range(1, 6) for each in range(2100)]  # none is left for reuse
            _testcapi.set_nomemory(first, first + missing)
            try:
                use(lock)
            except BaseException as error:
                _testcapi.remove_mem_hooks()
                failed.append(type(error))
            _testcapi.remove_mem_hooks()
            taken.append(lock._is_owned())

failed, taken = [], []
thread = threading.Thread(target=attack)
thread.start()
thread.join()
print(failed.count(MemoryError), len(taken), any(taken))
"""


@pytest.mark.skipif(FREE_THREADED, reason="a free-threaded interpreter without memory crashes, with any threads")
def test_a_lack_of_memory_leaves_no_lock_taken():
    """O6: whichever allocation fails, alone or with all after it, in a thread that gets no signals."""
    pytest.importorskip("_testcapi", reason="this Python cannot be told to be out of memory")
    command = [sys.executable, "-c", WITHOUT_MEMORY]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    failures, uses, is_taken = ended.stdout.split() or [ended.stderr, "", ""]
    assert (uses, is_taken) == ("48", "False"), failures
    assert int(failures) > 2, "there was no lack of memory"


def test_locks_that_a_signal_may_meet_are_safe():
    """O6: what a thread with signals takes is a SafeLock; the others are listed here."""
    source = Path(whywait.__file__).parent
    plain = re.compile(r"\bthreading\.(R?Lock|Condition|(Bounded)?Semaphore)\(")
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if plain.search(path.read_text())}
    assert found == set(PLAIN)


JUMPS_BACK = {  # blocks that take a lock and have a loop with a condition, and why a signal does no harm there
    "runtime/clock.py:_next": "on the clock's thread, which gets no signals",
}
LOCKS = re.compile(r"(lock|_guard|_mending|_attaching|_numbering|_turn)$")


def takes_lock(block):
    return any(LOCKS.search(ast.unparse(item.context_expr)) for item in block.items)


def jumps_back(node):
    """Whether a statement, in its own frame, has a jump back that depends on a condition."""
    if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | ast.GeneratorExp):
        return False
    if isinstance(node, ast.While | ast.Continue):
        return True
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp) and any(each.ifs for each in node.generators):
        return True
    if isinstance(node, ast.For | ast.AsyncFor) and isinstance(node.body[-1], ast.If | ast.Assert):
        return True
    return any(map(jumps_back, ast.iter_child_nodes(node)))


def test_no_block_that_takes_a_lock_has_a_conditional_jump_back():
    """O6: from Python 3.12 to 3.14 a signal that comes with one leaves the block, and the lock taken."""
    source = Path(whywait.__file__).parent
    found = set()
    for path in source.rglob("*.py"):
        functions = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.FunctionDef)]
        for function in functions:
            blocks = (each for each in ast.walk(function) if isinstance(each, ast.With))
            taking = (
                each for each in blocks if any(LOCKS.search(ast.unparse(item.context_expr)) for item in each.items)
            )
            if any(jumps_back(statement) for block in taking for statement in block.body):
                found.add(f"{path.relative_to(source)}:{function.name}")
    assert found == set(JUMPS_BACK)
