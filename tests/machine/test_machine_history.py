"""The history of the machine's service: what jobs, commands and blocks of Python used, and what they learn."""

import json
import sqlite3
import sys
from contextlib import closing

import pytest

from machines import machine_in
from patience import until
from whywait import ConfigError
from whywait.machine.home import Home
from whywait.machine.service import Service

MB = 1_000_000
LOAD = "import time; data = bytearray(60_000_000); data[::4096] = b'x' * len(data[::4096]); time.sleep(0.3)"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("machine"), "--slots", "4", "--ram", "4GB") as machine:
        yield machine


def asked_ram(machine, job):
    with closing(sqlite3.connect(machine.home / "jobs.db")) as connection:
        (options,) = connection.execute("SELECT options FROM jobs WHERE name = ?", (job,)).fetchone()
    return json.loads(options)["ram"]


def test_a_job_learns_from_the_one_before(machine):
    """U5, M5: by its command if it has no id; what was accepted is kept as an amount."""
    first = machine.add("--ram", "learned:1GB", "--", sys.executable, "-c", LOAD)
    assert machine.run("wait", first).code == 0
    again = machine.add("--ram", "learned", "--", sys.executable, "-c", LOAD)
    assert machine.run("wait", again).code == 0
    peak = machine.row(first)["peak_ram"]
    assert peak > 60 * MB
    assert asked_ram(machine, first) == 1000 * MB
    assert asked_ram(machine, again) == peak + -(-peak // 10)


def test_what_has_not_been_learned_is_refused(machine):
    """U5: with what to do; for jobs and for commands in a terminal."""
    for verb in ("add", "do"):
        done = machine.run(verb, "--ram", "learned", "--", "true", "--never-run-before")
        assert done.code == 2
        assert "ram='learned' of task 'true --never-run-before'" in done.err
        assert "write ram='learned:2GB'" in done.err


def test_the_history_of_the_service_is_listed(machine):
    """U5: `history` without a file is that of the machine."""
    assert machine.run("do", "--id", "quick", "--", "true").code == 0
    until(lambda: "quick" in [each["name"] for each in json.loads(machine.run("history", "--json").out)])


def test_a_job_of_a_former_service_keeps_what_it_has_learned(tmp_path):
    """U5, M5: also if the history is gone when the next one takes it up."""
    home = Home(str(tmp_path / "home"))
    service = Service(home, slots=1, cpu=1, ram="4GB")
    asked = {"scope": "s", "id": "x:1", "ram": "learned:2GB"}
    service.jobs.add(["sleep", "60"], "/", {}, scope="s", id="first")
    live = service.jobs.add(["true"], "/", {}, **asked)
    live.accepted.result()
    service.close()
    service = Service(home, slots=1, cpu=1, ram="4GB", history=None)
    try:
        assert service.jobs.find("s/x:1").options["ram"] == 2000 * MB
        with pytest.raises(ConfigError, match="needs a history"):
            service.jobs.add(["true"], "/", {}, ram="learned")
    finally:
        service.close()
