"""Finding tasks and periodics again: by ref, by id, by the id that was made for them, by scope/id."""

import threading

import pytest

from whywait import Authority, ForeignRef, StaleRef, UnknownTask
from whywait.kernel.model import Ref


@pytest.fixture
def authority():
    authority = Authority(slots=1)
    yield authority
    authority.dispose()


@pytest.fixture
def parked(authority):
    """Submit tasks that stay pending: each waits for one that runs."""

    go = threading.Event()

    def submit(scope, **options):
        return scope.submit(int, after=[authority.submit(go.wait)], **options)

    yield submit
    go.set()


def test_a_generated_id_is_an_id(authority, parked):
    """T9: it finds the task as long as it lives, alone and with its scope, also as a dependency."""
    scope = authority.scope("s")
    handle = parked(scope)
    short = f"@{handle.ref.number}"
    for name in (handle.id, f"s/{handle.id}", short, f"s/{short}", handle.ref):
        assert authority.get(name) == handle
        assert authority.why(name).id == handle.id
    after = scope.submit(int, after=[handle.id])
    other = authority.submit(int, after=[f"s/{handle.id}"])
    assert [each.why().reasons[0].tasks[0].id for each in (after, other)] == [handle.id, handle.id]
    authority.cancel(short)
    authority.cancel(short)
    with pytest.raises(UnknownTask, match=f"no living task has the id '{handle.id}'"):
        authority.get(handle.id)


def test_an_iteration_can_be_looked_up(authority):
    """R3, T9: by the name that reports call it by."""
    go = threading.Event()
    authority.submit(go.wait)
    authority.scope("s").periodic(int, every="1h", id="sample", immediately=True, slot=True)
    (name,) = [task.id for task in authority.snapshot().pending]
    assert name.startswith("sample#")
    assert authority.why(name).state == authority.why(f"s/{name}").state == "READY"
    go.set()


@pytest.mark.parametrize(("key", "name"), [("s", "a/b"), ("s/t", "a"), ("s/t", "a/b/c")])
def test_a_slash_may_be_part_of_key_and_id(authority, parked, key, name):
    """G1, T8: scope/id is found all the same, as is what depends on it."""
    scope = authority.scope(key)
    handle = parked(scope, id=name)
    assert authority.get(f"{key}/{name}") == handle
    other = authority.submit(int, after=[f"{key}/{name}"])
    assert other.why().reasons[0].tasks[0].id == name
    periodic = scope.periodic(int, every="1h", id=name)
    authority.set_periodic_enabled(f"{key}/{name}", enabled=False)
    assert not periodic.enabled


def test_old_unknown_and_foreign_refs_are_told_apart(authority, parked):
    """T8: three errors, each of which says what is the matter."""
    handle = parked(authority)
    old = handle.ref
    assert authority.get(old) == handle
    handle.cancel()
    with pytest.raises(StaleRef, match="is no longer valid: its task has ended or was retried"):
        authority.get(old)
    with pytest.raises(UnknownTask, match="was never given out"):
        authority.get(Ref(old.number + 1000, old.scope, old.authority))
    with Authority() as other, pytest.raises(ForeignRef, match="belongs to another authority"):
        authority.get(other.submit(int).ref)
    with pytest.raises(UnknownTask, match="no task has the id 'nobody'"):
        authority.get("nobody")
