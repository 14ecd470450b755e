"""What ``why``, ``cancel``, ``pause`` and ``resume`` do for a job or a lease of the service."""

from __future__ import annotations

import json
import sys

from whywait.errors import WhywaitError
from whywait.machine.client import Machine, NoService, Unknown, quoted

TYPE_CHECKING = False  # see the package itself
if TYPE_CHECKING:
    from collections.abc import Callable


def run_shared(verb: str, args: list[str], ask_runs: Callable[[], int]) -> int:
    """Do a verb to a job or lease of the service; if it has none of that id, call ``ask_runs``, which asks the runs."""
    as_json = "--json" in args
    ids = [each for each in args if each not in ("--json", "--debug")]
    if len(ids) != 1 or ids[0].startswith("-"):
        return ask_runs()  # an address, a question for help, a slip
    machine = Machine()
    path = f"/machine/jobs/{quoted(ids[0])}"
    try:
        answer = machine.ask("GET", path) if verb == "why" else machine.ask("POST", f"{path}/{verb}", {})
    except NoService as none:
        from whywait.devtools.beacon import living

        if living():
            return ask_runs()
        raise NoService(
            f"{none}; no served run was found either: start it with --devtools, or give its address"
        ) from None
    except Unknown as unknown:
        from whywait.devtools.beacon import living

        if not living():
            raise
        try:
            return ask_runs()
        except WhywaitError as error:  # a run that does not answer must not hide that the id is wrong
            raise Unknown(f"{unknown}; nor was it found in a served run: {error}") from None
    if as_json:
        sys.stdout.write(json.dumps(answer) + "\n")
    elif verb == "why":
        sys.stdout.write(answer["text"] + "\n")
    else:
        from whywait.cli.machine.words import act_in_words

        sys.stdout.write(f"{answer['id']}: {act_in_words(answer)}\n")
    return 0
