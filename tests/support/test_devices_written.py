"""Devices as people write them, and as a child process is told of them."""

import pytest

from whywait.errors import ConfigError
from whywait.support.devices import environment_of, parse_devices, parse_gpus


@pytest.mark.parametrize(
    ("written", "units"),
    [
        (0, {}),
        (2, {"0": 0, "1": 0}),
        ([], {}),
        (["24GB", "12GB"], {"0": 24 * 10**9, "1": 12 * 10**9}),
        ((24, "8 GiB"), {"0": 24, "1": 8 << 30}),
        ({"1": "24GB", "GPU-89": None}, {"1": 24 * 10**9, "GPU-89": 0}),
    ],
)
def test_gpus(written, units):
    """N1: how many, the memory of each, or names with memory."""
    assert parse_gpus(written) == units


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (-1, "-1 is not allowed: expected how many"),
        (True, "true is not allowed"),
        (1.5, "1.5 is not allowed"),
        (None, "null is not allowed"),
        (10**9, "1000000000 is not allowed"),
        ("24GB", '"24GB" is not allowed'),
        (["0", "1"], r'"0" could be a name or a size: write "24GB", or {"0": "24GB"}'),
        (["24XB"], '0: "24XB" is not a size'),
        ({"a": "much"}, 'a: "much" is not a size'),
        ([[1]], r"0: \[1\] is not a size"),
        ([1] * 10_001, "10001 units of gpu are not allowed: use at most 10,000"),
    ],
)
def test_gpus_that_make_no_sense(written, message):
    """N1: refused with the value and what would be right."""
    with pytest.raises(ConfigError, match=message):
        parse_gpus(written)


def test_other_kinds():
    """N1: names, or how many."""
    assert parse_devices({"rig": ["a", "b"], "fpga": 2}) == {"rig": {"a": 0, "b": 0}, "fpga": {"0": 0, "1": 0}}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["rig"], r"\['rig'\] is not allowed: expected kinds and units"),
        ({"gpu": 1}, "gpu has a setting of its own: gpus"),
        ({"my rig": 1}, '"my rig" cannot name a kind'),
        ({"": 1}, '"" cannot name a kind'),
        ({3: 1}, "3 cannot name a kind"),
        ({"slots": 1}, '"slots" cannot name a kind'),
        ({"Queue-Limit": 1}, '"Queue-Limit" cannot name a kind'),
        ({"rig": "ab"}, 'rig: "ab" is not allowed: expected how many'),
        ({"rig": -1}, "rig: -1 is not allowed"),
        ({"rig": [1]}, "rig: 1 is not the name of a unit: use a string"),
        ({"rig": ["a", "a"]}, "rig: a name is there twice: a, a"),
    ],
)
def test_other_kinds_that_make_no_sense(written, message):
    """N1: a kind becomes a variable of child processes, so its name is a word, and not one of whywait's own."""
    with pytest.raises(ConfigError, match=message):
        parse_devices(written)


def test_the_variables_of_a_child_process(monkeypatch):
    """N4: cards are numbered as the driver numbers them, unless the user says otherwise."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert environment_of(()) == {}
    assert environment_of((("gpu", ("0", "3")), ("test-rig", ("a",)))) == {
        "CUDA_VISIBLE_DEVICES": "0,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "WHYWAIT_TEST_RIG": "a",
    }
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert environment_of((("gpu", ("1",)),))["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
