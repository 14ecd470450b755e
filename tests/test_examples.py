"""The examples run, for real and offline, and leave what they promise."""

import json
import re
import shutil
import struct
import wave
import zipfile
from pathlib import Path

import pytest

from program import whywait

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def example(tmp_path):
    def copy(name):
        shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("out", "__pycache__"))
        return next(path for path in (tmp_path / name).iterdir() if path.suffix in {".toml", ".yaml", ".json"})

    return copy


def outcomes(done):
    return {ident: row["outcome"] for ident, row in json.loads(done.out)["tasks"].items()}


def test_film_makes_a_film(example):
    file = example("film")
    done = whywait("run", file, "--json", "--set", "width=24")
    assert done.code == 0, done
    assert set(outcomes(done).values()) == {"success"}
    out = file.parent / "out"
    assert zipfile.ZipFile(out / "film.zip").testzip() is None
    data = (out / "film.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (24, 16)
    assert data.count(b"fcTL") == 12  # frames of the animation
    with wave.open(str(out / "sound.wav")) as sound:
        assert sound.getnframes() == 3 * sound.getframerate()


def test_the_guide_shows_what_the_first_example_prints(example):
    """The figures differ from machine to machine, the rest does not."""
    guide = (EXAMPLES.parent / "docs" / "workflows.md").read_text(encoding="utf-8")
    shown = guide.split("```text\nfilm: ", 1)[1].split("```", 1)[0]
    headings = [re.split(r"  |: | 1?\d", line)[0] for line in shown.splitlines()[1:] if line and line[0] != " "]
    assert headings[-2:] == ["The longest chain", "Starved"]
    assert headings[:-2] == ["Utilisation", "Where the waiting went", "Who made others wait"]
    printed = whywait("run", example("film"), "--set", "width=24").out
    assert all(f"\n{heading}" in printed for heading in headings)
    assert "film: 30 tasks in" in printed


def test_bench_writes_its_protocol_whatever_happens(example):
    """G6, R3: the sequence goes on after a failure; the samplers ran beside it."""
    file = example("bench")
    done = whywait("run", file, "--json", "--set", "defect=true")
    assert done.code == 1
    assert outcomes(done) == {
        "connect": "success", "self-test": "error", "warm-up": "success", "measure": "success",
        "load-test": "success", "protocol": "success",
    }  # fmt: skip
    protocol = (file.parent / "out" / "protocol.txt").read_text()
    assert "channel 3: no signal" in protocol
    assert "connected at try 2" in protocol
    assert re.search(r"temperature: \d+ samples", protocol)


def test_sweep_finds_the_best(example):
    file = example("sweep")
    done = whywait("run", file, "--json", "--set", "steps=500")
    assert done.code == 0, done
    assert len(outcomes(done)) == 20
    peak = json.loads(done.out)["report"]["utilisation"]["ram"]["peak"]
    assert peak <= 2 * 128_000_000  # memory that is measured above a demand counts (U2), and an interpreter has its own
    assert (file.parent / "out" / "best.txt").exists()


def test_flaky_shows_retries_timeouts_and_drops(example):
    """T6, T7, D1, D2, D3: each in its place."""
    done = whywait("run", example("flaky"), "--json")
    assert done.code == 1
    rows = json.loads(done.out)["tasks"]
    told = {ident: (row["outcome"], row["cause"], row["attempts"]) for ident, row in rows.items()}
    assert told["flaky:a"] == ("success", None, 3)
    assert told["hanging"] == ("timeout", "run_timeout", 1)
    assert told["broken"] == ("error", "exception", 2)
    assert told["needs-broken"] == ("aborted", "dependency", 0)
    assert told["impatient"] == ("rejected", "max_wait", 0)
    assert told["nice-to-have:y"] == ("rejected", "displaced", 0)
    assert told["nice-to-have:z"] == ("rejected", "queue_full", 0)
    assert told["summary"][0] == "success"
