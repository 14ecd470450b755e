"""E1, E2, E3: settings come from arguments, environment and defaults, and a scheduler changes no result."""

import os
import subprocess
import sys
import textwrap
import threading
from operator import itemgetter
from typing import Any, NamedTuple

import pytest

from patience import PATIENCE_S
from program import clean_environment
from whywait.errors import ConfigError, QueueFull, TaskDropped
from whywait.kernel.durations import LONGEST_S
from whywait.kernel.order import Aging, Strict
from whywait.runtime.authority import Authority
from whywait.runtime.settings import MOST, SCHEDULERS, Settings

CORES = os.cpu_count() or 1


class Setting(NamedTuple):
    """One variable: what it sets, from where it is read, and what it is without and with the variable."""

    variable: str
    read: Any
    default: Any
    text: str
    value: Any
    argument: str  # its name and a value, both different from the rest
    given: Any
    settled: Any


MS = 10**6  # in nanoseconds
SETTINGS = [
    Setting(*row)
    for row in (
        ("WHYWAIT_SLOTS", lambda s: s.limits.slots, CORES, "70", 70, "slots", 3, 3),
        ("WHYWAIT_CPU_SLOTS", lambda s: s.budget.hard.get("cpu"), None, "6", 6, "cpu", 2, 2),
        ("WHYWAIT_RAM_MB_SOFT", lambda s: s.budget.soft.get("ram"), None, "512", 512 * 10**6, "ram", "1GiB", 1 << 30),
        ("WHYWAIT_VRAM_MB_SOFT", lambda s: s.budget.soft.get("vram"), None, "8", 8 * 10**6, "vram", 99, 99),
        ("WHYWAIT_AGING_INTERVAL_MS", lambda s: s.order, Aging(), "250", Aging(0.25), "order", Strict(), Strict()),
        ("WHYWAIT_AGING_BOOST", lambda s: s.order, Aging(), "7", Aging(boost=7), "order", Aging(1), Aging(1)),
        ("WHYWAIT_PAUSE_TIMEOUT_MS", lambda s: s.pause_timeout, 1.5, "20", 0.02, "pause_timeout", "3s", 3.0),
        ("WHYWAIT_STARVATION_TIMEOUT_MS", lambda s: s.starvation_timeout, 30, "500", 0.5, "starvation_timeout", 9, 9),
        ("WHYWAIT_QUEUE_LIMIT", lambda s: s.limits.queue_limit, None, "0", 0, "queue_limit", 5, 5),
        ("WHYWAIT_MAX_WAIT_MS", lambda s: s.policy.max_wait_ns, None, "40", 40 * MS, "max_wait", "1m", 60_000 * MS),
    )
]
NUMBERS = pytest.mark.parametrize("setting", SETTINGS, ids=itemgetter(0))
SETTINGS = [
    *SETTINGS,
    Setting("WHYWAIT_HISTORY", lambda s: s.history, None, "/h.db", "/h.db", "history", "/a/../b.db", "/b.db"),
]
EACH = pytest.mark.parametrize("setting", SETTINGS, ids=itemgetter(0))
LEAST = {"WHYWAIT_SLOTS": 1, "WHYWAIT_AGING_INTERVAL_MS": 1}  # of the others: 0


def settle(environment=None, **arguments):
    return Settings.from_env(environment or {}, **arguments)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Keep the variables of whoever runs the tests out of them."""
    for name in [name for name in os.environ if name.startswith("WHYWAIT_") and name != "WHYWAIT_CORE"]:
        monkeypatch.delenv(name)


class TestPrecedence:
    @EACH
    def test_default(self, setting):
        """E1: without argument and variable the default holds."""
        assert setting.read(settle()) == setting.default

    @EACH
    def test_variable_beats_default(self, setting):
        """E1, E2: each variable sets what it is named after."""
        assert setting.read(settle({setting.variable: setting.text})) == setting.value

    @EACH
    def test_argument_beats_variable(self, setting):
        """E1: an argument wins over the variable."""
        settings = settle({setting.variable: setting.text}, **{setting.argument: setting.given})
        assert setting.read(settings) == setting.settled

    @pytest.mark.parametrize("argument", ["slots", "cpu", "ram", "vram", "queue_limit", "max_wait", "history"])
    def test_none_is_an_argument(self, argument):
        """E1: None says explicitly that there is no limit; it is not the same as leaving the argument out."""
        setting = next(each for each in SETTINGS if each.argument == argument)
        assert setting.read(settle({setting.variable: setting.text}, **{argument: None})) is None

    @EACH
    @pytest.mark.parametrize("text", ["", "   "])
    def test_an_empty_variable_is_none(self, setting, text):
        """E1: a variable that is set to nothing sets nothing."""
        assert setting.read(settle({setting.variable: text})) == setting.default

    @EACH
    def test_blanks_around_a_value_do_no_harm(self, setting):
        """E1: blanks are trimmed."""
        assert setting.read(settle({setting.variable: f" {setting.text} "})) == setting.value

    def test_no_other_variable_is_read(self):
        """E2: the table above has every variable but the scheduler's."""

        class Environment(dict):
            def get(self, name, default=None):
                asked.add(name)
                return super().get(name, default)

        asked = set()
        Settings.from_env(Environment())
        assert asked == {"WHYWAIT_SCHEDULER", *(setting.variable for setting in SETTINGS)}


