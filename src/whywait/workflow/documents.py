"""Workflow files as plain data: TOML, YAML or JSON in, one document out that knows the line of each value."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple

from whywait.errors import ConfigError
from whywait.support.files import is_shallow, parse_json, read_text, too_large
from whywait.support.lines import Locate, json_lines, lazily, locator, toml_lines
from whywait.support.units import shown

STDIN: Final = "-"
_CONTENT: Final = "a workflow with tables such as [task.NAME]"
_MOST_PARTS: Final = 40  # of a key
_LONG_KEY: Final = re.compile(
    rf"""(?<![\w-])(?:[\w-]+|"[^"\n]*"|'[^'\n]*')(?:[ \t]*\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')){{{_MOST_PARTS}}}"""
)


class Document(NamedTuple):
    """What stands in a file, where it came from, and how to find the line of a place in it."""

    data: dict[str, Any]
    source: str
    folder: FilePath
    locate: Locate


def read_document(file: str) -> Document:
    """Read a file by its suffix (.toml, .yaml, .yml, .json); ``-`` is standard input, in any of the three."""
    if file == STDIN:
        source, folder = "standard input", FilePath.cwd()
        text = read_text(sys.stdin.buffer, source, "TOML, YAML or JSON", _CONTENT, max(each.limit for each in FORMATS))
        chosen = _guess(text)
        if len(text) > chosen.limit:
            raise too_large(source, chosen.limit)
    else:
        source, folder = file, FilePath(file).resolve().parent
        chosen = _by_suffix(file)
        try:
            with FilePath(file).open("rb") as stream:
                text = read_text(stream, source, chosen.name, _CONTENT, chosen.limit)
        except OSError as error:
            raise ConfigError(f"{source}: cannot be read: {error.strerror or error}") from error
    data, locate = chosen.parse(text, source)
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: {shown(data)} is not a workflow: expected {_CONTENT}")
    if not is_shallow(data):  # before anything walks through it
        raise ConfigError(f"{source}: is nested too deeply: expected {_CONTENT}")
    return Document(data, source, folder, locate)


def _parse_toml(text: str, source: str) -> tuple[Any, Locate]:
    if _LONG_KEY.search(text):  # the parser would take the square of their length
        raise ConfigError(f"{source}: is nested too deeply, by a key of many parts: expected {_CONTENT}")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        message = f"is not TOML: {message[0].lower()}{message[1:]}"
        line, _, column = place.rstrip(")").removeprefix("line ").partition(", column ")
        where = f"{source}:{line}: column {column}" if column else source
        raise ConfigError(f"{where}: {message}") from None
    except RecursionError:
        raise ConfigError(f"{source}: is nested too deeply: expected {_CONTENT}") from None
    except ValueError as error:  # a number of more digits than Python turns into an int
        raise ConfigError(f"{source}: holds a number that cannot be read: {error}") from None
    return data, lazily(toml_lines, text)


def _parse_json(text: str, source: str) -> tuple[Any, Locate]:
    return parse_json(text, source, _CONTENT), lazily(json_lines, text)


def _parse_yaml(text: str, source: str) -> tuple[Any, Locate]:
    try:
        from whywait.workflow.yaml_text import parse_yaml  # noqa: PLC0415  needs PyYAML, which only YAML files need
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise ConfigError(f"{source}: YAML needs the package pyyaml: pip install 'whywait[cli]'") from None
    data, lines = parse_yaml(text, source)
    return data, locator(lines)


class _Format(NamedTuple):
    name: str
    suffixes: tuple[str, ...]
    limit: int  # bytes; what is larger would take longer than a moment to refuse
    parse: Callable[[str, str], tuple[Any, Locate]]


FORMATS: Final = (
    _Format("TOML", (".toml",), 500_000, _parse_toml),
    _Format("YAML", (".yaml", ".yml"), 1_000_000, _parse_yaml),
    _Format("JSON", (".json",), 4_000_000, _parse_json),
)


def _by_suffix(file: str) -> _Format:
    suffix = FilePath(file).suffix.lower()
    for each in FORMATS:
        if suffix in each.suffixes:
            return each
    known = ", ".join(suffix for each in FORMATS for suffix in each.suffixes)
    raise ConfigError(f"{file}: has no known suffix: expected one of {known}")


def _guess(text: str) -> _Format:
    """Return the format of a text without a name."""
    toml, yaml, json = FORMATS
    if text.lstrip().startswith("{"):
        return json
    if len(text) <= toml.limit and not _LONG_KEY.search(text):  # what its parser refuses in a moment
        with suppress(ValueError, RecursionError):
            tomllib.loads(text)
            return toml
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return toml if first.lstrip().startswith("[") or "=" in first.partition(":")[0] else yaml
