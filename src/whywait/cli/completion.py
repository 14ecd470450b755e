"""``whywait completion``: what makes a shell complete verbs, options, and the tasks of a file."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Final

from whywait.cli.verbs import MACHINE, OWN, make_parser
from whywait.errors import WhywaitError

HELP: Final = """Print what makes a shell complete verbs, options, and tasks after --only.

  whywait completion bash >> ~/.bashrc
  whywait completion zsh >> ~/.zshrc
  whywait completion fish > ~/.config/fish/completions/whywait.fish"""
SCRIPTS: Final = {
    "bash": """\
_whywait() {
    local IFS=$'\\n'
    COMPREPLY=($(whywait completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _whywait whywait
""",
    "zsh": """\
_whywait() {
    local found=("${(@f)$(whywait completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n $found ]] && compadd -- $found || _files
}
compdef _whywait whywait
""",
    "fish": """\
complete -c whywait -a '(whywait completion fish -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("shell", choices=SCRIPTS, help="the shell")
    parser.add_argument("words", nargs="*", default=[], help=argparse.SUPPRESS)  # of a line up to the cursor


def run(options: argparse.Namespace) -> int:
    """Print the script, or what may stand at the end of a line."""
    if options.words:
        sys.stdout.write("".join(f"{each}\n" for each in candidates(options.words)))
    else:
        sys.stdout.write(SCRIPTS[options.shell])
    return 0


def candidates(words: list[str]) -> list[str]:
    """Return what may stand in the place of the last word; nothing where a file may."""
    verb, *before, last = ["", *words] if len(words) == 1 else words
    known: list[str] = []
    if not verb:
        known = [*OWN, *MACHINE]
    elif last.startswith("-"):
        known = re.findall(r"\[(--[\w-]+)", make_parser(verb).format_usage())
    elif [word for word in before if word.startswith("-")][-1:] == ["--only"]:
        known = _tasks(before)
    return [each for each in known if each.startswith(last)]


def _tasks(words: list[str]) -> list[str]:
    """Return the tasks of the workflow among some words."""
    from whywait.workflow import load
    from whywait.workflow.documents import FORMATS

    suffixes = tuple(suffix for each in FORMATS for suffix in each.suffixes)
    file = next((word for word in words if word.endswith(suffixes)), None)
    try:
        tasks = load(file).tasks if file else ()
    except WhywaitError:
        return []
    return list(dict.fromkeys(name for task in tasks for name in (task.name, task.id)))
