"""N: a body is told its units, whatever runs it."""

import pytest

from patience import PATIENCE_S
from whywait import TaskAborted


def test_a_body_is_told_its_units(make, body):
    """N3, N4: the same in the body and at its handle, also after the end."""
    authority = make(slots=1, gpus=["24GB", "12GB"], devices={"rig": ["b", "a"]})
    handle = authority.submit(body.my_devices, vram="20GB", devices={"rig": 2})
    assert handle.result(PATIENCE_S) == {"gpu": ["0"], "rig": ["a", "b"]} == handle.devices
    plain = authority.submit(body.my_devices)
    assert plain.result(PATIENCE_S) == {} == plain.devices


def test_no_two_bodies_have_the_same_whole_unit(make, body, stage, promises):
    """N2: as many run as there are units, each alone on its own."""
    width = min(2, promises.crowd)
    authority = make(slots=4, gpus=2)
    handles = [authority.submit(body.meet, stage, "room", 1, width, gpu=1) for _ in range(6)]
    for handle in handles:
        handle.result(PATIENCE_S)
    assert stage.peak("room") == width
    names = {handle.devices["gpu"][0] for handle in handles}
    assert names == ({"0", "1"} if width == 2 else {"0"})


def test_units_come_back_whatever_the_end(make, body, stage):
    """T4, N3: after an error, a retry, a cancellation; each attempt is told anew."""
    authority = make(slots=2, gpus=1)
    with pytest.raises(ValueError, match="x"):
        authority.submit(body.fail, "x", gpu=1).result(PATIENCE_S)
    assert authority.submit(body.flaky, stage, "f", 1, gpu=1, retry=1).result(PATIENCE_S) == 2
    held = authority.submit(body.hold, stage, "begun", "gate", gpu=1)
    stage.wait("begun")
    waiting = authority.submit(body.my_devices, gpu=1)
    assert waiting.devices == {}
    held.cancel()
    with pytest.raises(TaskAborted):
        held.result(PATIENCE_S)
    assert waiting.result(PATIENCE_S) == {"gpu": ["0"]}
