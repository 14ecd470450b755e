"""E1: the configuration of an authority as one object."""

import pytest

import whywait
from whywait import Aging, Authority, ConfigError, Retry, Settings, Strict
from whywait.runtime.option_types import AuthorityOptions

MANY = {
    "slots": 3,
    "cpu": 2,
    "ram": "1GB",
    "resources": {"licence": 2},
    "soft": {"disk": "50GB"},
    "gpus": ["24GB", "12GB"],
    "devices": {"rig": ["a", "b"]},
    "order": Strict(ties="id"),
    "backfill": "none",
    "overdraft": "warn",
    "queue_limit": 5,
    "overflow": "displace",
    "when_busy": "reject",
    "max_wait": "500ms",
    "retry": Retry(2, backoff="250ms", grow={"ram": 2.0}),
    "timeout": "1h30m",
    "pause_timeout": 1,
    "starvation_timeout": "5s",
    "grace": "250ms",
    "engine": "simple",
    "inject": True,
    "thread_cpu": True,
    "events": 7,
}


@pytest.mark.parametrize("options", [{}, {"slots": None}, {"cpu": None, "ram": 5}, {"vram": "6GB"}, MANY], ids=str)
def test_settings_print_as_they_can_be_typed_again(options):
    """E1: and what is typed again is equal."""
    settings = Settings(**options)
    typed_again = eval(repr(settings), {name: getattr(whywait, name) for name in whywait.__all__})
    assert typed_again == settings
    assert typed_again.unset == settings.unset


def test_settings_print_only_what_is_not_the_default():
    """E1: in the units that the program works in."""
    assert repr(Settings.from_env({})) == "Settings()"
    assert (
        repr(Settings.from_env({"WHYWAIT_SLOTS": "3", "WHYWAIT_MAX_WAIT_MS": "40"}))
        == "Settings(slots=3, max_wait=0.04)"
    )
    assert repr(Settings(ram="1GB", grace="500ms")) == "Settings(ram=1000000000, grace=0.5)"


def test_settings_are_equal_if_they_mean_the_same():
    """E1: a text and a number of the same duration or size are one."""
    assert Settings(max_wait="1m", ram="2kB") == Settings(max_wait=60, ram=2000)
    assert Settings(slots=2) != Settings(slots=3)
    assert Settings(order="aging") == Settings(order=Aging())


def test_settings_come_from_the_environment(monkeypatch):
    """E1, E2: when they are made, not when they are used."""
    monkeypatch.setenv("WHYWAIT_SLOTS", "7")
    settings = Settings.from_env()
    assert settings == Settings()
    assert settings.slots == 7
    monkeypatch.setenv("WHYWAIT_SLOTS", "9")
    with Authority(settings=settings) as authority:
        assert authority.settings is settings
        assert authority.snapshot().slots.limit == 7
    assert Settings.from_env(slots=2).slots == 2


def test_settings_are_the_whole_configuration():
    """E1: an argument beside them is refused, by its name; so is what they do not know."""
    with pytest.raises(ConfigError, match="slots, cpu beside settings"):
        Authority(settings=Settings(), slots=2, cpu=1)
    with pytest.raises(ConfigError, match="use Settings"):
        Authority(settings={"slots": 2})
    with pytest.raises(TypeError, match="settings have no slot: use slots"):
        Settings(slot=2)
    with pytest.raises(ConfigError, match="max_wait"):
        Settings(max_wait="soon")


def test_settings_cannot_be_changed():
    """E1: what an authority was made with stays."""
    with pytest.raises(AttributeError):
        Settings().slots = 3


def test_settings_and_authority_take_the_same_keywords():
    """E1: neither has one that the other lacks."""
    import inspect

    arguments = inspect.signature(Authority).parameters
    beside = {"record", "events_file", "settings", "log"}
    assert set(arguments) - beside == set(AuthorityOptions.__annotations__)
    given = {name: arguments[name].default for name in set(arguments) - beside if arguments[name].default is not ...}
    assert Settings.from_env({}, **given) == Settings.from_env({})
