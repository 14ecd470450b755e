"""The JSON Schema that editors use says the same as the checks that the program does."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from whywait.errors import ConfigError
from whywait.workflow.documents import Document, read_document
from whywait.workflow.format import make_schema
from whywait.workflow.read import read_workflow

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(
    path for path in (TOP / "examples").glob("*/*") if path.suffix in {".toml", ".yaml", ".json"} and path.is_file()
)
SCHEMA = make_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def is_valid(data):
    return VALIDATOR.is_valid(data)


def is_accepted(data):
    try:
        read_workflow(Document(json.loads(json.dumps(data)), "flow", TOP, lambda _: None))
    except ConfigError:
        return False
    return True


def test_it_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_fit_the_schema(path):
    assert [error.message for error in VALIDATOR.iter_errors(read_document(str(path)).data)] == []


@pytest.mark.parametrize("page", ["docs/workflows.md", "docs/how-to/test-bench.md", "docs/how-to/gpu.md"])
def test_the_files_shown_in_the_docs_fit_the_schema(page):
    blocks = re.findall(r"^```toml\n(.*?)^```$", (TOP / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert [error.message for error in VALIDATOR.iter_errors(tomllib.loads(block))] == []


def test_there_are_four_examples():
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize(
    "fields",
    [
        {"run": "x"},
        {"run": ["x", 1, True]},
        {"call": "json:dumps", "args": [1, {"a": []}], "kwargs": {"indent": 1}},
        {"run": "x", "after": [], "priority": "HIGH", "cpu": 1, "ram": "1.5GiB", "vram": 3},
        {"run": "x", "gpu": 1, "vram": "1GB", "devices": {"rig": 1}},
        {"run": "x", "gpu": 0},
        {"run": "x {item}", "foreach": [1], "gpu": "{item}"},
        {"run": "x", "timeout": "1h30m", "retry": {"times": 1, "backoff": 0.5}, "max_wait": 3},
        {"run": "x {item}", "foreach": ["a"], "cpu": "{index}", "ram": "{index}MB"},
        {"run": "x", "foreach": {"a": [1], "b": [2.5, True]}},
        {"run": "x", "timeout": None, "duration": None},
        # wrong ones
        {},
        {"run": "x", "call": "json:dumps"},
        {"run": ""},
        {"run": []},
        {"run": 3},
        {"run": "x", "tiemout": 3},
        {"run": "x", "priority": 101},
        {"run": "x", "priority": "hig"},
        {"run": "x", "cpu": -1},
        {"run": "x", "cpu": 1.5},
        {"run": "x", "ram": -3},
        {"run": "x", "gpu": 0.5},
        {"run": "x", "gpu": -1},
        {"run": "x", "gpu": "two"},
        {"run": "x", "devices": ["rig"]},
        {"run": "x", "devices": {"rig": "a"}},
        {"run": "x", "devices": {"gpu": 1}},
        {"run": "x", "timeout": "soon"},
        {"run": "x", "timeout": -1},
        {"run": "x", "retry": -1},
        {"run": "x", "retry": {"backoff": 1}},
        {"run": "x", "retry": {"times": 1, "jitter": 2}},
        {"run": "x", "foreach": []},
        {"run": "x", "foreach": {"a": []}},
        {"run": "x", "foreach": 3},
        {"run": "x", "env": {"A": []}},
        {"run": "x", "engine": "quick"},
        {"run": "x", "after": 3},
        {"call": "json"},
        {"run": "x", "resources": {"cpu": 1}},
    ],
    ids=json.dumps,
)
def test_schema_and_checks_agree_about_tasks(fields):
    data = {"budget": {"gpus": ["8GB", "8GB"], "devices": {"rig": 2}}, "task": {"a": fields}}
    assert is_valid(data) == is_accepted(data)


@pytest.mark.parametrize(
    "text",
    [
        'slots = 3\non_error = "abort"',
        "slots = 0",
        'on_error = "panic"',
        "[budget]\ncpu = 1\nram = '1GB'\nresources = {a = 1}\nsoft = {b = '1GB'}",
        "[budget]\ncpu = -1",
        "[budget]\ngpus = 'auto'",
        "[budget]\ngpus = 2",
        "[budget]\ngpus = ['24GB', 12]\ndevices = {rig = ['a', 'b'], fpga = 2}",
        "[budget]\ngpus = {0 = '24GB', 3 = '12GB'}",
        "[budget]\ngpus = 'all'",
        "[budget]\ngpus = -1",
        "[budget]\ngpus = 1.5",
        "[budget]\ngpus = [true]",
        "[budget]\ngpus = ['much']",
        "[budget]\ndevices = {rig = 0.5}",
        "[budget]\ndevices = {rig = ['a,b']}",
        "[budget]\ndevices = {gpu = 1}",
        "[budget]\ndevices = {'my rig' = 1}",
        "[budget]\nlicence = 1",
        "[scheduler]\norder = 'strict'\nbackfill = 'none'\nqueue_limit = 3\noverflow = 'displace'\ngrace = 1",
        "[scheduler]\norder = 'random'",
        "[scope.a]\nslots = 1\non_error = 'abort'\nmax_spawn = 9",
        "[scope.a]\nslot = 1",
        "[vars]\na = 1\nb = 'x'",
        "[vars]\na = []",
        "[defaults]\npriority = 3",
        "[defaults]\nrun = 'x'",
        "sequence = ['a']\nfailure_policy = 'continue_on_fail'",
        "sequence = ['a']\nfailure_policy = 'panic'",
        "[periodic.p]\nrun = 'x'\nevery = '1s'\noverlap = 'queue'\njitter = 0.3",
        "[periodic.p]\nrun = 'x'\nevery = '1s'\njitter = 0.4",
        "[periodic.p]\nrun = 'x'",
        "[periodic.p]\nrun = 'x'\nevery = '1s'\noverlap = 'jump'",
    ],
)
def test_schema_and_checks_agree_about_the_rest(text):
    data = tomllib.loads(f"{text}\n[task.a]\nrun = 'x'\n")
    assert is_valid(data) == is_accepted(data)


def test_the_schema_in_the_docs_is_current():
    assert json.loads((TOP / "docs" / "workflow.schema.json").read_text(encoding="utf-8")) == SCHEMA
