"""The folders are the architecture: who may import whom, read from the source itself."""

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import whywait

SRC = Path(__file__).resolve().parent.parent / "src"

# Named one by one because each would let the outside world into a decision.
IMPURE = {
    "asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "queue", "random", "select", "socket",
    "subprocess", "threading", "time",
}  # fmt: skip
# What the kernel may use of the standard library: data structures and arithmetic.
PURE = {
    "__future__", "abc", "array", "bisect", "collections", "contextlib", "copy", "dataclasses", "decimal", "difflib",
    "enum", "fractions", "functools", "graphlib", "heapq", "itertools", "json", "math", "numbers", "operator", "re",
    "string", "struct", "textwrap", "types", "typing",
}  # fmt: skip
# A module may import from its own layer and from those before it.
LAYERS = ("errors", "kernel", "middle", "cli")


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SRC.joinpath("whywait").rglob("*.py"))}
KERNEL = [name for name in MODULES if name.split(".")[:2] == ["whywait", "kernel"]]


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


def layer_of(name: str) -> int:
    """Return where a module of whywait stands in LAYERS."""
    if name == "whywait.__main__":
        return LAYERS.index("cli")
    second = name.removeprefix("whywait.").partition(".")[0]
    return LAYERS.index(second if second in LAYERS else "middle")


def root_of(name: str) -> str:
    return name.partition(".")[0]


def is_own(name: str) -> bool:
    return root_of(name) == "whywait"


def assert_no_import(names, is_wrong) -> None:
    """Fail with file and line of each import in the named modules that is wrong."""
    found = [
        f"{MODULES[name].relative_to(SRC)}:{line} imports {target}"
        for name in names
        for line, target in imports_of(name)
        if is_wrong(name, target)
    ]
    assert not found, "\n".join(found)


def test_the_walk_sees_the_kernel():
    assert len(KERNEL) > 1
    assert any(is_own(target) for name in KERNEL for _, target in imports_of(name))


def test_kernel_imports_no_thread_clock_chance_or_io():
    assert_no_import(KERNEL, lambda _, target: root_of(target) in IMPURE)


def test_kernel_imports_only_pure_modules_errors_and_itself():
    def is_wrong(_, target):
        if is_own(target):
            return target != "whywait.errors" and target not in KERNEL
        return root_of(target) not in PURE

    assert_no_import(KERNEL, is_wrong)


def test_kernel_imports_nothing_by_stealth():
    calls = {"__import__", "import_module", "exec", "eval", "open", "print", "input"}
    found = [
        f"{MODULES[name].relative_to(SRC)}:{node.lineno} calls {ast.unparse(node.func)}"
        for name in KERNEL
        for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in calls
    ]
    assert not found, "\n".join(found)


def test_nothing_imports_upwards():
    assert_no_import(MODULES, lambda name, target: is_own(target) and layer_of(target) > layer_of(name))


def test_errors_import_nothing_of_whywait():
    assert_no_import(["whywait.errors"], lambda _, target: is_own(target))


def test_the_package_only_re_exports():
    body = ast.parse(MODULES["whywait"].read_text(encoding="utf-8")).body
    definitions = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert [name for name in definitions if name not in {"__getattr__", "__dir__"}] == []


def test_import_needs_no_third_party_package():
    program = """if True:
        import json, sys
        before = set(sys.modules)
        import whywait
        print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert "whywait" in loaded
    assert [name for name in loaded if name != "whywait" and name not in sys.stdlib_module_names] == []


@pytest.mark.parametrize("name", whywait.__all__)
def test_public_name_exists_and_is_documented(name):
    thing = getattr(whywait, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert (thing.__doc__ or "").strip(), f"whywait.{name} has no docstring"


def test_public_names_are_listed_once():
    assert len(whywait.__all__) == len(set(whywait.__all__))
