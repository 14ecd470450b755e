"""The fixtures of the conformance suite: every test that asks for an engine runs once on each."""

from contextlib import suppress

import bodies
import inner_bodies
import pytest
from promises import ENGINES, PROMISES
from stage import Stage

from patience import PATIENCE_S
from whywait.errors import DisposeIncomplete
from whywait.runtime.authority import Authority


@pytest.fixture(params=ENGINES)
def engine(request):
    """The name of the engine under test."""
    return request.param


@pytest.fixture
def promises(engine):
    """What this engine promises beyond the common ground."""
    return PROMISES[engine]


@pytest.fixture
def body(promises):
    """The bodies in the form that this engine runs natively."""
    return bodies.in_form(promises.form)


@pytest.fixture
def inner(promises):
    """The bodies that use streams, handlers and workers, in the form that this engine runs natively."""
    return bodies.in_form(promises.form, inner_bodies)


@pytest.fixture
def stage(tmp_path):
    """Where the bodies of one test and the test meet."""
    return Stage(str(tmp_path))


@pytest.fixture
def make(engine, stage):
    """Make authorities with this engine; whatever is not disposed when the test ends is disposed then."""
    made = []

    def make_authority(**options):
        authority = Authority(**{"engine": engine, "slots": 1, "grace": 30.0, **options})
        made.append(authority)
        return authority

    yield make_authority
    for gate in ("gate", "end"):  # what bodies wait for
        stage.mark(gate)
    for authority in made:
        with suppress(DisposeIncomplete):
            authority.dispose(grace=PATIENCE_S / 2)


@pytest.fixture
def authority(make):
    """An authority with one slot."""
    return make()


@pytest.fixture
def wide(make, promises):
    """An authority with as many slots as the engine can fill, two at most."""
    return make(slots=min(2, promises.crowd))
