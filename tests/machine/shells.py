"""An interactive bash on a pseudo-terminal, with job control, as a person uses it."""

import os
import re
import sys
from typing import NamedTuple

from terminal import ESCAPE, Terminal


class Line(NamedTuple):
    """What a command printed, and ``$?`` after it."""

    out: str
    status: int


class Shell(Terminal):
    """Types commands into bash and reads what comes back; ``whywait`` is the program of this checkout."""

    PROMPT = re.compile(r"ready-(\d+)> ")

    def __init__(self, machine, **options):
        self._position = 0  # in what was drawn: up to here it was read
        super().__init__(
            "--norc", "--noprofile", "-i", program=("bash",), cwd=machine.home.parent, columns=200,
            env={"WHYWAIT_HOME": str(machine.home), "PATH": f"{program_in(machine.home.parent)}:{os.environ['PATH']}"},
            **options,
        )  # fmt: skip
        self.run("bind 'set enable-bracketed-paste off'; set +o history; PS1='ready-$?> '")

    def type(self, command):
        """Type a command without waiting for its end; ``finish`` does."""
        self.press(f"{command}\n")

    def until(self, text):
        """Read until the text has been drawn since what was read last; return all up to its end."""
        return self._expect(re.compile(re.escape(text)))[0]

    def finish(self):
        """Wait until the shell prompts again; return what was printed and the status."""
        drawn, found = self._expect(self.PROMPT)
        return Line(ESCAPE.sub("", drawn[: found.start()]).replace("\r", ""), int(found[1]))

    def run(self, command):
        """Type a command, and wait for its end."""
        self.type(command)
        return self.finish()

    def _expect(self, pattern):
        """Read until the pattern is found; what was drawn after it is left for the next call."""
        self.read(lambda _: pattern.search(self.seen, self._position))
        found = pattern.search(self.seen, self._position)
        drawn = self.seen[self._position : found.end()]
        found = pattern.search(drawn)
        self._position += len(drawn)
        return drawn, found


def program_in(folder):
    """Return a folder in which a shell finds ``whywait``."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    program = place / "whywait"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m whywait "$@"\n')
    program.chmod(0o755)
    return place
