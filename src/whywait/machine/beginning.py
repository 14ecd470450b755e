"""Starting a service in the background, and waiting for one that begins or ends.

1. Of many clients that find no service, one starts it: the others wait for its turn at ``start-lock``.
2. A home that is taken by a service that does not listen is waited for: the service begins, ends, or listens again
   because its socket was removed.
3. The process that starts a service learns by a pipe that it listens, or why it does not: nothing is lost on a full
   disk.
4. A service that is started from inside a task or a job would end with it, so it is refused there.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from whywait.errors import MachineError
from whywait.machine.home import LEASE_VARIABLE, VARIABLE, Home, private
from whywait.trees.system import mark_of

LOOK_S: Final = 0.02
PATIENCE_S: Final = 60.0  # with a service that begins or ends at this moment; many jobs take it some seconds
KEPT_VARIABLES: Final = ("HOME", "PATH", "LANG", "TZ", "CUDA_VISIBLE_DEVICES", "WHYWAIT_CORE")
KEPT_PREFIXES: Final = ("LC_", "XDG_")


class Taken(MachineError):
    """Another service has the home."""

    def __init__(self, home: Home) -> None:
        """Say how to see it, and how to end it."""
        super().__init__(f"a service runs in {home.path} already: see whywait status, or end it with whywait down")


class Started(NamedTuple):
    """A service that listens."""

    pid: int
    says: str  # which options it has; empty if none
    notice: str | None  # what it has found damaged or missing in its store


def ensure_service(home: Home, runs: Callable[[], bool], say: Callable[[str], object]) -> None:
    """See that a service ``runs``: of many clients that find none at once, one starts it."""
    home.make()
    with open(home.start_lock, "wb", opener=private) as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        while not outwait(home, runs):
            try:
                started = start_service(home, [])
            except Taken:
                continue  # another one was quicker, and may still begin
            say(f"started the service of this machine (process {started.pid}){started.says}; whywait down ends it")
            if started.notice:
                say(started.notice)


def outwait(home: Home, runs: Callable[[], bool]) -> bool:
    """Wait while a service has the home and does not listen; return whether one listens then."""
    deadline = time.monotonic() + PATIENCE_S
    while not runs():
        if not home.is_taken():
            return False
        if time.monotonic() > deadline:
            raise MachineError(f"a service has {home.path} and does not answer; see {home.service_log}")
        time.sleep(LOOK_S)
    return True


def start_service(home: Home, options: Sequence[str]) -> Started:
    """Start ``whywait up`` in the background and wait until it listens."""
    if os.environ.get(LEASE_VARIABLE) or mark_of(os.getpid()):
        raise MachineError(
            "a service that is started from inside a task or a job would end with it: start it first, outside, by "
            "whywait up --detach"
        )
    home.make()
    listens, tells = os.pipe()
    with open(listens, "rb") as news, open(home.service_log, "ab", opener=private) as output:
        began = output.tell()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [sys.executable, "-m", "whywait", "up", *options, "--ready", str(tells)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(tells,),
                start_new_session=True,
                cwd="/",
                env=environment_of_service(home),
            )
        finally:
            os.close(tells)
        told = json.loads(news.read() or "{}")
        if "pid" in told:
            process.returncode = 0  # it goes on without us: no warning when this object goes
            return Started(**told)
        process.wait()
        if told.get("taken"):
            raise Taken(home)
        raise MachineError(told.get("problem") or _said(home, began))


def environment_of_service(home: Home) -> dict[str, str]:
    """Return what a service gets of the environment of the process that starts it: nothing that is private to that."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
    }
    return {**kept, VARIABLE: home.path}


def tell_starter(ready: str | None, **message: Any) -> None:
    """Tell the process that started this service that it listens, or why not, by the descriptor that it gave."""
    if ready is not None:
        with suppress(OSError):  # it may have ended
            os.write(int(ready), json.dumps(message).encode())
            os.close(int(ready))


def _said(home: Home, began: int) -> str:
    """Return what a service that did not start has left in its log, which has had ``began`` bytes before."""
    with open(home.service_log, "rb") as output:
        output.seek(began)
        said = output.read().decode(errors="replace").strip().removeprefix("whywait: ")
    return said or f"the service could not be started; see {home.service_log}"
