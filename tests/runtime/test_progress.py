"""progress() follows handles, scopes and authorities to their ends, and draws it where it is looked at."""

import asyncio
import io
import threading

import pytest

import whywait
from patience import PATIENCE_S
from whywait import Authority, Retry
from whywait.errors import ConfigError


@pytest.fixture
def authority():
    with Authority(slots=2) as each:
        yield each


def fail():
    raise ValueError("no")


def lines(what):
    stream = io.StringIO()
    whywait.progress(what, stream=stream)
    return [line.split(None, 2)[2] for line in stream.getvalue().splitlines()]


def test_the_last_line_counts_all_and_the_failures(authority):
    handles = [authority.submit(int, id=f"t{number}") for number in range(5)]
    wrong = authority.submit(fail)
    assert lines([*handles, wrong])[-1] == "6 of 6 · 1 failed"
    assert lines(handles[0]) == ["1 of 1"]
    assert lines([]) == ["0 of 0"]
    assert isinstance(wrong.exception(PATIENCE_S), ValueError)


def test_it_tells_what_runs_and_what_the_others_wait_for(authority):
    gate = threading.Event()
    for name in ("a", "b", "c"):
        authority.submit(gate.wait, PATIENCE_S, id=name)
    waiting = authority.submit(int, id="d", after=["c"])
    threading.Timer(0.5, gate.set).start()
    first = lines(authority)[0]
    assert first == "0 of 4 · running a, b · 1 waits for a free slot · 1 waits for dependencies"
    assert waiting.done()


def test_a_scope_counts_its_own_tasks_once_whatever_their_attempts(authority):
    """T7: a task that is retried ends once."""
    scope = authority.scope("s")
    tries = []

    gate = threading.Event()

    def body():
        gate.wait(PATIENCE_S)
        tries.append(1)
        if len(tries) < 3:
            raise OSError

    scope.submit(gate.wait, PATIENCE_S)
    scope.submit(body, retry=Retry(2, backoff=0.01))
    authority.submit(int)  # another scope's
    threading.Timer(0.3, gate.set).start()
    assert lines(scope)[-1] == "2 of 2"


def test_what_cannot_be_followed_is_refused(authority):
    with pytest.raises(ConfigError, match=r"7 is not a handle: progress\(\) takes handles, a scope or an authority"):
        whywait.progress(7)


def test_in_a_terminal_it_is_a_bar(authority):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    whywait.progress([authority.submit(int)], stream=stream)
    assert "1 of 1" in stream.getvalue()
    assert "━" in stream.getvalue()


def test_html_shows_ids_as_text(authority):
    """What notebooks show is escaped."""
    gate = threading.Event()
    handle = authority.submit(gate.wait, PATIENCE_S, id="<script>alert(1)</script>")
    for thing in (handle, handle.why(), authority, authority.get_scope("default"), authority.report()):
        assert "<script>" not in thing._repr_html_()
    assert "&lt;script&gt;" in authority._repr_html_()
    gate.set()


def test_devtools_are_a_link_that_hands_over_the_token(authority):
    """V6: in a notebook, where they are opened and in the picture of their authority."""
    tools = authority.devtools(announce=False)
    shown = f'<a href="{tools.url}" target="_blank">DevTools {tools.base_url}</a>'
    assert tools._repr_html_() == shown
    assert f'<a href="{tools.url}" target="_blank">DevTools</a>' in authority._repr_html_()
    assert "&lt;DevTools " in authority.devtools(port=None, announce=False)._repr_html_()


def test_what_blocks_on_a_loop_names_what_can_be_awaited_instead():
    """O4, O6: dispose() of an authority by its own name, and a plain block by the other kind of block."""

    async def main():
        async with whywait.Authority(slots=1) as authority:
            handle = authority.submit(lambda: whywait.current().signal.wait(PATIENCE_S))
            for thing, name in ((authority, "authority"), (authority.get_scope("default"), "scope")):
                with pytest.raises(whywait.WhywaitError, match=f"use `await {name}.dispose_async"):
                    thing.dispose()
            with pytest.raises(whywait.WhywaitError, match=r"whywait\.gather_async"):
                whywait.gather(handle)
            for block in (authority.get_scope("default"), authority):
                with pytest.raises(whywait.WhywaitError, match=r"leaving a block .+ `async with`"), block:
                    pass
            handle.cancel()

    asyncio.run(main())
