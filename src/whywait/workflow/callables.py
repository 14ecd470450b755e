"""Python functions named in a file as ``module:function``: looked for without running them, and found when they run.

``python -m whywait.workflow.callables MODULE:FUNCTION FOLDER ARGS KWARGS``, the latter two as JSON, calls one: so the
machine carries out functions.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from whywait.errors import ConfigError
from whywait.support.lazy import asyncio
from whywait.support.problems import nearest
from whywait.support.units import shown


def find_problem(call: str, folder: Path) -> str | None:
    """Return what is wrong with ``module:function``, without importing anything; None if nothing can be seen to be."""
    module, _, function = call.partition(":")
    search: list[str] | None = [str(folder), *sys.path]
    spec: ModuleSpec | None = None
    for part in module.split("."):
        if spec is None and part in sys.builtin_module_names:
            return None
        name = part if spec is None else f"{spec.name}.{part}"
        try:
            spec = PathFinder.find_spec(name, search)
        except (ImportError, ValueError, OSError):
            spec = None
        if spec is None:
            beside = [each.stem for each in folder.glob("*.py")]
            return f"there is no module {shown(module)} beside the file or installed{nearest(module, beside)}"
        search = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    assert spec is not None, "a module has a name"
    names = _names_in(spec)
    wanted = function.partition(".")[0]
    if names is None or wanted in names:
        return None
    return f"module {shown(module)} has no function {shown(wanted)}{nearest(wanted, names)}"


def _names_in(spec: ModuleSpec) -> set[str] | None:
    """Return the names at the top of a module's source; None if they cannot all be seen there."""
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None  # the error is told best by the import itself
    names = set(_bound(tree.body))
    return None if "*" in names or "__getattr__" in names else names


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for inner in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)


def call_here(call: str, folder: Path, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the function's own
    """Call a function in a process that was started for it, and return its result; a coroutine is run to its end."""
    result = find_function(call, folder)(*args, **kwargs)
    if not hasattr(result, "__await__"):
        return result

    async def finish() -> Any:  # noqa: ANN401 - of any coroutine function
        return await result

    return asyncio.run(finish())


def find_function(call: str, folder: Path) -> Callable[..., Any]:
    """Import the module, found beside the file first, and return the function."""
    module, _, function = call.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigError(f"call = {shown(call)} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigError(f"call = {shown(call)} is {shown(found)}, which cannot be called")
    return found  # type: ignore[no-any-return]


def command_of(call: str, folder: Path, args: tuple[object, ...], kwargs: dict[str, object]) -> list[str]:
    """Return the command that calls a function."""
    return [sys.executable, "-m", "whywait.workflow.callables", call, str(folder), json.dumps(args), json.dumps(kwargs)]


if __name__ == "__main__":
    call_here(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4]))
