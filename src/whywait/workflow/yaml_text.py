"""YAML to plain data: no object is ever built that the file names, and nothing grows by aliases.

The library composes nodes recursively, so the depth is looked at before, in the events of its parser: a deep file would
exhaust the C stack. Data is built from the nodes here, because the library's constructors let the last of two equal
keys win, and drop the line numbers.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from whywait.errors import ConfigError
from whywait.support.lines import Lines, Path
from whywait.support.problems import show_path
from whywait.support.units import shown

_MOST: Final = 100_000  # values in a file, with what its aliases stand for
_DEEPEST: Final = 100
_STANDARD: Final = "tag:yaml.org,2002:"
_SCALARS: Final = frozenset(_STANDARD + each for each in ("str", "int", "float", "bool", "null"))
_AS_WRITTEN: Final = frozenset(_STANDARD + each for each in ("timestamp", "merge", "value"))
_MERGE: Final = f"{_STANDARD}merge"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str, source: str) -> tuple[Any, Lines]:
    """Parse one YAML document; return its data and the lines of its values."""
    reader = _Reader(source)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise reader.error(event, "is nested too deeply: expected a few levels")
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}: column {mark.column + 1}" if mark else source
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).split("\n", 1)[0]
        if isinstance(error, yaml.composer.ComposerError) and error.context:
            what = f"{error.context} {what}"  # "expected a single document", of which the rest is no sentence
        raise ConfigError(f"{where}: is not YAML: {what}") from None
    return None if node is None else reader.build(node, ()), reader.lines


class _Reader:
    """Builds data from nodes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._constructor: Any = yaml.SafeLoader("")
        self._count = 0
        self.lines: Lines = {}

    def build(self, node: Any, path: Path) -> Any:  # noqa: ANN401 - a node; any value
        """Return the value of a node; what an alias stands for is built, and counted, each time."""
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._count += 1
        if self._count > _MOST:
            message = f"holds more than {_MOST:,} values, aliases counted in full: expected a smaller file"
            raise self.error(node, message)
        if len(path) > _DEEPEST:
            raise self.error(node, "is nested too deeply: expected a few levels")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node.tag not in ("!", f"{_STANDARD}map", f"{_STANDARD}seq"):
            raise self.error(node, f"the tag {shown(node.tag)} is not allowed: expected plain values")
        if isinstance(node, yaml.SequenceNode):
            return [self.build(each, (*path, index)) for index, each in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:  # noqa: ANN401 - a node
        data: dict[str, Any] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, "a list or mapping stands where a key should: expected a string")
            key = self._scalar(key_node)
            if not isinstance(key, str):
                raise self.error(key_node, f"the key {shown(key)} is not a string: write it in quotes")
            if key in data:
                place = show_path((*path, key))
                raise self.error(key_node, f"the key {shown(key)} stands there twice ({place}): expected once")
            self.lines[*path, key] = key_node.start_mark.line + 1
            value = self.build(value_node, (*path, key))
            if key_node.tag == _MERGE:
                merged += value if isinstance(value, list) else [value]
            else:
                data[key] = value
        for each in merged:
            if not isinstance(each, dict):
                raise self.error(node, f"<< holds {shown(each)}: expected a mapping or a list of mappings")
            data = {**each, **data}
        return data

    def _scalar(self, node: Any) -> Any:  # noqa: ANN401 - a node; a plain value
        if node.tag in _AS_WRITTEN:
            return node.value
        if node.tag not in _SCALARS:
            raise self.error(node, f"the tag {shown(node.tag)} is not allowed: expected plain values")
        try:
            return self._constructor.construct_object(node)
        except (ValueError, KeyError, yaml.YAMLError):
            told = node.tag.removeprefix(_STANDARD)
            raise self.error(node, f"{shown(node.value)} cannot be read as {told}") from None

    def error(self, node: Any, message: str) -> ConfigError:  # noqa: ANN401 - a node or an event
        """Return the error that names the file and the line."""
        return ConfigError(f"{self._source}:{node.start_mark.line + 1}: {message}")
