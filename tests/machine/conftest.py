"""Services in this process, without a socket: the quick way to a job or a lease."""

import os
from pathlib import Path

import pytest

from machines import Requests, in_home
from patience import PATIENCE_S, until
from whywait.machine.home import Home
from whywait.machine.rows import Running
from whywait.machine.service import Service


class Machine:
    """A service in this process, and its successors in the same home."""

    def __init__(self, home, **limits):
        self.home = Home(str(home))
        self.limits = {"slots": 2, "cpu": 2, "ram": "4GB", **limits}
        self.service = None

    def up(self, **limits):
        self.service = Service(self.home, **{**self.limits, **limits})
        return self.service

    def add(self, *command, **asked):
        """Add a job and wait until it is on the disk; return it."""
        job = self.service.jobs.add(list(command), "/", dict(os.environ), **asked)
        job.accepted.result()
        return job

    def ended(self, job):
        """Wait for the end of a job; return it."""
        self.service.jobs.end_of(job).result(PATIENCE_S)
        return job

    def handle(self, job):
        return self.service.jobs.handle(job)

    def log(self, job):
        return Path(self.home.log_of(job.number)).read_text(encoding="utf-8")

    def running(self, job):
        """Wait until the command of a job runs."""
        until(lambda: isinstance(job.state, Running), f"the start of {job.id}")
        return job

    def close(self):
        if self.service is not None:
            self.service.close()
            self.service = None


@pytest.fixture
def machine(tmp_path):
    """Return a machine whose service is up."""
    machine = Machine(tmp_path / "home")
    machine.up()
    yield machine
    machine.close()


@pytest.fixture
def client(machine):
    """Return a way to the service; what asks in this process finds it too."""
    with in_home(machine):
        client = Requests(machine)
        yield client
        for request in client.made:
            request.close()
        until(
            lambda: not (now := client.status())["running_total"] + now["waiting_total"], "the end of all permissions"
        )
