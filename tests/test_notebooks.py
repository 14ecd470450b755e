"""A real notebook kernel runs the example notebook and the blocks of the tutorial, one cell each."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from test_docs import DOCS, examples_of, without_times

TOP = Path(__file__).resolve().parent
TOUR = TOP.parent / "examples" / "notebook" / "tour.ipynb"
LIMIT_S = 110


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run all cells of a notebook; return those with code. A cell that raises fails the test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def run(source):
        target = tmp_path / "with-outputs.ipynb"
        command = [sys.executable, TOP / "helpers" / "run_notebook.py", source, target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return [cell for cell in nbformat.read(target, as_version=4).cells if cell.cell_type == "code"]

    return run


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_the_example_notebook_runs_and_shows_itself(run):
    """O6: blocks, results and disposal wait in a cell as in a script; what is left on a last line is HTML."""
    cells = {cell.source: cell for cell in run(TOUR)}

    def shown(end):
        [cell] = [cell for source, cell in cells.items() if source.endswith(end)]
        return [output.data for output in cell.outputs if "data" in output]

    assert "smooth-7" in shown("handles[-1]")[0]["text/html"]
    assert "it starts when" in shown("why()")[0]["text/html"]
    assert "8 of 8" in shown("have ended")[-1]["text/html"]
    assert shown("in handles)")[0]["text/plain"] == "140"
    assert shown('submit(fetch, "b")')[0]["text/plain"] == "('fetched a', 'fetched b')"
    assert "12 tasks" in shown("report()")[0]["text/html"]
    assert printed(next(cell for source, cell in cells.items() if "batch.submit" in source)) == "one\ntwo\n"


def test_every_block_of_the_tutorial_runs_in_a_cell(run, tmp_path):
    """V1, O6: a notebook runs a loop in its main thread, and blocking calls wait all the same."""
    pieces = [piece for _, _, pieces in examples_of(DOCS / "tutorial.md") for piece in pieces]
    # `asyncio.run` is what a notebook has itself: there the main coroutine is awaited.
    codes = [piece.code.replace("asyncio.run(main())", "await main()") for piece in pieces]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in codes])
    nbformat.write(notebook, tmp_path / "tutorial.ipynb")
    cells = run(tmp_path / "tutorial.ipynb")
    for piece, cell in zip(pieces, cells, strict=True):
        if piece.output is not None:
            assert without_times(printed(cell)) == without_times(piece.output)
