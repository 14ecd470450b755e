"""Drawings of a workflow: Mermaid, DOT, SVG through graphviz, or a tree of plain text."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from html import escape
from typing import Final

from whywait.errors import ConfigError
from whywait.kernel.limits import Priority
from whywait.support.units import format_ms
from whywait.workflow.specs import PeriodicSpec, TaskSpec, WorkflowSpec

_DOT_S: Final = 60  # how long graphviz may take


def mermaid(workflow: WorkflowSpec) -> str:
    """Return a Mermaid flowchart; dotted arrows stand for ``after_ended``."""
    number = {task.id: f"t{index}" for index, task in enumerate(workflow.tasks)}
    lines = ["flowchart LR"]
    for index, (scope, tasks) in enumerate(_by_scope(workflow).items()):
        nodes = [f'  {number[task.id]}["{_mermaid_text(_label(task))}"]' for task in tasks]
        if scope:
            nodes = [f'  subgraph s{index}["{_mermaid_text(scope)}"]', *(f"  {node}" for node in nodes), "  end"]
        lines += nodes
    for task in workflow.tasks:
        lines += [f"  {number[each]} --> {number[task.id]}" for each in task.after]
        lines += [f"  {number[each]} -.-> {number[task.id]}" for each in task.after_ended]
    lines += [f'  p{index}(["{_mermaid_text(_ticks(each))}"])' for index, each in enumerate(workflow.periodics)]
    return "\n".join(lines) + "\n"


def dot(workflow: WorkflowSpec) -> str:
    """Return a graph in the language of graphviz; dashed arrows stand for ``after_ended``."""
    head = ["  rankdir=LR;", '  node [shape=box, style=rounded, fontname="sans-serif"];']
    lines = [f"digraph {_quoted(workflow.name)} {{", *head]
    for index, (scope, tasks) in enumerate(_by_scope(workflow).items()):
        nodes = [f"  {_quoted(task.id)} [label={_quoted(_label(task))}];" for task in tasks]
        lines += [f"  subgraph cluster_{index} {{ label={_quoted(scope)};", *nodes, "  }"] if scope else nodes
    for task in workflow.tasks:
        lines += [f"  {_quoted(each)} -> {_quoted(task.id)};" for each in task.after]
        lines += [f"  {_quoted(each)} -> {_quoted(task.id)} [style=dashed];" for each in task.after_ended]
    for each in workflow.periodics:
        lines.append(f"  {_quoted(each.id)} [label={_quoted(_ticks(each))}, shape=ellipse, style=dotted];")
    return "\n".join([*lines, "}"]) + "\n"


def svg(workflow: WorkflowSpec) -> str:
    """Return a drawing as SVG; needs the program ``dot`` of graphviz."""
    program = shutil.which("dot")
    if program is None:
        raise ConfigError("an SVG needs graphviz (the program dot), which is not installed: use mermaid, dot or text")
    try:
        done = subprocess.run(  # noqa: S603  found by name, given no argument of the file
            [program, "-Tsvg"], input=dot(workflow).encode(), capture_output=True, check=True, timeout=_DOT_S
        )
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"graphviz failed: {error.stderr.decode(errors='replace').strip()}") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"graphviz did not finish within {_DOT_S} s: use mermaid, dot or text") from None
    return done.stdout.decode()


def text_tree(workflow: WorkflowSpec) -> str:
    """Return a tree from what needs nothing down; a task with several needs stands below the last, with the others."""
    children: dict[str | None, list[TaskSpec]] = {}
    for task in workflow.tasks:
        children.setdefault(task.needs[-1] if task.needs else None, []).append(task)
    lines = [workflow.name]
    todo: list[tuple[str, TaskSpec, bool]] = [
        ("", task, index == 0) for index, task in enumerate(reversed(children.get(None, [])))
    ]
    while todo:
        indent, task, is_last = todo.pop()
        lines.append(f"{indent}{'└─ ' if is_last else '├─ '}{_label(task)}{_also(task)}")
        below = indent + ("   " if is_last else "│  ")
        todo += [(below, child, index == 0) for index, child in enumerate(reversed(children.get(task.id, [])))]
    lines += [f"every {format_ms(each.every_ns / 1e6)}: {each.id}" for each in workflow.periodics]
    return "\n".join(lines) + "\n"


FORMATS: Final[dict[str, Callable[[WorkflowSpec], str]]] = {
    "text": text_tree,
    "mermaid": mermaid,
    "dot": dot,
    "svg": svg,
}


def _also(task: TaskSpec) -> str:
    others = task.needs[:-1]
    if not others:
        return ""
    named = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")  # noqa: PLR2004  a line
    return f"  (also after {named})"


def _label(task: TaskSpec) -> str:
    priority = [f"priority {task.priority}"] if task.priority != Priority.NORMAL else []
    duration = [format_ms(task.duration_ms)] if task.duration_ms is not None else []
    return " · ".join((task.id, *priority, *duration))


def _ticks(periodic: PeriodicSpec) -> str:
    return f"{periodic.id} every {format_ms(periodic.every_ns / 1e6)}"


def _by_scope(workflow: WorkflowSpec) -> dict[str | None, list[TaskSpec]]:
    scopes: dict[str | None, list[TaskSpec]] = {}
    for task in workflow.tasks:
        scopes.setdefault(task.scope, []).append(task)
    return scopes


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _mermaid_text(text: str) -> str:
    return escape(text).replace("&#x27;", "'").replace("&quot;", "#quot;")
