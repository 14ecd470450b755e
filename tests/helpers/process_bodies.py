"""Bodies for the tests of the process engine, and what these tests share; imported by worker processes too."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import whywait
from patience import PATIENCE_S, until


def is_alive(pid):
    """Return whether a process runs; one that has ended and was not reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def marked(mark):
    """Return the pids of living processes whose environment carries the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark.encode() in entry.joinpath("environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if is_alive(pid)]


@contextmanager
def no_process_left(mark):
    """Mark all processes started inside; fail if one is left in the end."""
    os.environ["WHYWAIT_TEST_MARK"] = mark
    yield
    del os.environ["WHYWAIT_TEST_MARK"]
    until(lambda: not marked(mark), "the end of all processes")


def is_free(authority):
    """Return whether an authority still works, and no slot is lost."""
    return authority.submit(add, 1, 1).result(PATIENCE_S) == 2 and authority.stats()["active"] <= 1


def run_script(program, *args, **options):
    """Start a program of its own."""
    return subprocess.Popen([sys.executable, "-c", program, *map(str, args)], **options)


def read(path):
    """Return the text of a file, empty while it is not there."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def add(a, b=0):
    return a + b


def pid():
    return os.getpid()


def wait_for_file(path):
    """Run until there is a file; heed the signal."""
    while not Path(path).exists():
        whywait.current().checkpoint()
        time.sleep(0.005)


def echo(value):
    return value


def write_pid(path):
    """Let the test know that the body runs, and where."""
    part = Path(f"{path}.{os.getpid()}.part")  # bodies in several processes may write the same
    part.write_text(str(os.getpid()), encoding="utf-8")
    part.rename(path)


def deaf(path):
    """Run on whatever one is told."""
    write_pid(path)
    while True:
        time.sleep(0.02)


def stepping(path, until_there):
    """Pass one checkpoint after the other until a file is there; return how many."""
    write_pid(path)
    task, count = whywait.current(), 0
    while not Path(until_there).exists():
        task.checkpoint()
        count += 1
        Path(f"{path}.count").write_text(str(count), encoding="utf-8")
        time.sleep(0.005)
    return count


async def stepping_async(path, until_there):
    write_pid(path)
    while not read(until_there):
        await whywait.current().checkpoint_async()
        await asyncio.sleep(0.005)
    return whywait.current().ref


async def sleeping_async(path):
    write_pid(path)
    await asyncio.sleep(1000)


def die(how):
    """End this very process."""
    if how == "os._exit":
        os._exit(3)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(PATIENCE_S)


def die_while_answering():
    """Send half of an answer and end."""
    from whywait.engines.process import child
    from whywait.engines.process.frames import HEAD

    def half(fd, kind, payload):
        os.write(fd, HEAD.pack(len(payload) + 100, kind) + b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    child.write_frame = half


def answer_nonsense():
    """Put something that is no frame where the answer is expected."""
    from whywait.engines.process import child

    child.write_frame = lambda fd, _kind, _payload: os.write(fd, b"\xff" * 64)


class CustomError(Exception):
    def __init__(self, message, code):
        super().__init__(message, code)
        self.code = code


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("never")


class OneWayError(Exception):
    """Pickles, but cannot be made again from its arguments."""

    def __init__(self, one, two):
        super().__init__(one)


def fail(kind):
    if kind == "custom":
        raise CustomError("it broke", 7)
    if kind == "unpicklable":
        raise UnpicklableError("local")
    if kind == "one way":
        raise OneWayError(1, 2)
    raise ValueError(kind)


def _explode(where, how):
    if (os.getpid() == where) == (how == "here"):
        raise RuntimeError("boom")
    return Bomb(where, how)


def _kill_here():
    os.kill(os.getpid(), signal.SIGKILL)


class Bomb:
    """Explodes when it is unpickled: in the process ``where``, or in any other."""

    def __init__(self, where, how):
        self.where, self.how = where, how

    def __reduce__(self):
        return _explode, (self.where, self.how)


class Killer:
    """Kills whoever unpickles it."""

    def __reduce__(self):
        return _kill_here, ()


class NoPickle:
    def __reduce__(self):
        raise RuntimeError("I stay here")


class SlowToPickle:
    """Waits, while it is pickled, for a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        until(lambda: Path(self.path).exists())
        return str, ("slow",)


def make(kind, *args):
    return {"bomb": Bomb, "no pickle": NoPickle, "lock": threading.Lock}[kind](*args)


def fork_and_fall_through():
    """Return twice: from here and from a copy of here."""
    return "child" if os.fork() == 0 else "worker"


def fork_and_wait(path):
    """Leave a copy that sleeps, then wait oneself."""
    if os.fork() == 0:
        time.sleep(1000)
    deaf(path)


def start_helper(path):
    """Start a program, tell its pid, and never end."""
    helper = subprocess.Popen(["sleep", "1000"])
    Path(f"{path}.helper").write_text(str(helper.pid), encoding="utf-8")
    deaf(path)


def look():
    """Ask for what only the process of the authority has."""
    return whywait.current().snapshot()


def puts(queue):
    """Put into a queue."""
    queue.put(1)


def asks_for_queue(limit):
    """Ask for a queue with a limit; return what is raised."""
    try:
        whywait.current().queue("x", limit=limit)
    except whywait.WhywaitError as error:
        return str(error)
    return None


def checks_until(path):
    """Pass checkpoints until there is a file."""
    Path(f"{path}.begun").touch()
    while not Path(path).exists():
        whywait.current().checkpoint()
        time.sleep(0.001)
    return "went"
