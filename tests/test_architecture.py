"""The folders are the architecture: which room may import which, read from the source itself."""

import ast
import inspect
import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

import whywait

SRC = Path(__file__).resolve().parent.parent / "src"

# What the kernel may use of the standard library: data structures and arithmetic; no thread, clock, chance or I/O.
PURE = {
    "__future__", "abc", "array", "bisect", "collections", "contextlib", "copy", "dataclasses", "decimal", "difflib",
    "enum", "fractions", "functools", "graphlib", "heapq", "itertools", "json", "math", "numbers", "operator", "re",
    "string", "struct", "textwrap", "types", "typing",
}  # fmt: skip
# Each room and the rooms that it may import, type-checking imports included; all of them stand before it.
ROOMS: Final = {
    "errors": (),
    "support": ("errors",),
    "kernel": ("errors",),
    "options": ("errors", "support", "kernel"),
    "observe": ("errors", "support", "kernel"),
    "simulation": ("errors", "support", "kernel", "options", "observe"),
    "bridges": ("errors", "support", "kernel", "observe"),
    "task": ("errors", "support", "kernel"),
    "trees": ("errors", "support"),
    "engines": ("errors", "support", "kernel", "task", "trees"),
    "runtime": ("errors", "support", "kernel", "observe", "bridges", "task", "engines"),
    "devtools": ("errors", "support", "kernel", "observe", "task", "runtime"),
    "workflow": ("errors", "support", "kernel", "options", "observe", "simulation", "engines", "runtime"),
    "machine": ("errors", "support", "kernel", "observe", "trees", "engines", "devtools", "runtime"),
    "cli": (
        "errors", "support", "kernel", "options", "observe", "simulation", "bridges", "task", "devtools", "runtime",
        "workflow", "machine",
    ),
}  # fmt: skip
# The imports against that order: each is carried out only when a user calls for what stands above.
DOORS: Final = {"whywait.runtime.authority": ("whywait.devtools", "whywait.devtools.server")}  # authority.devtools()


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SRC.joinpath("whywait").rglob("*.py"))}


def imports_of(name: str) -> Iterator[tuple[int, str]]:
    """Yield line and full name of each module imported anywhere in a file, functions and type checks included."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield node.lineno, submodule if submodule in MODULES else base


def room_of(name: str) -> str:
    """Return the room of a module of whywait; the package itself only re-exports and is in none."""
    return "cli" if name == "whywait.__main__" else name.removeprefix("whywait").removeprefix(".").partition(".")[0]


def root_of(name: str) -> str:
    return name.partition(".")[0]


def is_own(name: str) -> bool:
    return root_of(name) == "whywait"


def assert_no_import(names, is_wrong) -> None:
    """Name file and line of each import in the named modules that is wrong."""
    found = [
        f"{MODULES[name].relative_to(SRC)}:{line} imports {target}"
        for name in names
        for line, target in imports_of(name)
        if is_wrong(name, target)
    ]
    assert not found, "\n".join(found)


def modules_in(room: str) -> list[str]:
    return [name for name in MODULES if room_of(name) == room]


def circle_in(room: str) -> list[str]:
    """Return modules of a room that import each other in a circle, or nothing."""
    names = modules_in(room)
    graph = {name: {target for _, target in imports_of(name) if target in names} - {name} for name in names}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


KERNEL = modules_in("kernel")


def test_kernel_imports_only_pure_modules():
    assert any(is_own(target) for name in KERNEL for _, target in imports_of(name)), "the walk sees the kernel"
    assert_no_import(KERNEL, lambda _, target: not is_own(target) and root_of(target) not in PURE)


def test_kernel_imports_nothing_by_stealth():
    calls = {"__import__", "import_module", "exec", "eval", "open", "print", "input"}
    found = [
        f"{MODULES[name].relative_to(SRC)}:{node.lineno} calls {ast.unparse(node.func)}"
        for name in KERNEL
        for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in calls
    ]
    assert not found, "\n".join(found)


def test_the_table_names_every_room_after_those_that_it_may_import():
    assert {room_of(name) for name in MODULES} == {"", *ROOMS}
    before: set[str] = set()
    for room, allowed in ROOMS.items():
        assert before.issuperset(allowed), room
        before.add(room)


def test_contributors_are_told_of_every_room():
    """The table of CONTRIBUTING.md has a row for each folder of the source."""
    told = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [
        room for room in ROOMS if f"`src/whywait/{room}/`" not in told and f"`src/whywait/{room}.py`" not in told
    ] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_the_table_says(room):
    allowed = {room, *ROOMS[room]}
    assert_no_import(
        modules_in(room),
        lambda name, target: is_own(target) and room_of(target) not in allowed and target not in DOORS.get(name, ()),
    )


@pytest.mark.parametrize("room", ROOMS)
def test_no_modules_of_a_room_import_each_other(room):
    """Nor do modules of two rooms, by the table; imports for type checking count."""
    circle = circle_in(room)
    assert not circle, " imports ".join(circle)


def test_the_package_only_re_exports():
    body = ast.parse(MODULES["whywait"].read_text(encoding="utf-8")).body
    definitions = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert [name for name in definitions if name not in {"__getattr__", "__dir__"}] == []


def test_import_needs_no_third_party_package():
    program = """if True:
        import json, sys
        before = set(sys.modules)
        import whywait
        roots = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(json.dumps({name: getattr(sys.modules[name], "__file__", None) for name in sorted(roots)}))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    standard = {Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_config_var("DESTSHARED"))}
    assert "whywait" in loaded
    foreign = [
        name
        for name, file in loaded.items()
        if name not in {"whywait", *sys.stdlib_module_names}
        and not (file and Path(file).parent in standard)  # a distribution may add a module of its own
    ]
    assert foreign == []


@pytest.mark.parametrize("name", whywait.__all__)
def test_public_name_exists_and_is_documented(name):
    thing = getattr(whywait, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert (thing.__doc__ or "").strip(), f"whywait.{name} has no docstring"


def test_public_names_are_listed_once():
    assert len(whywait.__all__) == len(set(whywait.__all__))
