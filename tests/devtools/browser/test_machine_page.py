"""The page of the machine in a real browser: commands in terminals, jobs and blocks of Python of several clients."""

import json
import subprocess
import sys

import pytest

from machines import machine_in

pytestmark = pytest.mark.browser

NOTEBOOK = """
from whywait import machine
with machine.lease(ram="10GB", name="notebook"):
    print("granted", flush=True)
    input()
"""


def test_the_page_shows_what_all_clients_of_the_machine_run_and_wait_for(page, tmp_path):
    """M7, V6: a terminal, a job and a program share one budget; what waits names what holds it."""
    with machine_in(tmp_path, "--cpu", "4", "--slots", "8", "--ram", "24GB") as machine:
        notebook = subprocess.Popen(
            [sys.executable, "-c", NOTEBOOK], env=machine.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert notebook.stdout.readline() == b"granted\n"
        job = machine.add("--ram", "10GB", "--id", "train", "--", "sleep", "1000")
        bench = machine.start("do", "--ram", "10GB", "--name", "bench", "--", "true", stderr=subprocess.PIPE)
        assert b"waits: ram" in bench.stderr.readline()
        page.open(machine.run("status", "--open", env={"BROWSER": "true"}).out.strip())
        for text in ("notebook-1", job, "bench-2"):
            page.shows(text)
        page.click(".pill", "bench-2")
        for text in ("Waits for ram", "needs 10.0 GB, 4.0 GB of 24.0 GB free", "notebook-1", job):
            page.shows(text, "#panel")
        page.view("budget")
        page.shows("20.0 GB of 24.0 GB")
        assert machine.run("cancel", job).code == 0
        assert bench.wait(60) == 0
        bench.stderr.close()
        notebook.communicate(b"\n", timeout=60)
        page.until("return !document.querySelector('#main').innerText.includes('20.0 GB of 24.0 GB')")
        jobs = {each["id"]: each for each in json.loads(machine.run("ls", "--json").out)}
        assert jobs[job]["outcome"] == "aborted"
        assert page.errors() == []
