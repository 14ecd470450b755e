"""A3: one source, compiled and interpreted: the types say what the files say, and both cores do the same."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import runs
import whywait
from cores import COMPILED
from whywait.errors import ConfigError
from whywait.kernel.kernel import Kernel
from whywait.kernel.limits import Budget, Limits, Policy, make_demand

SOURCE = Path(whywait.__file__).parent
TYPED = sorted(path for path in SOURCE.rglob("*.pxd") if path.with_suffix(".py").exists())
LAST = 1 << 61

Function = tuple[list[str], int]  # the names of the parameters, and how many have a default
Class = tuple[set[str], dict[str, Function]]  # fields and methods


def of_types(path: Path) -> tuple[dict[str, Class], dict[str, Function]]:
    """Return the classes and functions that a .pxd declares."""
    classes: dict[str, Class] = {}
    functions: dict[str, Function] = {}
    inside = None
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if line and not line.startswith(" "):
            inside = None
        if found := re.match(r"cdef class (\w+)", text):
            inside = classes.setdefault(found[1], (set(), {}))
        elif found := re.match(r"c?p?def [^=(]*?(\w+)\((.*)\)[^()]*$", text):
            given = [each.strip() for each in found[2].split(",") if each.strip()]
            names = [each.removesuffix("=*").split()[-1] for each in given]
            (functions if inside is None else inside[1])[found[1]] = names, sum(each.endswith("=*") for each in given)
        elif inside is not None and text.startswith("cdef ") and "__" not in text:
            inside[0].update(each.split()[-1] for each in text.split(","))
    return classes, functions


def of_source(path: Path) -> tuple[dict[str, Class], dict[str, Function]]:
    """Return the same of the .py."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    classes = {each.name: (slots(each), methods(each.body)) for each in body if isinstance(each, ast.ClassDef)}
    return classes, methods(body)


def methods(body: list[ast.stmt]) -> dict[str, Function]:
    found = (each for each in body if isinstance(each, ast.FunctionDef))
    return {
        each.name: ([arg.arg for arg in (*each.args.posonlyargs, *each.args.args)], len(each.args.defaults))
        for each in found
    }


def slots(node: ast.ClassDef) -> set[str]:
    for each in node.body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id == "__slots__":
            return {name for name in ast.literal_eval(each.value) if not name.startswith("__")}
    return set()


def test_there_are_types():
    names = {path.stem for path in TYPED if path.parent.name == "kernel"}
    assert {"model", "base", "entering", "waiting", "starting", "ending", "kernel"} <= names


@pytest.mark.parametrize("path", TYPED, ids=lambda path: path.stem)
def test_types_and_source_say_the_same(path):
    """A3: fields are slots; what is declared is there, with the same parameters and defaults."""
    (classes, functions), (known, there) = of_types(path), of_source(path.with_suffix(".py"))
    for name, (fields, declared) in classes.items():
        own, defined = known[name]
        assert fields == own, f"fields of {name}"
        assert {each: defined.get(each) for each in declared} == declared, f"methods of {name}"
    assert {each: there.get(each) for each in functions} == functions


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled here")
def test_both_cores_tell_the_same():
    """A3: random commands and workloads give the same events, to the byte."""
    first, last = 0, 40
    script = str(Path(runs.__file__))
    run = subprocess.run(
        [sys.executable, script, "--interpreted", str(first), str(last)], capture_output=True, text=True, check=True
    )
    core, *interpreted = run.stdout.splitlines()
    assert core.endswith(".py")
    assert len(interpreted) == 5 * (last - first)
    assert runs.told(first, last) == interpreted


# At the borders of a machine's integers


def test_amounts_times_times_are_exact():
    """B1, A3: what was held of a resource, times how long, has more bits than a machine's integer."""
    kernel = Kernel(Limits(slots=10**18), Budget({"ram": 10**18}))
    task = kernel.submit(0, kernel.root, demand=make_demand(ram=10**18))
    kernel.dispatch(0)
    gate = kernel.resources["ram"]
    assert kernel.used_ns(LAST, gate) == 10**18 * LAST
    kernel.ended(LAST, task, "success")
    assert gate.use_ns == 10**18 * LAST
    assert gate.free == 10**18
    assert kernel.slots.use_ns == LAST


@pytest.mark.parametrize("high", [31, 32, 62, 63, 64, 99, 100])
def test_every_priority_holds_its_own_slot(high):
    """V2, A3: also those for which an integer of the machine has no bit."""
    kernel = Kernel(Limits(slots=1))
    holder = kernel.submit(0, kernel.root, priority=high)
    low = kernel.submit(0, kernel.root, priority=high - 1)
    beside = kernel.submit(0, kernel.root, priority=100, slot=False)
    assert kernel.dispatch(0).started == [beside, holder] or kernel.running.keys() == {holder.number, beside.number}
    kernel.ended(7, holder, "success")
    assert kernel.dispatch(7).started == [low]
    assert low.waits == {"slot_higher": 7}
    assert kernel.holding == 1 << high - 1


def test_times_up_to_the_last_are_exact():
    """T6, V2: a wait of 73 years, and a timeout that is due after it."""
    kernel = Kernel(Limits(slots=1))
    first = kernel.submit(0, kernel.root)
    second = kernel.submit(0, kernel.root, policy=Policy(timeout_ns=LAST))
    kernel.dispatch(0)
    kernel.ended(LAST, first, "success")
    assert kernel.dispatch(LAST).started == [second]
    assert second.waits == {"slot": LAST}
    assert kernel.next_deadline() == 2 * LAST


@pytest.mark.parametrize("amount", [10**18 + 1, 2**63 - 1, 2**63, 2**64, 10**30])
def test_what_cannot_be_counted_is_refused(amount):
    """E1: with an error that says so, and nothing has changed."""
    kernel = Kernel(Limits(slots=1), Budget({"ram": 10}))
    for act in (
        lambda: Limits(slots=amount),
        lambda: Budget({"ram": amount}),
        lambda: make_demand(ram=amount),
        lambda: kernel.resize(0, "ram", amount),
        lambda: kernel.submit(0, kernel.root, demand=(("cpu", amount),)),
        lambda: Policy(timeout_ns=amount * 10),
    ):
        with pytest.raises(ConfigError, match="is not allowed: use at most"):
            act()
    assert kernel.stats.numbered == 0
    assert kernel.resources["ram"].limit == 10


@pytest.mark.parametrize("priority", [True, False, 101, -1, 2**31, 2**63, 2**64, 1.0, "50", None])
def test_what_is_no_priority_is_refused(priority):
    """P1: whether its number has a lane or not."""
    kernel = Kernel()
    for known in (0, 1, 50, 100):
        kernel.submit(0, kernel.root, priority=known)
    with pytest.raises(ConfigError, match="priority"):
        kernel.submit(0, kernel.root, None, priority)
    assert kernel.stats.numbered == 4
