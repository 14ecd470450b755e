"""Work that is put off, when an exception out of nowhere breaks off the asking."""

import threading

import pytest

from patience import until
from whywait.support.later import Later


def test_what_is_asked_for_again_after_an_interrupt_is_done(monkeypatch):
    """An interrupt before the thread is there leaves nothing that would be waited for."""
    acted = []
    later = Later(lambda: acted.append(1), "later")

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            later.ask(0.0)
    assert later.ask(0.0)
    until(lambda: acted)
    later.close()


def test_closing_while_a_thread_is_being_started_does_not_raise():
    later = Later(int, "later")
    later._thread = threading.Thread(target=int)
    later.close()
