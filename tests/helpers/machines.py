"""A machine of its own for a test: a home in a temporary folder, and the real program against it."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from unittest.mock import patch

from patience import until
from program import clean_environment, whywait
from whywait.machine.client import LeaseRequest
from whywait.machine.client import Machine as Client
from whywait.machine.home import Home


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

    def status(self):
        return json.loads(self.run("status", "--json").out)

    @property
    def pid(self):
        """The process of the service."""
        return self.status()["pid"]

    def kill(self):
        """Kill the service, as a loss of power would."""
        os.kill(self.pid, signal.SIGKILL)
        until(lambda: not Home(str(self.home)).is_taken(), "the end of the service")

    def rows(self):
        """Return what is listed, in order."""
        return json.loads(self.run("ls", "--json").out)

    def row(self, prefix):
        """Return what is listed with this id, or first with one that begins so; None if nothing is."""
        found = [row for row in self.rows() if row["id"].startswith(prefix)]
        return next((row for row in found if row["id"] == prefix), found[0] if found else None)


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
    return machine.status()["running_total"]


@contextmanager
def in_home(machine):
    """Let the client in this process find the machine."""
    with patch.dict(os.environ, WHYWAIT_HOME=str(machine.home)):
        yield


class Requests(Client):
    """A client of the service in this process, with the requests that it has made."""

    def __init__(self, machine):
        super().__init__(Home(str(machine.home)))
        self.made = []

    def request(self, *, command=True, **asked):
        self.made.append(LeaseRequest(self, "test", command=command, **asked))
        return self.made[-1]

    def status(self):
        return self.ask("GET", "/machine/status")

    def free(self):
        """Return how much of each resource is free."""
        return {gate["name"]: gate["free"] for gate in self.status()["budget"]}


def granted(request):
    """Wait for a grant; return what was granted."""
    while "granted" not in (message := request.receive(30)):
        assert "ended" not in message, message
    return message["granted"]
