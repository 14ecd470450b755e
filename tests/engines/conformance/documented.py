"""The engine on the page "Write an engine", taken from the page: what a reader can write must pass the suite."""

import re
from pathlib import Path

from whywait.engines.registry import MAKERS

PAGE = Path(__file__).parents[3] / "docs" / "engines.md"
SOURCE = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)
NAME = "thread-each"

_names = {"__name__": "documented"}
exec(compile(SOURCE, str(PAGE), "exec"), _names)
ThreadEach = _names["ThreadEach"]
MAKERS[NAME] = ThreadEach  # so that tests name it like the others
