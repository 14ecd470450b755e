"""Whether values from a file fit the parameters of a function, by its annotations.

For files that hold calls, such as records: a value of the wrong kind is found before it reaches the function, and a
function that changes needs no second list of what it takes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from whywait.errors import ConfigError
from whywait.support.units import shown

LARGEST: Final = (1 << 63) - 1
LONGEST_TEXT: Final = 10_000  # characters

Check = Callable[[Any], bool]
Checks = Mapping[str, tuple[Check, str]]  # of parameters by name: more than their type, and what is expected


class Signature:
    """What a function takes, and the checks of it; ``more`` are checks of parameters that a type cannot say.

    ``types`` are those of its annotations by name that its module does not have: a compiled one keeps no classes that
    it has from others.
    """

    def __init__(
        self, function: Callable[..., Any], more: Checks, types: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Read the annotations."""
        self._function = function
        self._signature = inspect.signature(function)
        self._hints = get_type_hints(function, localns=dict(types))
        self._more = more

    def bind(self, *args: Any, **kwargs: Any) -> inspect.BoundArguments:  # noqa: ANN401 - those of the function
        """Return the arguments by parameter; raise ConfigError if one is missing, too many or of the wrong kind."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigError(str(error)) from None
        for name, value in bound.arguments.items():
            self.check(name, value)
        return bound

    def check(self, name: str, value: Any) -> None:  # noqa: ANN401 - of any kind
        """Raise ConfigError if a value is none for this parameter."""
        hint = self._hints.get(name, Any)
        if self._signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD and not _check_of(hint)(value):
            raise ConfigError(f"{name} is {shown(value)}: expected {_in_words(hint)}")
        check, expected = self._more.get(name, (None, ""))
        if check is not None and value is not None and not check(value):
            raise ConfigError(f"{name} is {shown(value)}: expected {expected}")


def is_int(value: Any) -> bool:  # noqa: ANN401 - of any kind
    """Return whether a value is an int that no file has by mistake."""
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def is_count(value: Any) -> bool:  # noqa: ANN401 - of any kind
    """Return whether a value is an int of 0 or more."""
    return is_int(value) and value >= 0


@cache
def _check_of(hint: Any) -> Check:  # noqa: ANN401, PLR0911 - an annotation, one kind after the other
    """Return the check that an annotation stands for."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (Union, UnionType):
        checks = [_check_of(each) for each in inner]
        return lambda value: any(check(value) for check in checks)
    if origin is Literal:
        return inner.__contains__
    if origin is tuple and len(inner) > 1 and inner[1] is not Ellipsis:
        each = [_check_of(part) for part in inner]
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(each)
            and all(check(part) for check, part in zip(each, value, strict=True))
        )
    if origin in (tuple, list, Sequence):
        check = _check_of(inner[0])
        return lambda value: isinstance(value, tuple | list) and all(map(check, value))
    if origin in (dict, Mapping):
        key, value = map(_check_of, inner)
        return lambda pairs: isinstance(pairs, dict) and all(key(one) and value(other) for one, other in pairs.items())
    if origin is not None or not isinstance(hint, type):
        return lambda value: value is None  # a function, say: no file has one
    if issubclass(hint, tuple):  # with names
        hints = get_type_hints(hint)
        fields = [_check_of(hints[name]) for name in hint._fields]  # type: ignore[attr-defined]
        return lambda value: (
            isinstance(value, hint) and all(check(part) for check, part in zip(fields, value, strict=True))
        )
    return lambda value: isinstance(value, hint)


def _in_words(hint: Any) -> str:  # noqa: ANN401 - an annotation
    inner = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_in_words, inner))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if get_origin(hint) in (tuple, list, Sequence):
        return "a list"
    if get_origin(hint) in (dict, Mapping):
        return "an object"
    return _WORDS.get(hint) or f"a {getattr(hint, '__name__', 'value').lower()}"


_PLAIN: Final[dict[Any, Check]] = {
    Any: lambda _: True,
    NoneType: lambda value: value is None,
    bool: lambda value: isinstance(value, bool),
    int: is_int,
    float: lambda value: is_int(value) or (isinstance(value, float) and math.isfinite(value)),
    str: lambda value: isinstance(value, str) and len(value) <= LONGEST_TEXT,
}
_WORDS: Final[dict[Any, str]] = {
    NoneType: "null",
    bool: "true or false",
    int: "an int",
    float: "a number",
    str: "a text",
}
