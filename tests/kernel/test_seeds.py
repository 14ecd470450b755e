"""Seeds that failed once do so no more."""

import pytest

import seeds


@pytest.mark.parametrize("entry", seeds.kept(), ids=lambda entry: f"{entry['kind']}-{entry['seed']}")
def test_a_seed_that_was_kept(entry):
    """C0, V3: whatever it was, it stays mended."""
    seeds.run_again(entry)


def test_a_seed_that_fails_is_kept_and_run_again(tmp_path, monkeypatch):
    """C0: the file says all that is needed to see the failure again."""
    monkeypatch.setattr(seeds, "FOLDER", tmp_path)
    ran = []
    monkeypatch.setitem(seeds.KINDS, "commands", lambda seed, steps: ran.append((seed, steps)))
    seeds.keep("commands", 4711, steps=400)
    (entry,) = seeds.kept()
    seeds.run_again(entry)
    assert ran == [(4711, 400)]
