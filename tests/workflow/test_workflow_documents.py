"""Workflow files as data: three formats, one content; lines for every place; hostile ones refused at once."""

import json
import time

import pytest
import yaml

from whywait.errors import ConfigError
from whywait.workflow.documents import read_document

TOML = """\
name = "demo"
slots = 2
[budget]
ram = "8GB"
[task.fetch]
run = ["echo", 1, true]
[task.decode]
run = '''
two
lines'''
after = [
  "fetch",
]
priority = "high"
[task."odd name"]
run = "true"  # [task.not]
"""
DATA = {
    "name": "demo",
    "slots": 2,
    "budget": {"ram": "8GB"},
    "task": {
        "fetch": {"run": ["echo", 1, True]},
        "decode": {"run": "two\nlines", "after": ["fetch"], "priority": "high"},
        "odd name": {"run": "true"},
    },
}
YAML = """\
name: demo
slots: 2
budget: {ram: 8GB}
task:
  fetch: &base
    run: [echo, 1, true]
  decode:
    run: "two\\nlines"
    after: [fetch]
    priority: high
  odd name:
    run: "true"
"""


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(file)

    return write


@pytest.mark.parametrize(
    ("name", "text"),
    [("flow.toml", TOML), ("flow.yaml", YAML), ("flow.yml", YAML), ("flow.json", json.dumps(DATA, indent=1))],
)
def test_the_three_formats_hold_the_same(write, name, text):
    assert read_document(write(name, text)).data == DATA


@pytest.mark.parametrize(
    ("path", "toml", "yaml"),
    [
        (("slots",), 2, 2),
        (("budget", "ram"), 4, 3),
        (("task", "fetch"), 5, 5),
        (("task", "decode", "after", 0), 11, 9),
        (("task", "decode", "priority"), 14, 10),
        (("task", "odd name", "run"), 16, 12),
        (("task", "decode", "no such key"), 7, 7),
        (("nowhere",), None, None),
    ],
)
def test_every_place_has_its_line(write, path, toml, yaml):
    """A place that is not written itself has the line of the nearest one around it."""
    assert read_document(write("flow.toml", TOML)).locate(path) == toml
    assert read_document(write("flow.yaml", YAML)).locate(path) == yaml


def test_lines_of_json_are_those_of_the_keys(write):
    text = '{\n "task": {\n  "a\\"b": {"run": "x,{}[]:",\n   "after": ["p",\n    "q"]}\n }}'
    locate = read_document(write("flow.json", text)).locate
    assert [locate(path) for path in (("task",), ("task", 'a"b'), ("task", 'a"b', "after"))] == [2, 3, 4]
    assert locate(("task", 'a"b', "after", 1)) == 5


def test_aliases_and_merges_are_plain_values(write):
    text = "x: &x {run: a, cpu: 1}\ntask:\n  a: *x\n  b:\n    <<: *x\n    cpu: 2\n  c:\n    <<: [*x]\n"
    data = read_document(write("flow.yaml", text)).data
    assert data["task"] == {"a": {"run": "a", "cpu": 1}, "b": {"run": "a", "cpu": 2}, "c": {"run": "a", "cpu": 1}}


def laughs():
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefghij", "bcdefghijk", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    return "\n".join(lines)


HOSTILE = {
    "empty.toml": ("", "is empty: expected a workflow"),
    "binary.toml": (b"\x00\x01" * 999, "is a binary file"),
    "latin.yaml": (b'name: "\xff"', "is not UTF-8 text (byte 0xff at offset 7)"),
    "large.toml": ("#" * 600_000, "is larger than 500.0 kB"),
    "large.json": (" " * 5_000_000, "is larger than 4.0 MB"),
    "no.txt": ("x", "has no known suffix: expected one of .toml, .yaml, .yml, .json"),
    "twice.toml": ("a = 1\na = 2\n", "twice.toml:2: column 6: is not TOML: cannot overwrite a value"),
    "twice.yaml": ("t:\n  a: 1\n  a: 2\n", 'twice.yaml:3: the key "a" stands there twice (t.a)'),
    "twice.json": ('{"t": {"a": 1, "a": 2}}', 't: the key "a" stands there twice'),
    "bad.toml": ("[task.a\n", "bad.toml:1: column 8: is not TOML"),
    "bad.yaml": ("a: [1\n", "bad.yaml:2: column 1: is not YAML"),
    "bad.json": ('{"a": }', "1: column 7: is not JSON"),
    "deep.toml": ("a = " + "[" * 100_000, "is nested too deeply"),
    "parts.toml": (".".join("a" * 50_000) + " = 1", "is nested too deeply, by a key of many parts"),
    "inline.toml": ("x = {" + ".".join("a" * 50_000) + " = 1}", "is nested too deeply, by a key of many parts"),
    "levels.toml": ("a = " + "[" * 60 + "]" * 60, "is nested too deeply"),
    "deep.yaml": ("[" * 100_000, "is nested too deeply"),
    "deep.json": ("[" * 100_000, "is nested too deeply"),
    "objects.json": ('{"a":' * 100_000, "is nested too deeply"),
    "digits.toml": ("a = " + "9" * 5000, "holds a number that cannot be read"),
    "digits.json": ('{"a": ' + "9" * 5000 + "}", "holds a number that cannot be read"),
    "digits.yaml": ("a: " + "9" * 5000, "cannot be read as int"),
    "laughs.yaml": (laughs(), "holds more than 100,000 values, aliases counted in full"),
    "self.yaml": ("a: &a [*a]", "self.yaml:1: is nested too deeply"),
    "object.yaml": ("a: !!python/object/apply:os.system [ls]", "the tag"),
    "scalar.yaml": ("a: !!binary aGk=", "the tag"),
    "documents.yaml": ("a: 1\n---\nb: 2\n", "documents.yaml:2: column 1: is not YAML: expected a single document"),
    "number.yaml": ("1: x", "number.yaml:1: the key 1 is not a string: write it in quotes"),
    "list.yaml": ("? [a]\n: 1", "a list or mapping stands where a key should"),
    "merge.yaml": ("<<: 3\na: 1", "<< holds 3: expected a mapping"),
    "quotes.toml": ('"' * 400_000, "is not TOML"),
    "top.json": ("3", "3 is not a workflow"),
    "top.yaml": ("- a", "is not a workflow"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_within_a_second(write, name):
    """What is wrong is told in one line, and it takes less than a second of work to find it; more in Python alone."""
    text, message = HOSTILE[name]
    file = write(name, text)
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        read_document(file)
    assert time.process_time() - began < (1 if yaml.__with_libyaml__ else 5)
    assert message in str(caught.value)
    assert str(caught.value).startswith(file)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_what_cannot_be_opened_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_document(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_document(str(tmp_path / "folder.toml"))
