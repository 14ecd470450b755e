"""Green threads: an authority refuses a program whose threads were replaced, and no other."""

import sys
from types import SimpleNamespace

import pytest

from whywait import Authority, ConfigError, Executor


def patched(*names):
    """Return what gevent and eventlet have for asking what was replaced."""
    return SimpleNamespace(is_module_patched=names.__contains__, is_monkey_patched=names.__contains__)


@pytest.mark.parametrize(
    ("module", "names", "told"),
    [
        ("gevent.monkey", ("_thread", "threading", "queue"), "gevent has replaced thread, threading, queue"),
        ("gevent.monkey", ("queue",), "gevent has replaced queue"),
        ("eventlet.patcher", ("thread", "socket"), "eventlet has replaced thread of this program"),
    ],
)
def test_replaced_threads_are_refused(monkeypatch, module, names, told):
    """E1: at once, by name, with what to do."""
    monkeypatch.setitem(sys.modules, module, patched(*names))
    for make in (lambda: Authority(slots=1), lambda: Executor(1).submit(int)):
        with pytest.raises(ConfigError, match=rf"{told}.*not patched"):
            make()


def test_a_library_that_replaced_nothing_we_need_is_no_problem(monkeypatch):
    monkeypatch.setitem(sys.modules, "gevent.monkey", patched("socket", "ssl"))
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patched("socket"))
    with Authority(slots=1) as authority:
        assert authority.submit(int).result(30) == 0
