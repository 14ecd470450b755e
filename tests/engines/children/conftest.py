"""What the tests of engines with child processes share: authorities that end with the test, and no orphans."""

import uuid

import pytest

from process_bodies import no_process_left
from whywait import Authority


@pytest.fixture(scope="module", autouse=True)
def no_orphans():
    """O5: whatever the tests of a file did, no process is left after them; the value is the mark that they carry."""
    mark = f"whywait-test-{uuid.uuid4()}"
    with no_process_left(mark):
        yield mark


@pytest.fixture
def make(request):
    """Make authorities with the ``OPTIONS`` of the file and others; they are disposed of after the test."""
    made = []

    def make_authority(**options):
        made.append(Authority(**{**request.module.OPTIONS, **options}))
        return made[-1]

    yield make_authority
    for authority in made:
        authority.dispose()
