"""The watch over running commands: tells the reaper process which process groups must not survive this program."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from whywait.engines.forks import own

GOODBYE_S: Final = 1.0
_VARIABLE: Final = "WHYWAIT_COMMAND_OF"
_REAPER: Final = str(Path(__file__).with_name("reaper.py"))
_SEND_FLAGS: Final = getattr(socket, "MSG_NOSIGNAL", 0)


class Watch:
    """Keeps one reaper process, started with the first command and replaced should somebody kill it."""

    def __init__(self) -> None:
        """Start without a process."""
        self._lock = threading.Lock()
        self._mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._groups: set[int] = set()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variable by which the reaper finds a command that it has not been told of."""
        return {_VARIABLE: self._mark}

    def begin(self) -> None:
        """See that there is a reaper process."""
        with self._lock:
            if self._line is None:
                self._start()

    def add(self, group: int) -> None:
        """Have a process group killed if this program dies."""
        with self._lock:
            self._groups.add(group)
            self._send(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Leave a process group alone: it has ended."""
        with self._lock:
            self._groups.discard(group)
            if self._line is not None:
                self._send(f"-{group}\n")

    def close(self) -> None:
        """End the reaper process; it kills what is still listed and nothing else."""
        with self._lock:
            if self._line is not None:
                with suppress(OSError):  # it is gone
                    self._line.sendall(b"q\n", _SEND_FLAGS)
            self._hang_up()

    def let_go(self) -> None:
        """In a fork of this program: close the line, so that the reaper sees the original end."""
        if self._line is not None:
            self._line.close()

    def _send(self, text: str) -> None:
        if self._line is not None:
            try:
                self._line.sendall(text.encode(), _SEND_FLAGS)
            except OSError:
                self._hang_up()  # it is gone: another one gets the whole list
            else:
                return
        self._start()
        assert self._line is not None, "the reaper has its line"
        self._line.sendall("".join(f"+{group}\n" for group in self._groups).encode(), _SEND_FLAGS)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and script
                [sys.executable, "-I", "-S", _REAPER, f"{_VARIABLE}={self._mark}"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._line = ours
        own(self)

    def _hang_up(self) -> None:
        if self._line is None or self._process is None:
            return
        self._line.close()
        self._line = None
        try:
            self._process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
