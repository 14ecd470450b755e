"""A machine of its own for a test: a home in a temporary folder, and the real program against it."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from unittest.mock import patch

from program import clean_environment, whywait


class Machine:
    """A home and the program."""

    def __init__(self, home):
        self.home = home
        self.environment = {**clean_environment(), "WHYWAIT_HOME": str(home)}

    def run(self, *args, stdin="", cwd=None, env=None):
        """Run the program to its end."""
        return whywait(*args, stdin=stdin, cwd=cwd, env={"WHYWAIT_HOME": str(self.home), **(env or {})})

    def start(self, *args, **options):
        """Start the program and return the process."""
        return subprocess.Popen(self.command(*args), env=self.environment, **options)

    @staticmethod
    def command(*args):
        return [sys.executable, "-m", "whywait", *map(str, args)]

    def up(self, *options):
        done = self.run("up", "--detach", "--pause-timeout", "30s", *options)  # a busy computer takes its time
        assert done.code == 0, done

    def add(self, *args):
        """Add a job; return its id."""
        done = self.run("add", *args)
        assert done.code == 0, done
        return done.out.strip()

    def down(self):
        return self.run("down", "--now")


@contextmanager
def machine_in(folder, *options):
    """Run a service in a folder for a block."""
    machine = Machine(folder / "home")
    machine.up(*options)
    try:
        yield machine
    finally:
        machine.down()


def active(machine):
    """Return how many permissions are given out."""
    return json.loads(machine.run("status", "--json").out)["running_total"]


@contextmanager
def in_home(machine):
    """Let the client in this process find the machine."""
    with patch.dict(os.environ, WHYWAIT_HOME=str(machine.home)):
        yield
