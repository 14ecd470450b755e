"""The real program on a pseudo-terminal: what it drew, what it left, keys pressed and windows resized on the way."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

from program import clean_environment

LONGEST_S = 60
ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")


class Terminal:
    """Runs ``whywait``, or another program, with a terminal for all its streams and a session of its own."""

    def __init__(self, *args, program=(sys.executable, "-m", "whywait"), columns=80, rows=24, env=None, cwd=None):
        self.parent, child = pty.openpty()
        self.resize(columns, rows)
        environment = clean_environment("COLUMNS", "LINES", "NO_COLOR")
        environment |= {"TERM": "xterm-256color", **(env or {})}
        self.modes = termios.tcgetattr(child)
        self.program = subprocess.Popen(
            [*program, *map(str, args)],
            stdin=child, stdout=child, stderr=child, env=environment, cwd=cwd,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one ioctl
        )  # fmt: skip
        self.child = child  # kept open, so that the modes can be looked at when the program has left
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()
        os.close(self.parent)
        os.close(self.child)

    def resize(self, columns, rows):
        fcntl.ioctl(self.parent, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        """Send what the keys send: the terminal makes signals of some of them."""
        os.write(self.parent, keys.encode())

    def press_ctrl_c(self):
        self.press("\x03")

    def press_ctrl_z(self):
        self.press("\x1a")

    def until(self, text):
        """Read until the text has been drawn since the last call; return what was drawn."""
        return self.read(lambda drawn: text in ESCAPE.sub("", drawn))

    def end(self):
        """Read until the program has left; return its exit code."""
        self.read(lambda _: self.program.poll() is not None and not self._more(0.05))
        return self.program.wait(LONGEST_S)

    def text(self):
        """Return all that was drawn, without escapes."""
        return ESCAPE.sub("", self.seen).replace("\r\n", "\n")

    def is_clean(self):
        """Return whether modes are as before and the cursor is shown."""
        hidden, shown = self.seen.rfind("\x1b[?25l"), self.seen.rfind("\x1b[?25h")
        return termios.tcgetattr(self.child) == self.modes and shown >= hidden

    def _more(self, timeout):
        return bool(select.select([self.parent], [], [], timeout)[0])

    def read(self, is_enough):
        drawn = ""
        deadline = time.monotonic() + LONGEST_S
        while not is_enough(drawn):
            assert time.monotonic() < deadline, f"not seen within {LONGEST_S} s; drawn was:\n{self.seen}"
            if self._more(0.05):
                part = os.read(self.parent, 65536).decode(errors="replace")
                drawn += part
                self.seen += part
        return drawn
