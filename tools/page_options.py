"""What is written from the table of options: the types of keywords, and the first table of the page of settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from whywait import options
from whywait.support.forms import Option

TYPES: Final = Path(options.__file__).parent / "runtime" / "option_types.py"
SETTINGS: Final = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
_WIDEST: Final = 120
_HEAD: Final = '''\
"""The types of options, for editors and type checkers: written by ``make docs`` from the table in ``options.py``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from whywait.engines.base import Engine
from whywait.engines.registry import EngineName
from whywait.kernel.durations import Seconds
from whywait.kernel.limits import Retry
from whywait.kernel.order import Order
from whywait.options import Gpus, OrderName, Size
'''
# Each class, the one that it extends, and the place whose options they have together.
_CLASSES: Final = {
    "AuthorityOptions": (
        "TypedDict",
        options.AUTHORITY,
        "The configuration of an authority; what is left out comes from the environment or a default.",
    ),
    "LimitOptions": ("TypedDict", options.RESIZE, "The limits that ``resize`` changes."),
    "ScopeOptions": (
        "TypedDict",
        options.NEW_SCOPE,
        "What a scope may set for itself; None: no engine or grace of its own, else explicitly none.",
    ),
    "BodyOptions": (
        "TypedDict",
        (options.SUBMIT, options.REPEAT, options.JOB, options.LEASE),
        "What whatever runs may ask for.",
    ),
    "TaskOptions": ("BodyOptions", options.SUBMIT, "What a task may set; the rest is inherited from its scope."),
    "PeriodicOptions": (
        "BodyOptions",
        options.REPEAT,
        "What a periodic may set; its tasks take no slot, unless ``slot`` is True, and inherit from its scope.",
    ),
    "LeaseOptions": ("BodyOptions", options.LEASE, "What a lease of the machine may ask for."),
    "JobOptions": ("LeaseOptions", options.JOB, "What a job of the machine may ask for."),
}


def option_types() -> str:
    """Return the module of types."""
    parts, names_of = [_HEAD], {"TypedDict": set[str]()}
    for name, (base, places, about) in _CLASSES.items():
        several = (places,) if isinstance(places, str) else places
        rows = {
            key: field.option
            for key, field in options.table(several[0]).items()
            if key not in names_of[base] and all(key in options.table(place) for place in several)
        }
        names_of[name] = {*names_of[base], *rows}
        lines = [_line(key, option, option.form.hint) for key, option in rows.items()]
        parts.append(f'\n\nclass {name}({base}, total=False):\n    """{about}"""\n\n' + "".join(lines))
    rows = {key: field.option for key, field in options.table(options.AUTHORITY).items()}
    lines = [f"    {key}: {option.form.gives or option.form.hint}\n" for key, option in rows.items()]
    parts.append('\n\nclass Resolved:\n    """The same as ``Settings`` has it."""\n\n' + "".join(lines))
    return "".join(parts)


def settings_page() -> str:
    """Return the page of settings with the table of an authority's options as it has to be."""
    rows = "\n".join(
        f"| `{name}` | {_variables(name)} | {_default(field.option)} | {field.option.about} |"
        for name, field in options.table(options.AUTHORITY).items()
    )
    table = f"| argument of `Authority` | variable | default | meaning |\n| --- | --- | --- | --- |\n{rows}\n"
    page = SETTINGS.read_text(encoding="utf-8")
    return re.sub(r"\| argument of `Authority` \|.*?\n(?!\|)", lambda _: table, page, flags=re.DOTALL)


def _line(name: str, option: Option, hint: str) -> str:
    line = f"    {name}: {hint}"
    with_help = f"{line}  # {option.about}"
    return (with_help if len(with_help) <= _WIDEST else line) + "\n"


def _variables(name: str) -> str:
    found = [each.variable for each in options.OPTIONS if each.variable and each.name == name]
    if name == "order":
        found = [each.variable for each in options.OPTIONS if each.name in {"every", "boost"} and each.variable]
    return ", ".join(f"`{each}`" for each in dict.fromkeys(found))


def _default(option: Option) -> str:
    return "" if option.default is None else f"`{option.default!r}`"
