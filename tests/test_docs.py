"""What the documentation shows is true: generated pages are current, examples run, links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").glob("*.md"))]
# An example, and what it prints if the page shows that right below.
EXAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(page.name, *match.groups(), id=f"{page.name}-{number}")
    for page in PAGES
    for number, match in enumerate(EXAMPLE.finditer(page.read_text(encoding="utf-8")), 1)
]


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(TOP / "tools" / "make_docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def without_times(text):
    """Return the text with every duration replaced: no run takes as long as another."""
    return re.sub(r"\d+(\.\d+)? (ms|s)\b", "T", text)


def test_the_readme_and_the_pages_have_examples():
    assert {page for page, *_ in (example.values for example in EXAMPLES)} >= {"README.md", "inside.md", "periodic.md"}


@pytest.mark.parametrize(("page", "code", "output"), EXAMPLES)
def test_example_prints_what_the_page_shows(page, code, output, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    if output is not None:
        assert without_times(capsys.readouterr().out) == without_times(output)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    broken = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert broken == []
