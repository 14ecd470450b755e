"""The examples of the guides run, and print what the guides say; only times differ from run to run."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
TIME = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)? (?:ms|s)\b|\d+[mhd] \d\d[smh]")


def examples(page: str) -> list[tuple[str, str, str | None]]:
    """Return (heading, code, expected output) of each Python block of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL):
        heading = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)[-1]
        found.append((heading, match[1], match[2]))
    return found


EXAMPLES = [(page, *example) for page in ("why.md", "events.md") for example in examples(page)]


def without_times(text: str) -> str:
    return TIME.sub("<time>", text)


def run(code: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    return out.getvalue()


@pytest.mark.parametrize(("page", "heading", "code", "expected"), EXAMPLES, ids=lambda value: str(value)[:30])
def test_an_example_prints_what_the_page_says(page, heading, code, expected, tmp_path, monkeypatch):
    """V1: the sentence as a user reads it."""
    monkeypatch.chdir(tmp_path)
    printed = run(code)
    if expected is not None:
        assert without_times(printed) == without_times(expected), heading


def test_there_are_a_dozen_situations():
    assert len(examples("why.md")) >= 12
