"""A program that ends before its tasks: what is lost is named."""

import re
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

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


STUCK = 'a thread cannot be ended from outside: have the body call current().checkpoint(), or use engine="process"'


def test_tasks_that_ignore_the_end_of_their_authority_are_named_with_what_helps():
    """O5, D5: the authority was disposed of, so that is not what is advised; the blocks around do not wait again."""
    code, told = run("""
        import asyncio, threading
        from whywait import Authority, DisposeIncomplete

        async def serve():
            async with Authority(slots=1) as authority, authority.scope("jobs") as jobs:
                stuck = jobs.submit(threading.Event().wait, id="stuck")
                while stuck.state != "RUNNING":
                    await asyncio.sleep(0.001)
                await authority.dispose_async(grace=0.05)

        try:
            asyncio.run(serve())
        except DisposeIncomplete as error:
            assert error.__context__ is None, error.__context__
    """)
    assert code == 0
    assert told.splitlines() == [
        f"the program ends while 1 of its tasks still run, though they were asked to end (stuck); {STUCK}"
    ]


def test_the_how_to_for_fastapi_ends_with_advice_that_helps(tmp_path):
    """O5, D5: SIGINT, while a body on a thread never ends: one error that names it and says what to do."""
    pytest.importorskip("fastapi")
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "fastapi.md").read_text(encoding="utf-8")
    (tmp_path / "app.py").write_text(
        re.search(r"```python\n(.*?)```", page, re.DOTALL)[1].replace("grace=5", "grace=0.2")
    )
    log = tmp_path / "log"
    command = [sys.executable, "-m", "uvicorn", "app:app", "--fd", "0", "--lifespan", "on"]
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        log.open("w") as out,
        subprocess.Popen(command, stdin=listening, stderr=out, stdout=out, cwd=tmp_path) as server,
    ):
        asked = urllib.request.Request(f"http://127.0.0.1:{listening.getsockname()[1]}/jobs/cat", method="POST")
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            assert answer.status == 202
        server.send_signal(signal.SIGINT)
        server.wait(PATIENCE_S)
    told = log.read_text()
    assert told.count(f"resize@1 still running 0.2 s after the abort signal; {STUCK}") == 1, told
    assert told.count("DisposeIncomplete:") == 1
    assert told.rstrip().endswith(STUCK)
    assert "dispose of it" not in told
