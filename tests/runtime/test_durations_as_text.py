"""E1: a duration or a size is a number or a text, wherever one is taken."""

from queue import Empty, Full

import pytest

import whywait
from whywait import Aging, Authority, ConfigError, Retry


def body(stop):
    ctx = whywait.current()
    queue = ctx.queue("q", limit=1)
    assert not ctx.signal.wait("1ms")
    with pytest.raises(Empty, match=r"after 0\.001 s"):
        queue.get(timeout="1ms")
    queue.put(1)
    with pytest.raises(Full, match=r"after 0\.001 s"):
        queue.put(2, timeout="1ms")
    part = ctx.handler(stop.wait)
    with pytest.raises(TimeoutError, match=r"after 0\.001 s"):
        part.result(timeout="1ms")
    stop.set()
    return part.result(timeout="10s")


def test_waits_take_text():
    """E1: for a task, several tasks, a signal, a queue, a part; `"30s"` is 30."""
    import threading

    stop = threading.Event()
    with Authority(slots=1, grace="2s", pause_timeout="1s", starvation_timeout="1m", order=Aging("5s")) as authority:
        blocked = authority.submit(stop.wait, max_wait="1m", timeout="1h", retry=Retry(1, "500ms", max_backoff="1m"))
        with pytest.raises(TimeoutError, match=r"after 0\.001 s"):
            blocked.result(timeout="1ms")
        with pytest.raises(TimeoutError):
            blocked.exception("1ms")
        assert whywait.wait([blocked], timeout="1ms").pending == [blocked]
        with pytest.raises(ConfigError, match='timeout: "soon" is not a duration'):
            blocked.result("soon")
        stop.set()
        assert blocked.result("10s")
        stop.clear()
        assert authority.submit(body, stop).result("30s")
        with authority.scope("s", grace="1s", timeout="1h", max_wait="1h") as scope:
            scope.periodic(int, every="500ms", timeout="1s")
        assert authority.settings.order.every == 5.0
