"""Finds the lines of a JSON or TOML text at which its values stand; only asked when something is wrong.

The text has been parsed by the library of its format before, so here it is known to be well-formed and a walk over
its tokens is enough. What is not found (inside a TOML inline table) is taken to stand where its parent does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

Path = tuple[str | int, ...]  # where something stands: ("task", "decode", "after", 0)
Locate = Callable[[Path], int | None]  # the line of a place, or of the nearest one around it that is known
Lines = dict[Path, int]
DEEPEST: Final = 100  # parts of a path that has a line of its own
MOST_TEXT: Final = 500_000  # characters; in a text that is larger, and no person's work, finding lines takes too long

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_TOML_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}]|\n', re.DOTALL
)
_KEY: Final = r'(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
_KEYS: Final = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_TOML_HEADER: Final = re.compile(rf"\s*(\[\[?)[ \t]*({_KEYS})[ \t]*\]")
_TOML_ASSIGNMENT: Final = re.compile(rf"\s*({_KEYS})[ \t]*=")
_ONE_KEY: Final = re.compile(_KEY)


def locator(lines: Lines) -> Locate:
    """Return what finds the line of a place, or of the nearest place around it."""

    def locate(path: Path) -> int | None:
        path = path[:DEEPEST]
        while path:
            line = lines.get(path)
            if line is not None:
                return line
            path = path[:-1]
        return None

    return locate


def nowhere(path: Path) -> int | None:
    """Return no line: what has no text has no lines."""
    del path
    return None


def lazily(find: Callable[[str], Lines], text: str) -> Locate:
    """Return what finds lines in a text; nothing is looked for before the first place is asked for."""
    known: list[Locate] = []

    def locate(path: Path) -> int | None:
        if not known:
            known.append(locator(find(text) if len(text) <= MOST_TEXT else {}))
        return known[0](path)

    return locate


def json_lines(text: str) -> Lines:
    """Return the line of every value in a JSON text."""
    lines: Lines = {}
    path: list[str | int] = []  # of the container that is open; its last part is the present key or index
    expects_key = expects_item = False
    line, position = 1, 0
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        line += text.count("\n", position, match.start())
        position = match.start()
        if expects_item:
            if len(path) <= DEEPEST:
                lines[tuple(path)] = line
            expects_item = False
        if token in "{[":
            expects_key = token == "{"
            expects_item = not expects_key
            path.append("" if expects_key else 0)
        elif token in "}]":
            path.pop()
            expects_key = False
        elif token == ",":
            last = path[-1]
            expects_key = isinstance(last, str)
            if isinstance(last, int):
                path[-1] = last + 1
                expects_item = True
        elif expects_key:
            path[-1] = json.loads(token, strict=False)
            if len(path) <= DEEPEST:
                lines[tuple(path)] = line
            expects_key = False
    return lines


def toml_lines(text: str) -> Lines:
    """Return the line of every table and key in a TOML text."""
    lines: Lines = {}
    table: Path = ()
    counts: dict[Path, int] = {}  # of arrays of tables
    for line, statement in _toml_statements(text):
        header = _TOML_HEADER.match(statement)
        if header is not None:
            table = _toml_keys(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            lines.setdefault(table, line)
            continue
        assignment = _TOML_ASSIGNMENT.match(statement)
        if assignment is not None:
            keys = _toml_keys(assignment[1])
            for end in range(1, len(keys) + 1):
                lines.setdefault((*table, *keys[:end]), line)
    return lines


def _toml_keys(text: str) -> Path:
    keys = (match[0] for match in _ONE_KEY.finditer(text))
    return tuple(key[1:-1] if key[0] in "\"'" else key for key in keys)


def _toml_statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each statement; brackets and long strings may carry one over several lines."""
    depth, start, line = 0, 0, 1
    begins = line
    for match in _TOML_TOKEN.finditer(text):
        token = match[0]
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        elif token == "\n":
            line += 1
            if depth <= 0:
                yield begins, text[start : match.start()]
                depth, start, begins = 0, match.end(), line
        else:
            line += token.count("\n")
    yield begins, text[start:]