class TestMalformed:
    @NUMBERS
    @pytest.mark.parametrize("text", ["many", "1.5", "1e3", "-1", "4GB", "0x10"])
    def test_a_value_that_is_no_such_number(self, setting, text):
        """E1: the error names the variable, the value and what is allowed."""
        with pytest.raises(ConfigError) as caught:
            settle({setting.variable: text})
        message = str(caught.value)
        assert setting.variable in message
        assert repr(text) in message
        assert f"an int of {LEAST.get(setting.variable, 0)} or more" in message

    @NUMBERS
    def test_the_least_value_is_allowed_and_one_less_is_not(self, setting):
        """E1: the range is exactly what the error says."""
        least = LEAST.get(setting.variable, 0)
        settle({setting.variable: str(least)})
        with pytest.raises(ConfigError, match=setting.variable):
            settle({setting.variable: str(least - 1)})

    @NUMBERS
    def test_the_most_value_is_allowed_and_one_more_is_not(self, setting):
        """E1: durations end at ten years, all else at a number that nobody means."""
        most = LONGEST_S * 1000 if setting.variable.endswith("_MS") else MOST
        settle({setting.variable: str(most)})
        with pytest.raises(ConfigError, match=f"{setting.variable}.* use an int up to {most:,}"):
            settle({setting.variable: str(most + 1)})

    @pytest.mark.parametrize("text", ["threads", "simple,unbounded", "0"])
    def test_an_unknown_scheduler(self, text):
        """E1: the error names the variable, the value and all schedulers."""
        with pytest.raises(ConfigError) as caught:
            settle({"WHYWAIT_SCHEDULER": text})
        for part in ("WHYWAIT_SCHEDULER", repr(text), *SCHEDULERS):
            assert part in str(caught.value)

    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            ({"slots": 0}, ["slots", "0"]),
            ({"slots": "4"}, ["slots", '"4"']),
            ({"queue_limit": -1}, ["queue_limit", "-1"]),
            ({"pause_timeout": "soon"}, ["pause_timeout", "soon"]),
            ({"starvation_timeout": -2}, ["starvation_timeout", "-2"]),
            ({"max_wait": "5 parsecs"}, ["max_wait", "5 parsecs"]),
            ({"timeout": -1}, ["timeout", "-1"]),
            ({"retry": -1}, ["retry", "-1"]),
            ({"order": "fifo"}, ["order", "fifo"]),
            ({"cpu": -1}, ["cpu", "-1"]),
            ({"overflow": "explode"}, ["overflow", "explode"]),
            ({"when_busy": "panic"}, ["when_busy", "panic"]),
            ({"ram": "big"}, ["big"]),
        ],
    )
    def test_an_argument_that_makes_no_sense(self, arguments, parts):
        """E1: the same for arguments."""
        with pytest.raises(ConfigError) as caught:
            Authority(**arguments)
        for part in parts:
            assert part in str(caught.value)

    def test_it_is_noticed_before_anything_starts(self, monkeypatch):
        """E1: an authority with a malformed setting does not come into being."""
        monkeypatch.setenv("WHYWAIT_AGING_BOOST", "lots")
        before = threading.active_count()
        with pytest.raises(ConfigError, match="WHYWAIT_AGING_BOOST='lots'"):
            Authority()
        with pytest.raises(ConfigError, match="WHYWAIT_AGING_BOOST='lots'"):
            Authority.from_env()
        assert threading.active_count() == before


class TestSchedulers:
    @pytest.mark.parametrize(
        ("text", "engine", "slots"),
        [
            ("", "thread", CORES),
            ("threadpool", "thread", CORES),
            ("ThreadPool", "thread", CORES),
            ("simple", "simple", 1),
            ("unbounded", "thread", None),
        ],
    )
    def test_what_each_stands_for(self, text, engine, slots):
        """E2: threadpool is the default, simple has one slot, unbounded has no limit."""
        settings = settle({"WHYWAIT_SCHEDULER": text})
        assert (settings.engine, settings.limits.slots) == (engine, slots)

    def test_slots_beside_a_scheduler(self):
        """E1: slots given as an argument win over unbounded; the simple engine has one slot whatever is given."""
        assert settle({"WHYWAIT_SCHEDULER": "unbounded"}, slots=3).limits.slots == 3
        assert settle({"WHYWAIT_SCHEDULER": "simple", "WHYWAIT_SLOTS": "4"}).limits.slots == 1
        assert settle({"WHYWAIT_SCHEDULER": "simple"}, slots=4).limits.slots == 1

    def test_an_engine_given_as_argument_wins(self):
        """E1: the scheduler chooses an engine only where none is given."""
        settings = settle({"WHYWAIT_SCHEDULER": "simple"}, engine="thread", slots=3)
        assert (settings.engine, settings.limits.slots) == ("thread", 3)


