"""Bad arguments are refused at once: the error says which value was wrong and what is allowed, and nothing stays."""

import threading
from contextlib import contextmanager

import pytest

from whywait import Authority, Command, ConfigError, Infeasible, InvalidTransition, Retry, ScopeClosed, UnknownTask


@contextmanager
def refused(words, kind=ConfigError):
    with pytest.raises(kind) as caught:
        yield
    assert words in str(caught.value)
    error = caught.value
    assert error.__suppress_context__ or error.__context__ is None, "a traceback shows what is none of the user's"


@pytest.fixture
def authority():
    with Authority(slots=1, cpu=2, ram="1GB", resources={"licence": 1}) as authority:
        yield authority


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"events": -1}, "events: -1 is not allowed"),
        ({"events": None}, "events: null is not allowed"),
        ({"resources": ["licence"]}, "resources: ['licence'] is not allowed: expected an object of amounts by name"),
        ({"resources": {"": 1}}, '"" is not allowed: expected a string that is not empty'),
        ({"resources": {1: 1}}, "1 is not allowed: expected a string that is not empty"),
        ({"resources": {"cpu": 4}}, 'resources: "cpu" has a key of its own'),
        ({"soft": {"ram": "1GB"}}, 'soft: "ram" has a key of its own'),
        ({"soft": {"disk": "many"}}, 'disk: "many" is not a size'),
        ({"ram": "8XB"}, 'ram: "8XB" is not a size'),
        ({"gpus": "all"}, "gpus: \"all\" is not allowed: expected 'auto', an int, a list of sizes or a dict"),
        ({"gpus": -1}, "gpus: -1 is not allowed"),
        ({"gpus": 1, "vram": "8GB"}, "vram is the memory of each gpu: say it with gpus"),
        ({"gpus": 1, "resources": {"gpu": 1}}, "'gpu' is a resource and belongs to the devices 'gpu' too"),
        ({"gpus": {"0,1": None}}, "a unit of gpu cannot be named '0,1'"),
        ({"devices": {"rig": 1}, "soft": {"rig": 1}}, "'rig' is a resource and belongs to the devices 'rig' too"),
        ({"devices": ["rig"]}, "devices: ['rig'] is not allowed"),
        ({"grace": 1e300}, "grace: 1e+300 is too long for a duration: expected at most ten years"),
        ({"timeout": "4000d"}, 'timeout: "4000d" is too long for a duration: expected at most ten years'),
    ],
)
def test_an_authority_names_the_setting(options, words):
    """E1: also where the wrong thing is the type of the value."""
    with refused(words):
        Authority(**options)


@pytest.mark.parametrize(
    ("iterables", "options", "words"),
    [
        ((), {}, "map needs at least one iterable of arguments"),
        (([1],), {"chunksize": 0}, "chunksize 0 is not allowed: use an int of at least 1"),
        (([1],), {"chunksize": 2.0}, "chunksize 2.0 is not allowed"),
        (([1],), {"chunksize": True}, "chunksize True is not allowed"),
        (([1],), {"chunksize": None}, "chunksize None is not allowed"),
        (([1],), {"id": "a"}, "task id 'a' is not allowed: map makes many tasks"),
        (([1],), {"cpu": [1], "chunksize": 2}, "demand cpu [1] is not allowed: use an int"),
    ],
)
def test_map_names_what_is_wrong(authority, iterables, options, words):
    """T3: at the call of `map`, not at the first result."""
    with refused(words):
        authority.map(abs, *iterables, **options)
    with refused("map needs a function to call, not 3"):
        authority.map(3, [1], chunksize=2)
    assert authority.stats()["submitted"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"id": 3}, "task id 3 is not allowed: use a string"),
        ({"kwargs": [1]}, "kwargs [1] is not allowed: use a dict"),
        ({"resources": ["licence"]}, "resources ['licence'] is not allowed: use a dict"),
        ({"resources": {"licence": "x"}}, 'licence: "x" is not a size'),
        ({"cpu": [1]}, "demand cpu [1] is not allowed: use an int"),
        ({"ram": "x"}, 'ram: "x" is not a size'),
        ({"slot": 1}, "slot 1 is not allowed: use True or False"),
        ({"slot": None}, "slot None is not allowed: use True or False"),
    ],
)
def test_submit_names_the_option(authority, options, words):
    """T3: nothing of the refused task stays behind."""
    with refused(words):
        authority.submit(int, **options)
    assert authority.stats()["submitted"] == 0


