"""The page of the machine in a real browser: commands in terminals, jobs and blocks of Python of several clients."""

import json
import signal
import subprocess
import sys

import pytest

from machines import active, machine_in
from patience import until

pytestmark = pytest.mark.browser

NOTEBOOK = """
from whywait import machine
with machine.lease(ram="10GB", name="notebook"):
    print("granted", flush=True)
    input()
"""
WAITING_NOTEBOOK = """
from whywait import machine
with machine.lease(gpu=1, name="other", on_wait=lambda reason: print(reason, flush=True)):
    pass
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


def test_the_page_shows_leases_that_run_and_leases_that_wait(page, tmp_path):
    """M7, N5, V6: a command in a terminal has the card, a block of Python waits for it; the card has a gauge."""
    with machine_in(tmp_path, "--slots", "8", "--gpus", "24GB") as machine:
        tests = machine.start("do", "--vram", "20GB", "--name", "tests", "--", "sleep", "1000")
        until(lambda: active(machine) == 1, "the command")
        block = subprocess.Popen(
            [sys.executable, "-c", WAITING_NOTEBOOK], env=machine.environment, stdout=subprocess.PIPE, text=True
        )
        assert block.stdout.readline() == "no gpu is free: gpu 0 has 4.0 of 24.0 GB free, held by tests-1\n"
        page.open(machine.run("status", "--open", env={"BROWSER": "true"}).out.strip())
        page.click(".pill", "other-2")
        for text in ("Waits for gpu", "4.0 GB of 24.0 GB free", "tests-1", "a gpu is free"):
            page.shows(text, "#panel")
        page.view("budget")
        for text in ("gpu 0", "20.0 GB of 24.0 GB", "tests-1"):
            page.shows(text)
        page.view("lanes")
        page.click("#main [data-task]", "tests-1")
        for text in ("tests-1\nrunning", "vram 20.0 GB"):
            page.shows(text, "#panel")
        assert machine.run("cancel", "tests-1").code == 0
        assert tests.wait(60) == 128 + signal.SIGTERM
        assert block.wait(60) == 0
        block.stdout.close()
        assert page.errors() == []
