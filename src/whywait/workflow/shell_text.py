"""Values in a shell string: put in so that they stay values, whatever signs they have.

``{name}`` in ``run = "..."`` may stand bare, in double or in single quotes; its value is quoted to fit. Where it stands
in something whose rules differ (a here-document, backticks, arithmetic, a substitution inside double quotes), and in
all that follows such a thing, only values without special signs are put in; others are refused. So the scanner need
not know the whole grammar of a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from whywait.errors import ConfigError
from whywait.support.units import shown
from whywait.workflow.expand import PLACEHOLDER, as_word, replacement

_SAFE: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)  # the same in every place of a shell string
_PLACE: Final = rf"(?P<place>{PLACEHOLDER.pattern})"
_TOKEN: Final = re.compile(
    _PLACE
    + r"|(?P<escaped>\\(?![{\n]).|(?<=[ \t])\\\n)"  # a line that goes on after a blank; elsewhere it joins two signs
    + r"|(?P<single>')|(?P<double>\")|(?P<plain>\$\{[^'\"\\`${}]*\}|\$\((?!\()|<<<)"
    + r"|(?P<strange>`|\$\(\(|\(\(|\$\{|\$'|<<|\\|=\(|(?<=\))#)"  # $()# is a word, (true)# is not
    + r"|(?P<comment>(?<![^ \t\n;&|<>(])#)|(?P<other>[^'\"\\`$<#({=]+|.)",
    re.DOTALL,
)
_BARE: Final = "bare"
_DOUBLE: Final = "in double quotes"
_SINGLE: Final = "in single quotes"
_COMMENT: Final = "in a comment"
_UNSURE: Final = "unsure"
_TOKENS: Final = {
    _BARE: _TOKEN,
    _DOUBLE: _TOKEN,
    _UNSURE: _TOKEN,
    _SINGLE: re.compile(_PLACE + r"|(?P<end>')|(?P<other>[^'{]+|.)", re.DOTALL),
    _COMMENT: re.compile(_PLACE + r"|(?P<end>\n)|(?P<other>[^\n{]+|.)", re.DOTALL),
}
_NEXT: Final = {"single": _SINGLE, "comment": _COMMENT, "strange": _UNSURE}
_STRANGE_IN_QUOTES: Final = ("`", "$((", "$(", "${", "\\")


def fill_in(text: str, names: Mapping[str, Any]) -> str:
    """Return a shell string with ``{name}`` replaced by quoted values; raise ConfigError where that cannot be done."""
    whole = PLACEHOLDER.fullmatch(text.strip())
    if whole is not None and whole[2] in names and not _SAFE.fullmatch(as_word(names[whole[2]])):
        told = shown(as_word(names[whole[2]]))
        raise ConfigError(f'{told} would be the name of one program: write shell = "raw" to let it be a command')
    parts: list[str] = []
    where, at, before = _BARE, 0, ""
    while at < len(text):
        token = _TOKENS[where].match(text, at)
        assert token is not None, "the last way to read matches anything"
        if token["place"] is None:
            parts.append(token[0])
            kind = token.lastgroup or ""
            if kind == "comment" and before == "escaped":
                kind = "strange"  # a line that goes on: what comes before decides whether this is a comment
            where, before = _after(kind, token[0], where), kind
        else:
            before = "place"
            place = PLACEHOLDER.fullmatch(token[0])
            assert place is not None, "it was just found"
            parts.append(replacement(place, names, _QUOTE[where]))
        at = token.end()
    return "".join(parts)


def _after(kind: str, text: str, where: str) -> str:
    """Return where in the shell string the next sign stands."""
    if where in (_SINGLE, _COMMENT):
        return _BARE if kind == "end" else where
    if kind == "double" and where != _UNSURE:
        return _BARE if where == _DOUBLE else _DOUBLE
    if where == _DOUBLE:
        return _UNSURE if text in _STRANGE_IN_QUOTES else where
    return where if where == _UNSURE else _NEXT.get(kind, where)


def _in_double_quotes(value: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", value)


def _in_single_quotes(value: str) -> str:
    return value.replace("'", "'\\''")


def _in_a_comment(value: str) -> str:
    return value.replace("\n", " ")


def _as_it_is(value: str) -> str:
    if _SAFE.fullmatch(value):
        return value
    raise ConfigError(
        f"{shown(value)} cannot be quoted here: hand it over by args ($1) or env, "
        'or write shell = "raw" to take it as it is'
    )


_QUOTE: Final[dict[str, Callable[[str], str]]] = {
    _BARE: shlex.quote,
    _DOUBLE: _in_double_quotes,
    _SINGLE: _in_single_quotes,
    _COMMENT: _in_a_comment,
    _UNSURE: _as_it_is,
}
