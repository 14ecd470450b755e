"""The page folds events as the server does: rows of page/store.js against those of observe/fold.py, in node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import whywait.devtools
from observed_runs import observed
from whywait.devtools.table import ROW, TaskTable, row_of

STORE = Path(whywait.devtools.__file__).parent / "page" / "store.js"
FOLDED = [name for name in ROW if name != "waits_for"]  # that the server adds when it is asked
PROGRAM = """
import { readFileSync } from "node:fs";
import { Store } from "./store.mjs";
const runs = JSON.parse(readFileSync(0)).map(([events, fields]) => {
  const store = new Store();
  for (const event of events) store.apply(event);
  return [...store.tasks.values()].map((task) => Object.fromEntries(fields.map((name) => [name, task[name]])));
});
console.log(JSON.stringify(runs));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="the page's modules are run by node, which is not there")
def test_the_page_folds_events_as_the_server_does(tmp_path):
    """V3: the same rows from the same events, whatever happened to the tasks."""
    given, expected = [], []
    for seed in range(30):
        _, _, events = observed(seed, devices=seed % 2 == 1)
        table = TaskTable(len(events))
        for event in events:
            table.feed(event)
        given.append([[event.to_dict() for event in events], FOLDED])
        expected.append([{name: row_of(attempt, None)[name] for name in FOLDED} for attempt in table.attempts.values()])
    shutil.copy(STORE, tmp_path / "store.mjs")
    (tmp_path / "program.mjs").write_text(PROGRAM)
    done = subprocess.run(
        ["node", "program.mjs"], input=json.dumps(given), capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert json.loads(done.stdout) == json.loads(json.dumps(expected))
