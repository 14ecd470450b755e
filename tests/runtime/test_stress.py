"""Many threads at one authority, with the interpreter switching as often as it can; see stress.py."""

import logging
import threading
import time

import pytest

from stress import Storm, coroutine, hasty_switches
from whywait import Authority, WhywaitError
from whywait.engines.registry import MAKERS


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_leaves_everything_in_order(seed, caplog):
    """S2, T2, X3, O4: every task has one end, every callback is called once, nothing is left, limits have held."""
    caplog.set_level(logging.CRITICAL, "whywait")
    print(f"seed {seed}")
    figures = Storm(seed, threads=8, seconds=20, operations=150).run()
    assert figures["tasks"] > 100


def test_scopes_come_and_go_while_others_look():
    """O3: the scopes of an authority are looked through while others are opened and disposed of."""
    problems = []
    over = threading.Event()

    def come_and_go(index):
        try:
            for number in range(150):
                authority.scope(f"{index}-{number}").dispose()
        except BaseException as error:
            problems.append(error)
            raise

    def look():
        while not over.is_set():
            try:
                authority.get_scope("nobody")
            except WhywaitError:
                continue
            except BaseException as error:
                problems.append(error)
                raise

    with hasty_switches(), Authority(slots=1) as authority:
        players = [threading.Thread(target=come_and_go, args=(index,)) for index in range(4)]
        looker = threading.Thread(target=look)
        for thread in (*players, looker):
            thread.start()
        for thread in players:
            thread.join()
        over.set()
        looker.join()
        assert list(authority._core.scopes) == ["default"]
    assert problems == []


def test_an_engine_is_made_once_whoever_asks(monkeypatch):
    """O5: threads that submit the first coroutine at the same time share one engine, which is closed in the end."""
    make = MAKERS["asyncio"]
    made, asked = [], threading.Barrier(4)

    def make_slowly():
        time.sleep(0.02)  # time enough for the others to come and find none
        made.append(make())
        return made[-1]

    def submit():
        asked.wait()
        handles.append(authority.submit(coroutine, 1))

    monkeypatch.setitem(MAKERS, "asyncio", make_slowly)
    handles = []
    with Authority(slots=2) as authority:
        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [handle.result(30) for handle in handles] == [1] * 4
    assert len(made) == 1
