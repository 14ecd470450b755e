"""Starting a service in the background, and waiting for one that starts.

1. Of many clients that find no service, one starts it: the others wait for its turn at ``start-lock``.
2. A home that is taken by a service that does not listen is waited for: the service begins, ends, or listens again
   because its socket was removed. A service that cannot begin leaves the reason in the file by which it had the home,
   so that all that wait are told.
3. The process that starts a service learns by a pipe that it listens, or why it does not: nothing is lost on a full
   disk.
4. A service that is started from inside a task or a job would end with it, so another process has to start it:
   ``systemd-run --user``, or none.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from whywait.errors import MachineError
from whywait.machine.home import LEASE_VARIABLE, VARIABLE, Home
from whywait.trees.system import mark_of

LOOK_S: Final = 0.02
PATIENCE_S: Final = 60.0  # with a service that begins or ends at this moment; many jobs take it some seconds
KEPT_VARIABLES: Final = ("HOME", "PATH", "LANG", "TZ", "CUDA_VISIBLE_DEVICES", "WHYWAIT_CORE")
KEPT_PREFIXES: Final = ("LC_", "XDG_")


class Taken(MachineError):  # noqa: N818 - it says what is so
    """Another service has the home."""

    def __init__(self, home: Home) -> None:
        """Say how to see it, and how to end it."""
        super().__init__(f"a service runs in {home.path} already: see whywait status, or end it with whywait down")


class Started(NamedTuple):
    """A service that listens."""

    pid: int
    says: str  # which options it has; empty if none
    notice: str | None  # what it has found damaged or missing in its store


def ensure_service(home: Home, runs: Callable[[], bool], say: Callable[[str], object] | None = None) -> None:
    """See that a service ``runs``: of many clients that find none at once, one starts it."""
    home.make()
    before = home.told()
    with open(home.start_lock, "wb", opener=_private) as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        raise_problem_since(home, before)
        while not outwait(home, runs):
            try:
                started = start_service(home, [])
            except Taken:
                continue  # another one was quicker, and may still begin
            if say is not None:
                say(f"started the service of this machine (process {started.pid}){started.says}; whywait down ends it")
                if started.notice:
                    say(started.notice)


def outwait(home: Home, runs: Callable[[], bool]) -> bool:
    """Wait while a service has the home and does not listen; return whether one listens then."""
    before = home.told()
    deadline = time.monotonic() + PATIENCE_S
    while not runs():
        if not home.is_taken():
            raise_problem_since(home, before)
            return False
        if time.monotonic() > deadline:
            pid, _ = home.told()
            raise MachineError(f"a service (process {pid}) has {home.path} and does not answer; see {home.service_log}")
        time.sleep(LOOK_S)
    return True


def raise_problem_since(home: Home, before: tuple[int, str]) -> None:
    """Raise what a service has told since that could not begin."""
    told = home.told()
    if told[1] and told != before:
        raise MachineError(told[1])


def start_service(home: Home, options: Sequence[str]) -> Started:
    """Start ``whywait up`` in the background and wait until it listens."""
    home.make()
    listens, tells = os.pipe()
    try:
        with open(home.service_log, "ab", opener=_private) as output:
            os.chmod(home.service_log, 0o600)
            began = output.tell()
            command = [sys.executable, "-m", "whywait", "up", *options, "--ready"]
            process = None
            if is_inside():
                _start_by_systemd(home, [*command, f"/proc/{os.getpid()}/fd/{tells}"])
            else:
                process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                    [*command, str(tells)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(tells,),
                    start_new_session=True,
                    cwd="/",
                    env=environment_of_service(home),
                )
                tells = _closed(tells)  # so that the end of the process can be read too
        told = _read(listens, PATIENCE_S if process is None else None)
    finally:
        os.close(listens)
        _closed(tells)
    problem = told["problem"] if "problem" in told else None if told else _said(home, began)
    if problem is None:
        if process is not None:
            process.returncode = 0  # it goes on without us: no warning when this object goes
        return Started(told["pid"], told["says"], told["notice"])
    if process is not None:
        process.wait()
    raise Taken(home) if told.get("taken") else MachineError(problem)


def is_inside() -> bool:
    """Return whether this process belongs to a task or a job, or to a block under a lease, and ends with it."""
    return bool(os.environ.get(LEASE_VARIABLE)) or mark_of(os.getpid()) != 0


def environment_of_service(home: Home) -> dict[str, str]:
    """Return what a service gets of the environment of the process that starts it: nothing that is private to that."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES)
    }
    return {**kept, VARIABLE: home.path}


def _start_by_systemd(home: Home, command: Sequence[str]) -> None:
    """Have systemd start a service, outside of this tree of processes."""
    log = home.service_log.replace("%", "%%")
    call = ["systemd-run", "--user", "--quiet", "--collect", "--description=whywait: the service of this machine"]
    call += [f"--property={each}" for each in ("Type=exec", "Delegate=yes", "KillMode=mixed", "WorkingDirectory=/")]
    call += [f"--property=Standard{each}=append:{log}" for each in ("Output", "Error")]
    call += [f"--setenv={name}={value}" for name, value in environment_of_service(home).items()]
    environment = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ}  # by which the manager is found
    try:
        done = subprocess.run([*call, "--", *command], env=environment, capture_output=True, check=False)  # noqa: S603 - as above
        if not done.returncode:
            return
        why = done.stderr.decode(errors="replace").strip().partition("\n")[0] or f"exit {done.returncode}"
    except OSError as error:
        why = error.strerror or str(error)
    raise MachineError(
        "a service that is started from inside a task or a job would end with it, and systemd-run --user, which could "
        f"start it outside, does not work here ({why}): start it first, outside, by whywait up --detach"
    )


def tell_starter(ready: str | None, **message: Any) -> None:  # noqa: ANN401 - JSON
    """Tell the process that started this service that it listens, or why not; ``ready``: a descriptor or its path."""
    if ready is not None:
        with suppress(OSError):  # it may have ended
            fd = int(ready) if ready.isdecimal() else os.open(ready, os.O_WRONLY)
            os.write(fd, json.dumps(message).encode())
            os.close(fd)


def _read(fd: int, timeout_s: float | None) -> Mapping[str, Any]:
    """Return what a service tells; nothing if it ends, or the time does, before."""
    parts = []
    while select.select([fd], [], [], timeout_s)[0] and (part := os.read(fd, 65536)):
        parts.append(part)
        try:
            told: Mapping[str, Any] = json.loads(b"".join(parts))
        except ValueError:
            continue  # the rest is to come
        return told
    return {}


def _closed(fd: int) -> int:
    """Close a descriptor if it is one; return what is none."""
    if fd >= 0:
        os.close(fd)
    return -1


def _said(home: Home, began: int) -> str:
    """Return what a service that did not start has left in its log, which has had ``began`` bytes before."""
    with open(home.service_log, "rb") as output:
        output.seek(began)
        said = output.read().decode(errors="replace").strip().removeprefix("whywait: ")
    return said or f"the service could not be started; see {home.service_log}"


def _private(path: str, flags: int) -> int:
    """Open a file that only its user can read."""
    return os.open(path, flags, 0o600)
