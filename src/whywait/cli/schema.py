"""``whywait schema``: the JSON Schema of workflow files."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from whywait.workflow.format import make_schema

HELP: Final = """Print the JSON Schema of workflow files, for editors.

  whywait schema > workflow.schema.json

Then, at the top of a file:
  TOML (Taplo, Even Better TOML):  #:schema ./workflow.schema.json
  YAML (yaml-language-server):     # yaml-language-server: $schema=workflow.schema.json
  JSON:                            "$schema": "./workflow.schema.json"
"""


def add_options(_: argparse.ArgumentParser) -> None:
    """Add no options: there are none."""


def run(_: argparse.Namespace) -> int:
    """Print the JSON Schema of workflow files."""
    sys.stdout.write(json.dumps(make_schema(), indent=2, ensure_ascii=False) + "\n")
    return 0
