"""The table of faults names tests that are there."""

import ast
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
FAULTS = tomllib.loads((TESTS / "faults.toml").read_text(encoding="utf-8"))["fault"]


def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"])
def test_every_fault_has_its_tests(fault):
    assert fault["holds"]
    assert fault["tests"]
    for name in fault["tests"]:
        file, _, test = name.partition("::")
        assert (TESTS / file).exists(), name
        assert not test or test in names_in(TESTS / file), name
    assert set(fault.get("soak", ())) <= names_in(TESTS / "soak" / "test_soak.py")


def test_every_long_test_is_in_the_table():
    named = {name for fault in FAULTS for name in fault.get("soak", ())}
    assert named == {name for name in names_in(TESTS / "soak" / "test_soak.py") if name.startswith("test_")}
