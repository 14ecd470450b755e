"""Things inside containers: found in lists, tuples, sets, dicts and dataclasses, and replaced.

Containers are looked into to a depth of :data:`DEPTH` and, in one value, up to :data:`MOST` items; what is deeper or
further behind is left as it is. Only the plain types are looked into, and named tuples and dataclasses: other types may
have rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from itertools import islice
from operator import is_
from typing import Any, Final

DEPTH: Final = 5  # containers around a thing
MOST: Final = 10_000

PLAIN: Final = frozenset((int, str, float, bytes, bool, type(None)))  # most arguments: nothing is inside them
_SEQUENCES: Final = frozenset((list, tuple, set, frozenset))


Kinds = type | tuple[type, ...]


class Nest:
    """A container, or several, with things inside that are to be replaced."""

    __slots__ = ("kinds", "things", "value")

    def __init__(self, value: Any, things: list[Any], kinds: Kinds) -> None:
        """Keep a container and what was found in it, all of one of ``kinds``."""
        self.value = value
        self.things = things
        self.kinds = kinds

    def filled(self, replace: Callable[[Any], Any]) -> Any:
        """Return a copy in which each thing is replaced."""
        return replaced(self.value, self.kinds, replace)


def nest_of(value: Any, kinds: Kinds, keep: Callable[[Any], Any], kept_kinds: Kinds) -> Nest | None:
    """Return a value with what ``keep`` returns in the place of each thing of ``kinds`` inside it; None: it has none.

    A thing for which ``keep`` returns None stays, and is not to be replaced.
    """
    things: list[Any] = []

    def replace(thing: Any) -> Any:
        kept = keep(thing)
        if kept is None:
            return thing
        things.append(kept)
        return kept

    new = replaced(value, kinds, replace)
    return Nest(new, things, kept_kinds) if things else None


def replaced(value: Any, kinds: Kinds, replace: Callable[[Any], Any]) -> Any:
    """Return a value, or a copy of it, in which each thing of ``kinds`` is replaced."""
    return value if value.__class__ in PLAIN else _Walk(kinds, replace).walk(value, DEPTH)


class _Walk:
    """Goes through containers and copies those in which something is replaced; the others stay the same objects."""

    def __init__(self, kinds: Kinds, replace: Callable[[Any], Any]) -> None:
        self.kinds = kinds
        self.replace = replace
        self.left = MOST

    def walk(self, value: Any, depth: int) -> Any:
        """Return the value itself, what replaces it, or a copy of it with things inside replaced."""
        cls = value.__class__
        if isinstance(value, self.kinds):
            return self.replace(value)
        new = None
        if not depth or cls in PLAIN:
            return value
        if cls in _SEQUENCES:
            new = self._each(value, depth, cls)
        elif cls is dict:
            new = self._each(value.values(), depth, lambda values: dict(zip(value, values, strict=True)))
        elif isinstance(value, tuple) and hasattr(cls, "_make"):
            new = self._each(value, depth, cls._make)
        elif hasattr(cls, "__dataclass_fields__") and not isinstance(value, type):
            new = self._dataclass(value, depth)
        return value if new is None else new

    def _each(self, values: Collection[Any], depth: int, make: Callable[[list[Any]], Any]) -> Any:
        """Return what is made of the values with things inside them replaced; None: there are none."""
        looked_at = list(islice(values, self.left))
        self.left -= len(looked_at)
        if PLAIN.issuperset(map(type, looked_at)):
            return None
        after = [self.walk(value, depth - 1) for value in looked_at]
        if all(map(is_, after, looked_at)):
            return None
        return make([*after, *islice(values, len(looked_at), None)])

    def _dataclass(self, value: Any, depth: int) -> Any:
        fields = [name for name in value.__dataclass_fields__ if hasattr(value, name)]

        def twin(values: list[Any]) -> Any:
            new = copy(value)
            for name, each in zip(fields, values, strict=True):
                object.__setattr__(new, name, each)  # a frozen one, too
            return new

        return self._each([getattr(value, name) for name in fields], depth, twin)
