"""D5, O6: an authority that was given a logger writes all it has to say there, and nothing to the logger `whywait`."""

import logging

import pytest

from patience import PATIENCE_S, until
from whywait import Authority, ConfigError, TaskDropped


class Kept(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.records = []

    def emit(self, record):
        self.records.append(record)

    @property
    def text(self):
        return "\n".join(f"{record.name}: {record.getMessage()}" for record in self.records)


@pytest.fixture
def own():
    """Return a logger that passes nothing on, and what it was told."""
    logger, kept = logging.getLogger("service.tasks"), Kept()
    logger.setLevel(logging.DEBUG)
    logger.addHandler(kept)
    logger.propagate = False
    yield logger, kept
    logger.removeHandler(kept)


def boom():
    raise ValueError("boom")


def hold(gate):
    gate.wait(PATIENCE_S)


def test_everything_goes_to_the_logger_that_was_given(own, caplog):
    """D5, O6: drops, errors that no code looked at, callbacks, subscribers, skipped ticks, paused tasks."""
    import threading

    logger, kept = own
    caplog.set_level(logging.DEBUG)
    gate = threading.Event()
    with Authority(slots=1, log=logger) as authority:
        authority.subscribe(lambda event: boom() if event.name == "first" and event.kind == "TASK_SUBMITTED" else None)
        first = authority.submit(hold, gate, id="first")
        late = authority.submit(int, id="late\nforged", max_wait=0.01)
        with pytest.raises(TaskDropped):
            late.result(PATIENCE_S)
        asleep = authority.submit(int, id="asleep")
        asleep.pause()
        first.add_done_callback(lambda _: boom())
        gate.set()
        first.result(PATIENCE_S)
        authority.submit(boom, id="failed")
        wakes = threading.Thread(target=lambda: (until(lambda: "asleep (paused" in kept.text), asleep.resume()))
        wakes.start()
    wakes.join()
    until(lambda: "failed" in kept.text)
    for words in (
        "was dropped: max_wait",
        "subscriber failed",
        "done callback",
        "asleep (paused for ",
        "task failed failed",
    ):
        assert words in kept.text
    assert r"late\nforged" in kept.text
    assert [record for record in caplog.records if record.name.startswith("whywait")] == []


def test_files_of_an_authority_tell_its_logger(own, caplog):
    """D5: through a logger below it."""
    logger, kept = own
    with Authority(slots=1, log=logger, events_file="/dev/full", record="/dev/full") as authority:
        authority.submit(int).result(PATIENCE_S)
    assert kept.text.count("no longer written to /dev/full") == 2
    assert [record for record in caplog.records if record.name.startswith("whywait")] == []


def test_engines_tell_the_logger_of_their_authority(own):
    """D5: the process engine, and a part of a task."""
    logger, _ = own
    with Authority(slots=1, log=logger, engine="process") as authority:
        engine = authority._core.engines.default
        assert engine.runtime.log.logger is logger
        assert authority.submit(int, "7").result(PATIENCE_S) == 7


def test_a_logger_is_a_logger():
    """E1: anything else is refused."""
    with pytest.raises(ConfigError, match=r"logging\.Logger"):
        Authority(log="whywait")
