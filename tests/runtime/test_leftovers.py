"""A program that ends before its tasks: what is lost is named."""

import subprocess
import sys
import textwrap

import pytest

PATIENCE_S = 60


def run(code):
    """Run a program; return its exit code and what it wrote to stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)],  # of forks beside threads
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr


def test_tasks_that_the_end_of_the_program_cuts_off_are_named():
    """D5: never silent; the end is not held up either."""
    code, told = run("""
        import threading
        from whywait import Authority
        authority = Authority(slots=1)
        for number in range(7):
            authority.submit(threading.Event().wait, id=f"task-{number}")
    """)
    assert code == 0
    assert "ends before 7 of its tasks have (task-0, task-1, task-2, task-3, task-4, ...): leave the authority" in told


@pytest.mark.parametrize(
    "code",
    [
        "with Authority() as authority: authority.submit(int)",
        "authority = Authority(); authority.submit(int).result()",
        "Executor().submit(int)",
        "authority = Authority(); authority.submit(int).result(); os.fork() and authority.dispose()",
    ],
)
def test_who_has_nothing_left_hears_nothing(code):
    """O6: a block, an executor, or all tasks done."""
    assert run(f"import os; from whywait import Authority, Executor\n{code}") == (0, "")
