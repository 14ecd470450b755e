"""Every rule of docs/rules.md is named by a test, or is known to be ahead of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
RULES_PAGE = TESTS.parent / "docs" / "rules.md"

FAMILIES = "PSBTGDXOWRNUMVCAE"
# Rules that no code keeps yet. The change that builds one removes it here and its mark in docs/rules.md.
LATER: set[str] = {"M12", "M16", "M17", "M18"}
# Rules of which no code keeps what stands behind the mark yet.
PARTLY: set[str] = set()
MARK = "*(Not built yet)*"


def rules_of(page: str) -> dict[str, str]:
    """Return the text of each rule by its number, in the page's order."""
    return dict(re.findall(r"^- \*\*([A-Z]\d+)\*\* (.*(?:\n  .*)*)$", page, re.MULTILINE))


def citations(source: str) -> Iterator[str]:
    """Yield every rule number in the docstrings and names of a test file's source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # "M3's" is the earlier design of that name, see docs/decisions.md.
            yield from re.findall(r"\b[A-Z]\d+\b(?!'s)", ast.get_docstring(node) or "")
            # A number inside a name stands between underscores, where \b finds no border.
            words = getattr(node, "name", "").upper().split("_")
            yield from (word for word in words if re.fullmatch(r"[A-Z]\d+", word))


RULES = rules_of(RULES_PAGE.read_text(encoding="utf-8"))
CITED = {
    number
    for path in sorted(TESTS.rglob("test_*.py"))
    if path != Path(__file__).resolve()
    for number in citations(path.read_text(encoding="utf-8"))
}


def in_order(numbers) -> str:
    order = list(RULES)
    return ", ".join(sorted(numbers, key=order.index))


def test_the_page_numbers_each_family_without_gaps():
    numbers = {}
    for rule in RULES:
        numbers.setdefault(rule[0], []).append(int(rule[1:]))
    assert set(numbers) == set(FAMILIES)
    for family, found in numbers.items():
        first = 0 if family == "C" else 1
        assert found == list(range(first, first + len(found))), f"family {family}"


def test_each_rule_is_cited_by_a_test():
    uncited = {rule for rule in RULES if rule[0] in FAMILIES} - LATER - CITED
    assert not uncited, f"no test names these rules: {in_order(uncited)}"


def test_no_rule_that_is_tested_counts_as_later():
    assert set(RULES) >= LATER
    built = LATER & CITED
    assert not built, f"tests name these rules, so they are no longer LATER: {in_order(built)}"


def test_the_page_marks_exactly_the_later_rules():
    assert {rule for rule, text in RULES.items() if text.startswith(MARK)} == LATER


def test_the_page_marks_what_is_later_in_a_rule_that_is_built_in_part():
    assert {rule for rule, text in RULES.items() if MARK in text and not text.startswith(MARK)} == PARTLY


def test_citations_are_found_in_docstrings_and_names_only():
    source = 'def test_p1_and_more():\n    """B2: soft; see also T9 and M3\'s own."""\n    x = "G1"  # D1\n'
    assert sorted(citations(source)) == ["B2", "P1", "T9"]
