"""What travels to a child process: functions and arguments as bytes, and which functions a child may keep.

Importable functions travel by name; others (closures, lambdas, all that stands in ``__main__``) by value, with the
globals they use as they are at that moment. A child may keep a function, so that only its number travels next time,
where sending it anew would make no difference: it travels by name, or by value and everything it reads is constant.
"""

from __future__ import annotations

import dis
import itertools
import pickle
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from whywait.errors import ConfigError

try:
    import cloudpickle  # type: ignore[import-untyped]
except ImportError:
    cloudpickle = None

PROTOCOL: Final = pickle.HIGHEST_PROTOCOL
KEPT_AT_MOST: Final = 512  # functions, here and in each child
_MISSING: Final = object()
_CONSTANTS: Final = frozenset({int, float, complex, bool, str, bytes, type(None)})
Look = tuple[dict[str, Any], str, Any]  # a global, as it was


def require_cloudpickle() -> None:
    """Raise ConfigError, with what to do about it, if cloudpickle is not there."""
    if cloudpickle is None:
        raise ConfigError("the process engine needs cloudpickle: pip install 'whywait[process]'")


def dumps(value: Any) -> bytes:
    """Pickle for a process with another ``__main__``."""
    if not cloudpickle.list_registry_pickle_by_value():
        try:
            data = pickle.dumps(value, PROTOCOL)
        except Exception:
            data = b"__main__"
        if b"__main__" not in data:
            return data
    by_value: bytes = cloudpickle.dumps(value, PROTOCOL)
    return by_value


class Kept:
    """A function that children may keep under its number, as long as what it reads stays the same."""

    __slots__ = ("_functions", "_looks", "data", "number")

    def __init__(self, number: int, data: bytes, functions: list[FunctionType], looks: list[Look]) -> None:
        self.number = number
        self.data = data
        self._functions = [(fn.__code__, fn.__defaults__, fn) for fn in functions]
        self._looks = looks

    def holds(self) -> bool:
        """Return whether sending the function anew would send the same."""
        for code, defaults, fn in self._functions:
            if fn.__code__ is not code or fn.__defaults__ is not defaults or not _is_bare(fn):
                return False
        return all(names.get(name, _MISSING) is value for names, name, value in self._looks)


_UNSEEN: Final = Kept(0, b"", [], [])


class Functions:
    """Pickles functions, each as seldom as possible."""

    def __init__(self) -> None:
        self._kept: dict[Callable[..., Any], Kept | None] = {}  # None: looked at, may not be kept
        self._numbers = itertools.count(1)

    def pack(self, fn: Callable[..., Any]) -> tuple[int, bytes]:
        """Return the number under which a child may keep the function (0: it may not) and its bytes."""
        kind = fn.__class__
        if kind is not FunctionType and kind is not BuiltinFunctionType:
            return 0, dumps(fn)
        kept = self._kept.get(fn, _UNSEEN)
        if kept is _UNSEEN and (kind is BuiltinFunctionType or _is_bare(fn)):
            return self._keep(fn)
        if kept is None or kept is _UNSEEN:
            return 0, dumps(fn)
        if kept.holds():
            return kept.number, kept.data
        return self._keep(fn)

    def _keep(self, fn: Callable[..., Any]) -> tuple[int, bytes]:
        functions: list[FunctionType] = []
        looks: list[Look] = []
        data = dumps(fn)
        if len(self._kept) >= KEPT_AT_MOST:
            self._kept = {}
        if not _is_constant(fn, functions, looks):
            self._kept[fn] = None
            return 0, data
        kept = self._kept[fn] = Kept(next(self._numbers), data, functions, looks)
        return kept.number, data


def _is_constant(value: Any, functions: list[FunctionType], looks: list[Look]) -> bool:
    """Return whether a value is the same whenever it is sent; note the functions and globals that this rests on."""
    kind = value.__class__
    if kind is ModuleType:
        return _is_importable(value)
    if kind is tuple:
        return all(_is_constant(each, functions, looks) for each in value)
    if kind in _CONSTANTS or any(value is fn for fn in functions) or _goes_by_name(value):
        return True
    return kind is FunctionType and _is_bare(value) and _reads_constants(value, functions, looks)


def _reads_constants(value: FunctionType, functions: list[FunctionType], looks: list[Look]) -> bool:
    """Return whether a function depends on nothing that may change."""
    functions.append(value)
    names = value.__globals__
    for name, is_changed in _globals_used(value.__code__):
        found = names.get(name, _MISSING)
        if is_changed or not (found is _MISSING or _is_constant(found, functions, looks)):
            return False
        looks.append((names, name, found))
    return all(_is_constant(each, functions, looks) for each in value.__defaults__ or ())


def _is_bare(fn: Any) -> bool:
    return fn.__closure__ is None and not fn.__kwdefaults__ and not fn.__dict__


def _is_importable(module: ModuleType) -> bool:
    name = module.__name__
    return name != "__main__" and sys.modules.get(name) is module and module.__spec__ is not None


def _goes_by_name(value: Any) -> bool:
    """Return whether a class or function travels as its name only."""
    if isinstance(value, BuiltinFunctionType):
        if not isinstance(value.__self__, ModuleType | None):  # a method of some object
            return False
    elif not isinstance(value, type | FunctionType):
        return False
    try:
        by_name = pickle.dumps(value, PROTOCOL)
        return bool(by_name == cloudpickle.dumps(value, PROTOCOL))
    except Exception:
        return False


def _globals_used(code: CodeType) -> Iterator[tuple[str, bool]]:
    """Yield the globals that code and the code inside it mention, and whether it changes them."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield instruction.argval, False
        elif instruction.opname in {"STORE_GLOBAL", "DELETE_GLOBAL"}:
            yield instruction.argval, True
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_used(constant)
