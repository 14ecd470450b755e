"""Whether values from a file fit types: those of a table, or those that a function has for its parameters.

``Annotated[int, check, "words"]`` is an int for which the check, if there is one, holds too, and the words of a
refusal. In files of calls, such as records, a value of the wrong kind is found before it reaches the function, and a
function that changes needs no second list of what it takes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from whywait.errors import ConfigError
from whywait.support.units import shown

LARGEST: Final = (1 << 63) - 1
LONGEST_TEXT: Final = 10_000  # characters

Check = Callable[[Any], bool]
Types = dict[str, tuple[Check, Any]]
Count = Annotated[int, lambda value: value >= 0, "an int of 0 or more"]


class Signature:
    """What a function takes; ``more`` are types of parameters, by name, that say more than the function does.

    ``names`` are those of its annotations that its module does not have: a compiled one keeps no classes that it has
    from others.
    """

    def __init__(self, function: Callable[..., Any], more: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        """Read the annotations."""
        self._signature = inspect.signature(function)
        hints = get_type_hints(function, localns=dict(names))
        self._types = {
            name: [(check_of(each), each) for each in (hint, *([more[name]] if name in more else ()))]
            for name, hint in hints.items()
            if name != "return" and self._signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD
        }

    def bind(self, *args: Any, **kwargs: Any) -> inspect.BoundArguments:
        """Return the arguments by parameter; raise ConfigError if one is missing, too many or of the wrong kind."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigError(str(error)) from None
        for name, value in bound.arguments.items():
            self.check(name, value)
        return bound

    def check(self, name: str, value: Any) -> None:
        """Raise ConfigError if a value is none for this parameter."""
        for holds, hint in self._types.get(name, ()):
            if not holds(value):
                raise misfit(name, value, hint)


def misfit(name: str, value: object, hint: Any) -> ConfigError:
    """Return the error of a value that does not fit."""
    if value is None:
        return ConfigError(f"{name} is missing: expected {in_words(hint)}")
    return ConfigError(f"{name} is {shown(value)}: expected {in_words(hint)}")


def in_words(hint: Any) -> str:
    """Return what a value of a type is called."""
    inner = get_args(hint)
    if isinstance(hint, str):
        return hint
    if get_origin(hint) is Annotated and isinstance(inner[-1], str):
        return inner[-1]
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, inner))}"
    return getattr(hint, "__name__", None) or str(hint)


def with_checks(hints: Mapping[str, Any]) -> Types:
    """Return the types of a table, each with its check."""
    return {name: (check_of(hint), hint) for name, hint in hints.items()}


@cache
def check_of(hint: Any) -> Check:  # noqa: PLR0911 - one kind of type after the other
    """Return the check that a type stands for."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Annotated:
        first, more = check_of(inner[0]), next(filter(callable, inner[1:]), None)
        return first if more is None else lambda value: first(value) and bool(more(value))
    if origin in (Union, UnionType):
        checks = [check_of(each) for each in inner]
        return lambda value: any(check(value) for check in checks)
    if origin is Literal:
        return inner.__contains__
    if origin is tuple and inner[-1] is not Ellipsis:
        return _each_of(tuple, [check_of(each) for each in inner])
    if origin in (tuple, list, Sequence):
        check = check_of(inner[0])
        return lambda value: isinstance(value, tuple | list) and all(map(check, value))
    if origin in (dict, Mapping):
        key, value = map(check_of, inner)
        return lambda pairs: isinstance(pairs, dict) and all(key(one) and value(other) for one, other in pairs.items())
    if origin is not None or not isinstance(hint, type):
        return _PLAIN[NoneType]  # a function, say: no file has one
    if issubclass(hint, tuple):  # with names
        hints = get_type_hints(hint)
        return _each_of(hint, [check_of(hints[name]) for name in hint._fields])  # type: ignore[attr-defined]
    return lambda value: isinstance(value, hint)


def _each_of(kind: type, checks: list[Check]) -> Check:
    return lambda value: (
        isinstance(value, kind)
        and len(value) == len(checks)  # type: ignore[arg-type] # it is a tuple
        and all(check(part) for check, part in zip(checks, value, strict=True))  # type: ignore[call-overload]
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


_PLAIN: Final[dict[Any, Check]] = {
    Any: lambda _: True,
    NoneType: lambda value: value is None,
    int: _is_int,
    float: lambda value: _is_int(value) or (isinstance(value, float) and math.isfinite(value)),
    str: lambda value: isinstance(value, str) and len(value) <= LONGEST_TEXT,
}
is_count: Final = check_of(Count)
