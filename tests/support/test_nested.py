"""Things inside containers are found and replaced; containers without any stay the same objects."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from whywait.support.nested import DEPTH, MOST, nest_of


class Thing:
    """What is looked for."""

    def __init__(self, value):
        self.value = value


class Found:
    """What stands for it until it is replaced."""

    def __init__(self, thing):
        self.value = thing.value


@dataclass(frozen=True, slots=True)
class Frozen:
    left: object
    right: object = 0


class Pair(NamedTuple):
    a: object
    b: object


def filled(value):
    nest = nest_of(value, Thing, Found, Found)
    return nest if nest is None else nest.filled(lambda found: found.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([Thing(1), 2], [1, 2]),
        ((Thing(1), 2), (1, 2)),
        ({"a": Thing(1), "b": 2}, {"a": 1, "b": 2}),
        ({Thing(1)}, {1}),
        (Pair(Thing(1), [Thing(2)]), Pair(1, [2])),
        (Frozen(Thing(1)), Frozen(1)),
        (Frozen([Thing(1)], {"x": Thing(2)}), Frozen([1], {"x": 2})),
        ([[[Thing(1)]]], [[[1]]]),
    ],
)
def test_things_are_replaced_wherever_they_are(value, expected):
    assert filled(value) == expected
    assert type(filled(value)) is type(expected)


@pytest.mark.parametrize(
    "value", [1, "x", None, [1, [2]], {"a": (3,)}, object(), Frozen(1), Frozen, [Frozen(2)], range(9)]
)
def test_what_has_none_is_left_alone(value):
    assert nest_of(value, Thing, Found, Found) is None


def test_the_depth_and_the_number_have_an_end():
    deep = Thing(1)
    for _ in range(DEPTH):
        deep = [deep]
    assert filled(deep) is not None
    assert filled([deep]) is None
    assert filled([*range(MOST - 1), Thing(1)])[-1] == 1
    assert filled([*range(MOST), Thing(1)]) is None


def test_what_is_around_is_copied_and_what_is_beside_is_not():
    beside = [1]
    value = {"with": [Thing(1)], "beside": beside}
    new = filled(value)
    assert new == {"with": [1], "beside": [1]}
    assert new["beside"] is beside
    assert isinstance(value["with"][0], Thing)


def test_a_cycle_ends():
    ring = [Thing(1)]
    ring.append(ring)
    assert filled(ring)[0] == 1
