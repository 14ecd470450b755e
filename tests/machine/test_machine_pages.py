"""What the pages about the machine show is what the program prints: their sessions are typed, line by line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import DOCS, TOP

from machines import Machine
from patience import until
from program import LONGEST_S
from shells import program_in

HOW_TO = ("agents-ci.md", "gpu.md", "pueue-task-spooler.md")
PAGES = [DOCS / "machine.md", *(DOCS / "how-to" / name for name in HOW_TO)]
SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Programs that the pages name and that a test need not have: they run until the test ends, or say something.
HOLDS = "#!/bin/sh\nexec sleep 1000\n"
TESTS = "#!/bin/sh\n[ $1 = -q ] && exec echo 2 passed\nexec sleep 1000\n"
STAND_INS = {"cargo": HOLDS, "make": HOLDS, "python": HOLDS, "pytest": TESTS}


def sessions_of(page):
    """Return of each session of a page the commands, each with what it prints."""
    found = []
    for text in SESSION.findall(page.read_text(encoding="utf-8")):
        steps = [step.partition("\n") for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
        found.append([(command, output) for command, _, output in steps])
    return found


def plain(text):
    """Return a text without what is another in each run: times, peaks of memory, process ids, widths of columns."""
    text = re.sub(r"\d+(?:\.\d+)? m?s\b", "T", text)
    text = re.sub(r"process \d+", "process P", text)
    text = re.sub(r"peak memory [\d.]+ \w+", "peak memory M", text)
    text = re.sub(r"\d{4}-\d\d-\d\d [\d:]+[+-]\d\d:\d\d", "DAY", text)
    return [re.sub(r" {2,}", "  ", line).strip() for line in text.splitlines()]


class Typist:
    """Types a page's sessions, all with one machine."""

    def __init__(self, folder):
        self.folder = folder
        place = program_in(folder)
        for name, script in STAND_INS.items():
            (place / name).write_text(script)
            (place / name).chmod(0o755)
        self.machine = Machine(folder / "home")
        self.environment = {**self.machine.environment, "PATH": f"{place}:{os.environ['PATH']}"}
        self.held = []

    def type(self, command):
        """Run a command; return what it printed. One that runs on or waits is left to itself."""
        if re.search(r"# (terminal|waits)", command):
            return self.leave(command, waits="# waits" in command)
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            check=False, timeout=LONGEST_S,
        )  # fmt: skip
        return done.stderr + done.stdout

    def leave(self, command, *, waits):
        before = self.count()
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.held.append(process)
        until(lambda: self.count() > before, f"{command} being known to the machine")
        return process.stderr.readline() if waits else ""

    def count(self):
        picture = json.loads(self.machine.run("status", "--json").out)
        return picture["running_total"] + picture["waiting_total"]

    def end_held(self):
        for process in self.held:
            process.kill()
            process.wait()
            process.stderr.close()
        self.held.clear()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_sessions_of_a_page_go_as_it_shows(page, tmp_path):
    """M1, M2: the first minute, and every session after it."""
    sessions = sessions_of(page)
    assert sessions
    typist = Typist(tmp_path)
    try:
        for session in sessions:  # with one machine, as a reader would
            for command, output in session:
                assert plain(typist.type(command)) == plain(output), command
            typist.end_held()
    finally:
        typist.end_held()
        typist.machine.down()


def test_the_fixture_of_the_page_takes_a_lease_for_the_whole_run(tmp_path):
    """M2: as the page shows it, in a project of its own."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / "machine.md").read_text(), re.MULTILINE | re.DOTALL)
    code = next(block for block in blocks if "fixture" in block)
    (tmp_path / "conftest.py").write_text(code)
    (tmp_path / "test_it.py").write_text(
        "import subprocess, sys\n"
        "def test_it():\n"
        "    listed = subprocess.check_output([sys.executable, '-m', 'whywait', 'ls'], text=True)\n"
        "    assert 'tests-1' in listed\n"
    )
    machine = Machine(tmp_path / "home")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
            cwd=tmp_path, env=machine.environment, capture_output=True, text=True, check=False, timeout=LONGEST_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    finally:
        machine.down()


def test_the_readme_tells_of_the_machine():
    assert "whywait do" in Path(TOP / "README.md").read_text(encoding="utf-8")
