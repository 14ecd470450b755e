"""``whywait schema``: the JSON Schema of workflow files."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Final

import typer

from whywait.workflow.format import make_schema

HELP: Final = """Print the JSON Schema of workflow files, for editors.

\b
  whywait schema > workflow.schema.json

\b
Then, at the top of a file:
  TOML (Taplo, Even Better TOML):  #:schema ./workflow.schema.json
  YAML (yaml-language-server):     # yaml-language-server: $schema=workflow.schema.json
  JSON:                            "$schema": "./workflow.schema.json"
"""


def schema(
    *,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,  # noqa: ARG001  `execute` looks for it
) -> None:
    """Print the JSON Schema of workflow files."""
    sys.stdout.write(json.dumps(make_schema(), indent=2, ensure_ascii=False) + "\n")
