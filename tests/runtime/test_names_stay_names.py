"""A name of a task or scope is text wherever it is shown: it commands no terminal and begins no line of its own."""

import logging
import threading
from concurrent.futures import CancelledError

import pytest

from devtools_client import Gate
from patience import until
from whywait import Authority, WhywaitError

FORGED = "a\x1b[31m\nERROR root: forged\r\u202e\u2028\x00"


def lines_of(texts):
    return [line for text in texts for line in str(text).split("\n")]


def assert_plain(texts):
    """Assert that every line is printable and none was begun by a name."""
    for line in lines_of(texts):
        assert line.isprintable(), repr(line)
        assert not line.startswith("ERROR root"), repr(line)


def boom():
    raise ValueError(FORGED)


def test_names_in_why_reports_and_errors_are_escaped():
    gate, told = Gate(), []
    with Authority(slots=1, ram=100) as authority:
        scope = authority.scope(f"s{FORGED}", slots=1)
        first = scope.submit(gate, id=f"first{FORGED}", ram=50)
        gate.running.wait(10)
        second = scope.submit(int, id=f"second{FORGED}", ram=90)
        third = scope.submit(int, id=f"third{FORGED}", after=[second])
        paused = scope.submit(int, id=f"paused{FORGED}")
        paused.pause()
        for handle in (first, second, third, paused):
            why = handle.why()
            told += [why, why.in_short, *why.starts_when]
        paused.resume()
        for refused in (
            lambda: scope.submit(int, id=f"second{FORGED}"),
            lambda: scope.submit(int, after=[f"nothing{FORGED}"]),
            lambda: authority.get(f"nothing{FORGED}"),
            lambda: authority.get_scope(f"nothing{FORGED}"),
            lambda: authority.scope(f"s{FORGED}"),
        ):
            with pytest.raises((WhywaitError, LookupError)) as caught:
                refused()
            told.append(caught.value)
        gate.open()
        until(third.done)
        told += [first.why(), third.why(), authority.report()]
    assert_plain(told)


def test_names_in_the_ends_of_tasks_and_in_reprs_are_escaped():
    """A traceback of such an error goes to a terminal or into a log."""
    gate, told = Gate(), []
    with Authority(slots=1) as authority:
        scope = authority.scope(f"s{FORGED}")
        first = scope.submit(gate, id=f"first{FORGED}")
        gate.running.wait(10)
        cancelled = scope.submit(int, id=f"cancelled{FORGED}")
        taken_down = scope.submit(int, id=f"taken down{FORGED}", after=[cancelled])
        dropped = scope.submit(int, id=f"dropped{FORGED}", max_wait=0.01)
        cancelled.cancel()
        late = scope.submit(threading.Event().wait, 1, id=f"late{FORGED}", timeout=0.01)
        told += [repr(first), repr(first), repr(scope), repr(scope.periodic(int, every=99, id=FORGED))]
        for refused in (
            lambda: first.result(0.01),
            lambda: first.future().result(0.01),
            cancelled.result,
            cancelled.resume,
            taken_down.result,
            dropped.result,
            lambda: gate.open() or late.result(),
        ):
            with pytest.raises((WhywaitError, TimeoutError, CancelledError)) as caught:
                refused()
            told.append(caught.value)
    assert_plain(told)


def test_names_in_the_log_are_escaped(caplog):
    caplog.set_level(logging.DEBUG, "whywait")
    with Authority(slots=1) as authority:
        gate = Gate()
        authority.submit(gate, id=f"first{FORGED}")
        gate.running.wait(10)
        authority.submit(int, id=f"late{FORGED}", max_wait=0.01)
        until(lambda: "dropped" in caplog.text)
        authority.submit(boom, id=f"failed{FORGED}")
        authority.scope(f"s{FORGED}").submit(int, id=f"asleep{FORGED}").pause()
        with pytest.raises(WhywaitError):
            authority.submit(int, id=f"first{FORGED}")
        gate.open()
        authority.get(f"asleep{FORGED}").resume()
    assert "nobody looked" in caplog.text
    assert_plain(record.getMessage() for record in caplog.records)
