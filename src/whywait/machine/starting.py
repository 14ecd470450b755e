"""Starting a service in the background: nothing that it says before it listens is lost."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from whywait.errors import MachineError
from whywait.machine.home import Home

LOOK_S: Final = 0.02
READY: Final = b"ready"  # what the service tells the process that started it; anything else is why it did not start
PATIENCE_S: Final = 20.0  # with a service that begins or ends at this moment


def ensure_service(home: Home, runs: Callable[[], bool], say: Callable[[str], object] | None = None) -> None:
    """See that a service ``runs``: of many clients that find none at once, one starts it."""
    home.make()
    with open(home.start_lock, "wb", opener=_private) as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        deadline = time.monotonic() + PATIENCE_S
        while not runs():
            if not home.is_taken():
                pid = start_service(home, [])
                if say is not None:
                    say(f"started the service of this machine (process {pid}); whywait down ends it")
                return
            if time.monotonic() > deadline:
                raise MachineError(f"a service has {home.path} and does not answer; see {home.service_log}")
            time.sleep(LOOK_S)


def start_service(home: Home, options: Sequence[str]) -> int:
    """Start ``whywait up`` in the background and wait until it listens; return its process id."""
    home.make()
    listens, tells = os.pipe()
    try:
        with open(home.service_log, "ab") as output:
            os.chmod(home.service_log, 0o600)
            began = output.tell()
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [sys.executable, "-m", "whywait", "up", *options, "--ready-fd", str(tells)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(tells,),
                start_new_session=True,
                cwd="/",
                env={**os.environ, "WHYWAIT_HOME": home.path},
            )
    finally:
        os.close(tells)
    with os.fdopen(listens, "rb") as pipe:
        told = pipe.read()
    if told != READY:
        process.wait()
        raise MachineError(told.decode(errors="replace") or _said(home, began))
    process.returncode = 0  # it goes on without us: no warning when this object goes
    return process.pid


def _said(home: Home, began: int) -> str:
    """Return what a service that did not start has left in its log, which has had ``began`` bytes before."""
    with open(home.service_log, "rb") as output:
        output.seek(began)
        said = output.read().decode(errors="replace").strip().removeprefix("whywait: ")
    return said or f"the service could not be started; see {home.service_log}"


def _private(path: str, flags: int) -> int:
    """Open a file that only its user can read."""
    return os.open(path, flags, 0o600)