class TestEffect:
    def test_an_authority_reads_the_environment(self, monkeypatch):
        """E2: slots, queue limit and max_wait from the environment are kept in the run."""
        monkeypatch.setenv("WHYWAIT_SLOTS", "1")
        monkeypatch.setenv("WHYWAIT_QUEUE_LIMIT", "1")
        monkeypatch.setenv("WHYWAIT_MAX_WAIT_MS", "50")
        gate = threading.Event()
        with Authority.from_env() as authority:
            running = authority.submit(gate.wait, PATIENCE_S)
            waiting = authority.submit(int)
            assert (running.state, waiting.state) == ("RUNNING", "READY")
            with pytest.raises(QueueFull):
                authority.submit(int)
            assert isinstance(waiting.exception(PATIENCE_S), TaskDropped)
            gate.set()

    def test_unbounded_starts_everything_at_once(self, monkeypatch):
        """E2: tasks that all wait for each other end, whatever the number of cores."""
        monkeypatch.setenv("WHYWAIT_SCHEDULER", "unbounded")
        barrier = threading.Barrier(CORES + 5)
        with Authority() as authority:
            handles = [authority.submit(barrier.wait, PATIENCE_S) for _ in range(CORES + 5)]
            assert sorted(handle.result(PATIENCE_S) for handle in handles) == list(range(CORES + 5))

    def test_simple_has_one_thread(self, monkeypatch):
        """E2: all tasks run in one thread, one after the other."""
        monkeypatch.setenv("WHYWAIT_SCHEDULER", "simple")
        with Authority(slots=8) as authority:
            handles = [authority.submit(threading.get_ident) for _ in range(50)]
            assert len({handle.result(PATIENCE_S) for handle in handles}) == 1


PROGRAM = """
    import asyncio
    from whywait import Executor, Retry
    from whywait.runtime.authority import Authority

    log = []

    def flaky(box=[]):
        box.append(1)
        if len(box) < 3:
            raise OSError("not yet")
        return len(box)

    def fail():
        raise ValueError("wrong")

    async def later(value):
        await asyncio.sleep(0)
        return value

    with Authority() as authority:
        with authority.scope("numbers") as scope:
            squares = [scope.submit(pow, n, 2, id=f"square-{n}", priority=n) for n in range(20)]
            total = scope.submit(lambda *all: sum(all), *squares)
            twice = scope.submit(lambda x, times: x * times, total, kwargs={"times": 2})
            log.append([handle.result() for handle in squares])
            log.append((total.result(), twice.result()))
        with authority.scope("trouble") as scope:
            again = scope.submit(flaky, retry=Retry(5, on=(OSError,)))
            wrong = scope.submit(fail)
            doomed = scope.submit(str, wrong)
            after = scope.submit(str, after_ended=[wrong])
            for handle in (again, wrong, doomed, after):
                error = handle.exception()
                log.append((handle.outcome, handle.cause, type(error).__name__, len(handle.attempts)))
            scope.suspend()
            scope.resume()
        log.append(authority.submit(later, 7).result())
        heavy = [authority.submit(abs, -n, cpu=1, ram="1MB") for n in range(5)]
        log.append([handle.result() for handle in heavy])
        counts = authority.stats()
        log.append({name: counts[name] for name in ("submitted", "completed", "by_outcome") if name in counts})

    with Executor() as executor:
        log.append(list(executor.map(pow, range(10), range(10), chunksize=3)))
        log.append([type(executor.submit(fail).exception()).__name__, executor.submit(int).result()])

    for line in log:
        print(line)
"""


class TestSameResults:
    def run_under(self, scheduler, **more):
        """Return what the program prints under a scheduler."""
        environment = clean_environment()
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)],
            env=environment | more | ({"WHYWAIT_SCHEDULER": scheduler} if scheduler else {}),
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_under_all_schedulers(self):
        """E3: one program prints the same under every scheduler and any number of slots."""
        expected = self.run_under("")
        assert "2470" in expected
        assert "('aborted', 'dependency', 'TaskAborted', 1)" in expected
        for scheduler in SCHEDULERS:
            assert self.run_under(scheduler) == expected
        assert self.run_under("threadpool", WHYWAIT_SLOTS="1") == expected
