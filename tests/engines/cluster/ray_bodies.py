"""Bodies for the tests of faults; they reach the workers by name."""

import os
import threading
import time
from pathlib import Path

import whywait


def pid_and_wait(path):
    """Write the own process id into a file and wait for the signal."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    whywait.current().signal.wait()
    return "told to end"


def once_lost(path):
    """Wait for ever at the first call, return at the second."""
    if Path(path).exists():
        return "second"
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    while True:
        time.sleep(0.05)


def deaf(path):
    """Write the own process id into a file and never look at anything again."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    while True:
        time.sleep(0.05)


def mark(path):
    """Leave a mark for each call."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("x")


class Explosive:
    """Can be pickled, and not unpickled on a node."""

    def __reduce__(self):
        """Travel as something that raises."""
        return explode, (os.getpid(),)


def explode(pid):
    """Raise in another process than this one."""
    if pid != os.getpid():
        raise RuntimeError("unpickled on a node")
    return Explosive()


def devices():
    """Return the units of this body, and the cards that CUDA would see."""
    return whywait.current().devices, os.environ.get("CUDA_VISIBLE_DEVICES")


def large(size):
    """Return so many bytes."""
    return b"x" * size


def lock_if(wanted):
    """Return what cannot be pickled if it is wanted."""
    return threading.Lock() if wanted else None


def length(data):
    """Return how many bytes there are."""
    return len(data)


def where():
    """Return the node that this runs on."""
    import ray

    return ray.get_runtime_context().get_node_id()


def nothing(value=None):
    """Return what was given."""
    return value


def tell(value):
    """Say something, and wait until it is heard: a stream of one chunk."""
    whywait.current().emit(value)
    return value


def tell_and_end():
    """Have an event recorded, and wait for nothing."""
    context = whywait.current()
    context.handler(abs, 1)


def square(value):
    """Return the square."""
    return value * value


async def plus(*values):
    """Return the sum, in a coroutine."""
    return sum(values)