def test_only_what_can_be_called_is_a_task(authority):
    """T3: a string is a command for the command engine alone, and a batch says which one was wrong."""
    with refused("a task needs a function to call, not 'echo hi'; a command is Command(...)"):
        authority.submit("echo hi")
    with refused("number 1 of the batch: a task needs a function to call, not 3"):
        authority.submit_many([int, 3])
    assert authority.submit("echo hi", engine="command").result(30).stdout == "hi\n"


def test_a_command_is_made_of_strings():
    for args in (None, 3, ["sleep", 1]):
        with refused(f"command {args!r} is not allowed: use a string or a list of strings"):
            Command(args)


def test_retries_are_on_exceptions():
    """T7: a task whose retry could not be decided would never end; one class alone needs no brackets."""
    for on in ("OSError", ("OSError",), (OSError, 3)):
        with refused(f"retry on {on!r} is not allowed"):
            Retry(1, on=on)
    assert Retry(1, on=OSError) == Retry(1, on=(OSError,))
    with refused("retry jitter 'much' is not allowed"):
        Retry(1, jitter="much")


def test_a_scope_that_is_refused_leaves_its_key_free(authority):
    """O3: whatever it was refused for."""
    for options, words in (({"engine": "steam"}, "engine 'steam' is unknown"), ({"grace": "long"}, "grace: ")):
        with refused(words):
            authority.scope("s", **options)
    assert authority.scope("s").state == "ATTACHED"
    for key in ("", 3):
        with refused(f"scope key {key!r} is not allowed"):
            authority.scope(key)


def test_a_variable_beyond_all_reason_is_refused(monkeypatch):
    """E1: naming the variable, without its thousands of digits."""
    monkeypatch.setenv("WHYWAIT_MAX_WAIT_MS", "9" * 400)
    with refused("environment variable WHYWAIT_MAX_WAIT_MS=an int of 1329 bits is not allowed"):
        Authority.from_env()


def test_a_periodic_is_refused_like_a_task(authority):
    """B1, R3, R7: one that could never start, too; and the options it names are its own."""
    for options, words, kind in (
        ({"cpu": 3}, "periodic 'p' demands 3 cpu and the limit is 2", Infeasible),
        ({"enabled": "yes"}, "enabled 'yes' is not allowed", ConfigError),
        ({"pace": 1}, "a periodic has no option pace (a function's own go into kwargs): use every, overlap", TypeError),
    ):
        with refused(words, kind):
            authority.get_scope("default").periodic(int, every=1, id="p", **options)
    with refused("periodic id 3 is not allowed"):
        authority.get_scope("default").periodic(int, every=1, id=3)
    assert authority.snapshot().periodics == ()


def test_a_task_is_looked_up_by_ref_or_id(authority):
    """T8: anything else is an error of the same kind."""
    for what in (3, None):
        with refused(f"by its ref or its id, not by {what!r}", UnknownTask):
            authority.get(what)


def test_a_disposed_authority_starts_nothing_any_more():
    """O5: no server either, which nobody would ever end."""
    authority = Authority()
    authority.dispose()
    before = threading.active_count()
    with refused("the authority has ended", InvalidTransition):
        authority.devtools(announce=False)
    with refused("the authority is ended", ScopeClosed):
        authority.scope("late")
    assert threading.active_count() == before


def test_ids_have_a_length(authority):
    """T9: each is in many events, messages and views; nothing stays behind."""
    with refused("a task id of 100,000 characters is not allowed: use at most 1,000"):
        authority.submit(int, id="x" * 100_000)
    with refused("a scope key of 1,001 characters is not allowed"):
        authority.scope("x" * 1001)
    with refused("a periodic id of 981 characters is not allowed: use at most 980"):
        authority.get_scope("default").periodic(int, every=1, id="x" * 981)
    assert authority.submit(int, id="x" * 1000).result(30) == 0
