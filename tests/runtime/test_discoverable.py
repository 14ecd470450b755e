"""E1: what users call is documented where they look, and closed sets are in the signatures."""

import inspect
import pydoc
import subprocess
import sys
from typing import get_args, get_type_hints

import pytest

import whywait
import whywait.machine
from whywait.runtime.option_types import AuthorityOptions, PeriodicOptions, ScopeOptions, TaskOptions

FACTS = ("id", "state", "outcome", "cause", "priority", "ref", "paused_from")
HELD = (whywait.Authority, whywait.Scope, whywait.Handle)


@pytest.mark.parametrize("kind", HELD)
def test_help_begins_with_what_there_is_to_call(kind):
    """E1: the main methods are in the first lines; nothing internal is listed."""
    text = pydoc.plain(pydoc.render_doc(kind))
    named = {word for word in (kind.__doc__ or "").replace("`", " ").replace(",", " ").split() if hasattr(kind, word)}
    assert len(named) > 5
    listed = [line.removeprefix(" |  ").split("(")[0].split()[-1] for line in text.splitlines() if "(self" in line[:60]]
    assert [name for name in listed if name.startswith("_") and not name.startswith("__")] == []


def is_inside(kind, name):
    """A handle is the kernel's task as well; what its own class does not define is said in that class's docstring."""
    return kind is whywait.Handle and name not in vars(kind) and (name not in FACTS or name in kind.__doc__)


@pytest.mark.parametrize("kind", HELD)
def test_every_public_method_says_what_it_does(kind):
    """E1: its docstring begins with a sentence."""
    for name, member in inspect.getmembers(kind):
        if not name.startswith("_") and not is_inside(kind, name):
            assert (inspect.getdoc(member) or "").partition("\n")[0].rstrip().endswith((".", ":")), name


@pytest.mark.parametrize(
    ("options", "name", "words"),
    [
        (AuthorityOptions, "backfill", {"greedy", "none"}),
        (AuthorityOptions, "overdraft", {"count", "warn", "kill"}),
        (AuthorityOptions, "overflow", {"reject", "displace"}),
        (AuthorityOptions, "when_busy", {"queue", "reject"}),
        (ScopeOptions, "on_error", {"continue", "abort"}),
        (PeriodicOptions, "overlap", {"skip", "queue", "parallel"}),
        (whywait.Aging, "ties", {"submission", "id"}),
    ],
)
def test_a_closed_set_of_words_is_in_the_signature(options, name, words):
    """E1: as a Literal, of which editors and type checkers know."""
    assert words <= set(get_args(get_type_hints(options)[name]))


@pytest.mark.parametrize("options", [AuthorityOptions, ScopeOptions, TaskOptions])
def test_engines_are_named_in_the_signature(options):
    """E1: beside engines of one's own."""
    from whywait.engines.registry import MAKERS

    words = {word for hint in get_args(get_type_hints(options)["engine"]) for word in get_args(hint)}
    assert words == {name for name, make in MAKERS.items() if make.__module__.startswith("whywait.")}  # tests have more


@pytest.mark.parametrize("module", [whywait, whywait.machine])
def test_a_module_lists_what_it_has_before_anything_of_it_is_loaded(module):
    """E1: `dir` and the completion of a terminal show every public name."""
    program = f"import {module.__name__} as module; print(*dir(module))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(module.__all__) <= set(done.stdout.split())
