"""YAML to plain data, from parser events: no object is ever built that the file names, and nothing grows by aliases.

Built from events and not by the library's loaders because those compose recursively (a deep file would exhaust the C
stack), let the last of two equal keys win, and drop the line numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from whywait.errors import ConfigError
from whywait.support.lines import Lines, Path
from whywait.support.units import shown
from whywait.workflow.problems import show_path

_MOST: Final = 100_000  # values in a file, with what its aliases stand for
_DEEPEST: Final = 100
_STANDARD: Final = "tag:yaml.org,2002:"
_SCALARS: Final = tuple(_STANDARD + each for each in ("str", "int", "float", "bool", "null"))
_MERGE: Final = "<<"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being read."""

    value: Any
    path: Path
    anchor: str | None
    before: int  # how many values had been read when it began
    key: str | None = None
    has_key: bool = False
    merged: list[Any] = field(default_factory=list)


def parse_yaml(text: str, source: str) -> tuple[Any, Lines]:
    """Parse one YAML document; return its data and the lines of its values."""
    reader = _Reader(source)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            reader.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}: column {mark.column + 1}" if mark else source
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).split("\n", 1)[0]
        raise ConfigError(f"{where}: is not YAML: {what}") from None
    return reader.data, reader.lines


class _Reader:
    """Puts events together."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._resolver: Any = yaml.SafeLoader("")
        self._documents = 0
        self._count = 0
        self._line = 1
        self.data: Any = None
        self.lines: Lines = {}

    def take(self, event: Any) -> None:  # noqa: ANN401  the library gives its events no common type
        """Take the next event of the parser."""
        if event.start_mark is not None:
            self._line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._error("a second document begins: expected one document in the file")
        elif isinstance(event, yaml.ScalarEvent):
            self._add(self._scalar(event), event.anchor, 1)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._begin({} if isinstance(event, yaml.MappingStartEvent) else [], event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._end()

    def _begin(self, value: Any, event: Any) -> None:  # noqa: ANN401  a list or dict; an event
        if event.tag not in (None, "!", f"{_STANDARD}map", f"{_STANDARD}seq"):
            raise self._error(f"the tag {shown(event.tag)} is not allowed: expected plain values")
        if len(self._open) >= _DEEPEST:
            raise self._error("is nested too deeply: expected a few levels")
        if self._open and isinstance(self._open[-1].value, dict) and not self._open[-1].has_key:
            raise self._error("a list or mapping stands where a key should: expected a string")
        path = self._next_path()
        self.lines.setdefault(path, self._line)
        self._open.append(_Open(value, path, event.anchor, self._count))

    def _end(self) -> None:
        done = self._open.pop()
        for merged in done.merged:
            for each in merged if isinstance(merged, list) else [merged]:
                if not isinstance(each, dict):
                    raise self._error(f"<< holds {shown(each)}: expected a mapping or a list of mappings")
                done.value.update((key, value) for key, value in each.items() if key not in done.value)
        self._add(done.value, done.anchor, self._count - done.before + 1)

    def _alias(self, anchor: str | None) -> None:
        if anchor is None or anchor not in self._anchors:
            raise self._error(f"the alias *{anchor} stands for nothing that is complete before it")
        value, size = self._anchors[anchor]
        self._count_up(size)
        self._add(value, None, size)

    def _add(self, value: Any, anchor: str | None, size: int) -> None:  # noqa: ANN401  any value
        if anchor is not None:
            self._anchors[anchor] = value, size
        if not self._open:
            self.data = value
            return
        top = self._open[-1]
        if isinstance(top.value, list):
            self.lines.setdefault((*top.path, len(top.value)), self._line)
            top.value.append(value)
        elif not top.has_key:
            self._take_key(top, value)
        else:
            if top.key == _MERGE:
                top.merged.append(value)
            else:
                top.value[top.key] = value
            top.has_key = False

    def _take_key(self, top: _Open, key: Any) -> None:  # noqa: ANN401  checked here
        if not isinstance(key, str):
            raise self._error(f"the key {shown(key)} is not a string: write it in quotes")
        if key in top.value:
            place = show_path((*top.path, key))
            raise self._error(f"the key {shown(key)} stands there twice ({place}): expected once")
        top.key, top.has_key = key, True
        self.lines[*top.path, key] = self._line

    def _next_path(self) -> Path:
        if not self._open:
            return ()
        top = self._open[-1]
        return (*top.path, len(top.value) if isinstance(top.value, list) else top.key or "")

    def _scalar(self, event: Any) -> Any:  # noqa: ANN401  an event; a plain value
        self._count_up(1)
        tag = event.tag
        if tag is None and not event.implicit[0]:
            return event.value  # in quotes: a string
        if tag is None or tag == "!":
            tag = self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag == f"{_STANDARD}merge":
            return _MERGE
        if tag == f"{_STANDARD}timestamp":
            return event.value
        if tag not in _SCALARS:
            raise self._error(f"the tag {shown(tag)} is not allowed: expected plain values")
        try:
            return self._resolver.construct_object(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, yaml.YAMLError):
            raise self._error(f"{shown(event.value)} cannot be read as {tag.removeprefix(_STANDARD)}") from None

    def _count_up(self, size: int) -> None:
        self._count += size
        if self._count > _MOST:
            raise self._error(f"holds more than {_MOST:,} values, aliases counted in full: expected a smaller file")

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"{self._source}:{self._line}: {message}")
