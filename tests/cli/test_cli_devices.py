"""N: a workflow with devices through the real program."""

import json
import re

import pytest

from program import whywait

FLOW = """\
name = "sweep"
slots = 8
[budget]
gpus = ["24GB", "24GB"]
devices = { rig = ["a", "b"] }
[task.train]
foreach = { seed = [1, 2, 3, 4] }
run = "echo seed {seed} on card $CUDA_VISIBLE_DEVICES"
gpu = 1
duration = "10s"
[task.eval]
run = "echo $CUDA_VISIBLE_DEVICES $WHYWAIT_RIG"
vram = "10GB"
devices = { rig = 1 }
after = ["train"]
duration = "2s"
"""


@pytest.fixture
def flow(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(FLOW)
    return file


def test_every_task_is_told_its_card_and_the_report_has_each(flow, tmp_path):
    """N2, N4: nobody assigns cards by hand; the lines, the report and the JSON say which each task had."""
    done = whywait("run", flow, "--logs", tmp_path / "logs")
    assert done.code == 0, done.out + done.err
    assert re.search(r"start +train:1 on gpu 0\n", done.out)
    assert re.search(r"start +eval on gpu 0 and rig a\n", done.out)
    assert re.search(r"gpu 1 .* 24.0 GB", done.out)
    told = "".join(path.read_text() for path in sorted((tmp_path / "logs").glob("train*")))
    data = json.loads(whywait("run", flow, "--json").out)
    assert {data["tasks"][f"train:{seed}"]["devices"]["gpu"][0] for seed in range(1, 5)} == {"0", "1"}
    assert data["tasks"]["eval"]["devices"] == {"gpu": ["0"], "rig": ["a"]}
    assert sorted(re.findall(r"seed (\d) on card [01]\n", told)) == ["1", "2", "3", "4"]


def test_other_cards_are_given_on_the_command_line(flow):
    """N1: for a run, for a plan, for a simulation."""
    done = whywait("run", flow, "--gpus", "48GB", "--json")
    assert {task["devices"]["gpu"][0] for task in json.loads(done.out)["tasks"].values()} == {"0"}
    assert "predicted: 12.0 s" in whywait("run", flow, "--dry-run", "--gpus", "16GB,16GB,16GB,16GB").out
    assert "predicted: 22.0 s" in whywait("run", flow, "--dry-run").out
    text = whywait("simulate", flow, "--gpus", "24GB", "--gpus", "24GB,24GB").out
    assert re.search(r"1 x 24 GB +42.0 s", text)
    assert re.search(r"2 x 24 GB +22.0 s", text)


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        ("none", 'task.train: the budget has no graphics cards: expected gpus = "auto"'),
        ("4GB", "task.eval: it demands 10 GB vram on 1 gpu and none has so much (0 has 4 GB)"),
        ("all", 'budget.gpus: 0: "all" is not a size'),
        ("0,1", 'budget.gpus: "0" could be a name or a size'),
        ("", 'budget.gpus: 0: "" is not a size'),
    ],
)
def test_cards_that_do_not_do_are_refused_before_anything_runs(flow, gpus, told):
    """N1, N2: exit code 2, the place, the value."""
    done = whywait("run", flow, "--gpus", gpus)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
