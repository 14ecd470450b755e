"""What users call is all that they see: authority and scope hide their inside, a handle lists what is for users."""

import pytest

from whywait import Authority, Handle, Scope

SUBMIT = {"map", "periodic", "submit", "submit_many"}
SEEN = {
    Authority: SUBMIT | {
        "cancel", "devtools", "dispose", "dispose_async", "events", "from_env", "get", "get_scope", "history", "pause",
        "report", "resize", "resume", "scope", "set_periodic_enabled", "settings", "snapshot", "stats", "subscribe",
        "why",
    },
    Scope: SUBMIT | {
        "dispose", "dispose_async", "key", "lazy", "mount", "resume", "scope", "snapshot", "state",
        "suspend", "wait", "wait_async",
    },
    Handle: {
        "add_done_callback", "attempts", "cancel", "cancelled", "cause", "devices", "done", "exception", "exit_code",
        "exit_signal", "future", "id", "outcome", "pause", "pause_async", "paused_from", "priority", "ref",
        "remove_done_callback", "result", "resume", "state", "stream", "usage", "why",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", [Authority, Scope], ids=lambda kind: kind.__name__)
def test_nothing_of_the_inside_is_public(kind):
    """O5: no lock, no kernel, no command: what is not for users is not among their methods."""
    assert {name for name in dir(kind) if not name.startswith("_")} == SEEN[kind]


def test_nor_on_what_they_hold():
    """O5: instances list no more; a handle, which is the kernel's task as well, lists what is for users."""
    with Authority(slots=1) as authority, authority.scope("s") as scope:
        handle = scope.submit(int)
        for thing in (authority, scope, handle):
            assert {name for name in dir(thing) if not name.startswith("_")} == SEEN[type(thing)]
