"""What ``why``, ``cancel``, ``pause`` and ``resume`` do for a job or a lease of the service."""

from __future__ import annotations

import json
import sys

from whywait.machine.client import Machine, NoService, Unknown, quoted

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from typing import Final

_NOTHING: Final = "nothing"


def run_shared(verb: str, args: list[str]) -> int | None:
    """Do a verb if its id is one of the service's; None if another has to look for it."""
    as_json = "--json" in args
    ids = [each for each in args if each not in ("--json", "--debug")]
    if len(ids) != 1 or ids[0].startswith("-"):
        return None  # an address, a question for help, a slip
    machine = Machine()
    path = f"/machine/jobs/{quoted(ids[0])}"
    try:
        answer = machine.ask("GET", path) if verb == "why" else machine.ask("POST", f"{path}/{verb}", {})
    except NoService as none:
        from whywait.devtools.beacon import living

        if living():
            return None
        raise NoService(
            f"{none}; no served run was found either: start it with --devtools, or give its address"
        ) from None
    except Unknown:
        from whywait.devtools.beacon import living

        if living():
            return None
        raise
    if as_json:
        sys.stdout.write(json.dumps(answer) + "\n")
    elif verb == "why":
        sys.stdout.write(answer["text"] + "\n")
    elif answer["done"] == _NOTHING:
        sys.stdout.write(f"{answer['id']}: has ended already ({answer['state']}), nothing was changed\n")
    else:
        sys.stdout.write(f"{answer['id']}: {answer['done']}, now {answer['state']}\n")
    return 0
