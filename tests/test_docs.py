"""What the documentation shows is true: pages are current and whole, examples run, links lead somewhere."""

import inspect
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
from test_architecture import ROOMS

import whywait
from machines import machine_in
from whywait.kernel.events import Kind
from whywait.kernel.state import SCOPE_TRANSITIONS, TASK_TRANSITIONS
from whywait.runtime.scope import ScopeOptions
from whywait.runtime.settings import Settings
from whywait.runtime.submission import TaskOptions
from whywait.simulation import workload

TOP = Path(__file__).resolve().parent.parent
DOCS = TOP / "docs"
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
MEASURED = {"benchmarks.md", "reliability.md"}  # pages that a long measurement writes
# An example, and what it prints if the page shows that right below. It may go on from the one before, or need Ray.
EXAMPLE = re.compile(
    r"(?:^<!-- (?P<mark>goes on|needs ray) -->\n\n)?"
    r"^```python\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Piece(NamedTuple):
    code: str
    output: str | None


def examples_of(page: Path) -> list[tuple[str, bool, list[Piece]]]:
    """Return of each example of a page where it is, whether it needs Ray, and its pieces."""
    text = page.read_text(encoding="utf-8")
    found: list[tuple[str, bool, list[Piece]]] = []
    for match in EXAMPLE.finditer(text):
        piece = Piece(match["code"], match["output"])
        if match["mark"] == "goes on":
            found[-1][2].append(piece)
            continue
        headings = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)
        place = f"{page.relative_to(TOP)}-{len(found) + 1}-{headings[-1]}"
        found.append((place, match["mark"] == "needs ray", [piece]))
    return found


EXAMPLES = [
    pytest.param(pieces, id=place, marks=[pytest.mark.ray] if needs_ray else [])
    for page in PAGES
    for place, needs_ray, pieces in examples_of(page)
]


def without_times(text):
    """Return the text with durations and generated ids replaced: they are the same in no two runs."""
    text = re.sub(r"\d+(?:\.\d+)?(?:e-\d+)? (?:ms|s)\b|\d+[mhd] \d\d[smh]", "T", text)
    return re.sub(r"@\d+\b", "@N", text)


@pytest.mark.parametrize("pieces", EXAMPLES)
def test_example_prints_what_the_page_shows(pieces, capsys, tmp_path, monkeypatch):
    """V1: the sentences are those that a user reads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("WHYWAIT_HOME", str(tmp_path / "home"))
    names = {"__name__": "__main__"}
    asks_the_machine = any("import machine" in code for code, _ in pieces)
    with machine_in(tmp_path) if asks_the_machine else nullcontext():
        for code, output in pieces:
            exec(compile(code, "example", "exec"), names)
            printed = capsys.readouterr().out
            if output is not None:
                assert without_times(printed) == without_times(output)


def test_the_pages_have_examples():
    count = {page.name: len(examples_of(page)) for page in PAGES}
    assert count["why.md"] >= 12
    assert count["tutorial.md"] >= 10
    assert all(count[page.name] for page in (DOCS / "how-to").glob("*.md"))
    assert count["README.md"] == 1


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(TOP / "tools" / "make_docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_site_has_every_page():
    named = set(re.findall(r"\S+\.md\b", (TOP / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - named == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    broken = {target for target in targets if "://" not in target and not (page.parent / target).exists()}
    assert {target for target in broken if Path(target).name not in MEASURED} == set()


def test_the_index_leads_to_every_page():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    missing = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.name != "index.md"]
    assert [page for page in missing if f"({page})" not in index] == []


def test_the_page_of_the_architecture_has_the_table_of_rooms():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## Rooms")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE)
    assert {room: tuple(re.findall(r"`(\w+)`", allowed)) for room, allowed in rows} == ROOMS


def test_the_page_of_concepts_has_every_step_of_a_state():
    """T1, O1: and no other."""
    told = set()
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    for source, steps in re.findall(r"^\| ([A-Z]+) \| (.*) \|$", text, re.MULTILINE):
        for events, targets in (step.split(" to ") for step in steps.split("; ")):
            words = re.split(", | or ", targets)
            told |= {(source, event, target) for event in events.split(" or ") for target in words}
    assert told == {*TASK_TRANSITIONS, *SCOPE_TRANSITIONS}


def test_the_readme_fits_a_screen_or_so():
    lines = (TOP / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 85
    assert any("docs/devtools-lanes.png" in line for line in lines)


@pytest.mark.parametrize("name", whywait.__all__)
def test_every_public_name_is_on_the_page_of_the_api(name):
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    if isinstance(getattr(whywait, name), bool):
        assert f"`whywait.{name}`" in text
        return
    module = inspect.getmodule(getattr(whywait, name)).__name__
    assert f"### {name}\n\n<small>`{module}`</small>\n" in text


def test_every_kind_of_event_is_on_the_page_of_events():
    """V3: the stream is documented whole."""
    text = (DOCS / "events.md").read_text(encoding="utf-8")
    kinds = list(Kind)
    assert [name for name in kinds if f"`{name}`" not in text] == []
    assert len(kinds) > 30


def test_every_setting_is_on_the_page_of_settings():
    """E1, E2: arguments, variables, options."""
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    asked = set()

    class Asked(dict):
        def get(self, key, default=None):
            asked.add(key)
            return default

    Settings.from_env(Asked())
    arguments = set(inspect.signature(whywait.Authority).parameters)
    options = {*ScopeOptions.__annotations__, *TaskOptions.__annotations__}
    assert {name for name in asked | arguments | options if f"`{name}`" not in text} == set()
    assert len(asked) >= 11


def test_every_key_of_a_workload_is_on_the_page_of_files():
    text = (DOCS / "files.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (top|`[^`]+`) \| (.*) \|$", text.partition("## Workload")[2], re.MULTILINE))
    places = ("top", "`config`", "`config.scopes.NAME`", "`tasks[]`", "`periodics[]`", "`ops[]`")
    for where, table in zip(places, workload.TABLES.values(), strict=True):
        assert {key for key in table if f"`{key}`" not in rows[where]} == set(), where
