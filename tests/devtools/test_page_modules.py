"""Modules of the page that draw nothing themselves, run by node: what is counted, folded, ordered and read."""

import json
import operator
import shutil
import subprocess
from pathlib import Path

import pytest

import whywait.devtools
from whywait.kernel.events import Event
from whywait.observe.report import Account

PAGE = Path(whywait.devtools.__file__).parent / "page"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="the page's modules are run by node, which is not there"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(PAGE, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def node(folder, imports, body, given=None):
    """Return what the body of a function of ``given`` returns, with these imports."""
    program = f"""import {{ readFileSync }} from "node:fs";
    {imports}
    const given = JSON.parse(readFileSync(0));
    console.log(JSON.stringify((() => {{ {body} }})()));"""
    (folder / "program.js").write_text(program)
    done = subprocess.run(
        ["node", "program.js"], input=json.dumps(given), capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def submitted(seq, number, time_ns=0, **details):
    name = details.pop("name", f"t{number}")
    details["state"] = "QUEUED" if "after" in details else "READY"
    return {**happened(seq, "TASK_SUBMITTED", number, time_ns, **details), "name": name}


def retried(seq, number, of):
    return happened(seq, "TASK_RETRIED", number, 0, of=of, attempt=2, state="READY")


def happened(seq, kind, number, time_ns, **details):
    return {"seq": seq, "time_ns": time_ns, "kind": kind, "scope": "s", "number": number, "details": details}


def eleven():
    """One task and ten that wait for it, on one slot: each goes from one cause to another at the same instant."""
    events = [submitted(1, 1), happened(2, "TASK_STARTED", 1, 0)]
    events += [submitted(number + 1, number, 1, after=[1]) for number in range(2, 12)]
    events.append(happened(13, "TASK_FINISHED", 1, 1000, outcome="success"))
    events += [happened(number + 12, "TASK_READY", number, 1000) for number in range(2, 12)]
    for number in range(2, 12):
        at = 1000 * (number - 1)
        events.append(happened(number + 22, "TASK_STARTED", number, at, waits={"dependency": 999, "slot": at - 1000}))
    return events


def test_the_timeline_counts_a_task_once_at_every_instant(folder):
    """V7: a wait has one cause at each instant; when it passes from one to the other, it is not counted for both."""
    body = (
        FED
        + """
      const { curves, totals } = layOut(store, 20000);
      const peaks = [];
      for (const wide of [1, 7, 100, 1000, 20000]) {
        let peak = 0;
        for (let from = 0; from < 20000; from += wide) {
          const at = totals.fullest(from, from + wide);
          peak = Math.max(peak, curves.reduce((sum, curve) => sum + waitingAt(curve, at), 0));
        }
        peaks.push(peak);
      }
      const sampled = (at) => curves.map((curve) => [curve.cause, waitingAt(curve, at)]);
      return [peaks, [500, 1000, 1001, 2500, 11000].map(sampled)];
    """
    )
    imports = 'import { Store } from "./store.js"; import { layOut, waitingAt } from "./timeline-model.js";'
    peaks, sampled = node(folder, imports, body, eleven())
    assert peaks == [10] * 5, "eleven tasks, of which one runs: the same however far one zooms"
    assert [dict(map(tuple, each)) for each in sampled] == [
        {"dependency": 10, "slot": 0},
        {"dependency": 0, "slot": 9},
        {"dependency": 0, "slot": 9},
        {"dependency": 0, "slot": 8},
        {"dependency": 0, "slot": 0},
    ]


def test_a_task_that_takes_no_slot_is_drawn_in_none(folder):
    """S6: it runs beside the others, in a row of its own."""
    events = [submitted(number, number, slot=number % 2 == 1) for number in range(1, 5)]
    events += [happened(number + 4, "TASK_STARTED", number, number) for number in range(1, 5)]
    body = (
        FED
        + """
      const { slots, held } = layOut(store, 100);
      return [slots.map((tasks) => tasks.map((task) => task.number)), held];
    """
    )
    imports = 'import { Store } from "./store.js"; import { layOut } from "./timeline-model.js";'
    assert node(folder, imports, body, events) == [[[1], [3], [2], [4]], 2]


def test_the_fullest_instant_of_a_stretch_is_found_whatever_the_stretch(folder):
    body = """
      let seed = 7;
      const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
      const wrong = [];
      for (let round = 0; round < 60; round += 1) {
        const curves = [0, 1, 2].map(() => {
          const starts = Float64Array.from({ length: random(30) }, () => random(200)).sort();
          const ends = starts.map((from) => from + random(50)).map((to) => (to > 240 ? Infinity : to)).sort();
          return { starts, ends };
        });
        const all = (ns) => curves.reduce((sum, curve) => sum + waitingAt(curve, ns), 0);
        const totals = new Totals(curves);
        for (let each = 0; each < 40; each += 1) {
          const from = random(260) - 5;
          const to = from + 1 + random(60);
          let most = 0;
          for (let at = from; at < to; at += 1) most = Math.max(most, all(at));
          const found = totals.fullest(from, to);
          if (found < from || found >= to || all(found) !== most) wrong.push([from, to, found, all(found), most]);
        }
      }
      return wrong;
    """
    assert node(folder, 'import { Totals, waitingAt } from "./timeline-model.js";', body) == []


@pytest.mark.parametrize(
    ("ident", "family"),
    [
        ("smooth-7", "smooth"),
        ("smooth2-7", "smooth2"),
        ("frame12", "frame"),
        ("tile-3x4", "tile"),
        ("tile-3-4", "tile"),
        ("a1-2-3", "a1"),
        ("sample#12", "sample"),
        ("v1.2", "v1"),
        ("@0000000007", "@"),
        ("pack", "pack"),
        ("1" * 900 + "x", "1" * 900 + "x"),
    ],
)
def test_a_family_is_a_name_without_the_numbers_at_its_end(folder, ident, family):
    body = "return familyOf({ scope: 's', id: given });"
    assert node(folder, 'import { familyOf } from "./view-graph.js";', body, ident) == f"s/{family}"


def test_the_graph_keeps_the_edge_between_two_families_and_counts_those_within_one(folder):
    events = []
    for index in range(40):
        events.append(submitted(len(events) + 1, len(events) + 1, name=f"smooth-{index}"))
    for index in range(40):
        events.append(submitted(len(events) + 1, len(events) + 1, name=f"smooth2-{index}", after=[index + 1]))
    for index in range(20):
        after = {"after": [len(events)]} if index else {}
        events.append(submitted(len(events) + 1, len(events) + 1, name=f"epoch-{index}", **after))
    body = (
        FED
        + """
      const { nodes, edges } = fold(store, [...store.tasks.values()]);
      const boxes = [...nodes.values()].map((node) => [node.label, node.tasks.length, node.inner]);
      return [boxes, edges.map(([a, b]) => [a.label, b.label])];
    """
    )
    imports = 'import { Store } from "./store.js"; import { fold } from "./view-graph.js";'
    nodes, edges = node(folder, imports, body, events)
    assert nodes == [["smooth\u2026", 40, 0], ["smooth2\u2026", 40, 0], ["epoch\u2026", 20, 19]]
    assert edges == [["smooth\u2026", "smooth2\u2026"]]


def test_lanes_stand_as_the_server_has_them_and_their_tasks_in_the_order_in_which_they_start(folder):
    body = """
      const task = (number, ready_ns, ready_seq, priority = 50) => ({ number, ready_ns, ready_seq, priority });
      const tasks = [task(1, 5, 9), task(2, 5, 8), task(3, 4, 1), task(4, 6, 12), task(5, 5, 7)];
      const lane = (key, priority, ready) => ({ key, priority, tasks: ready.map((ns, index) => task(index, ns)) });
      const some = [["late", 50, [9]], ["high", 80, [10]], ["early", 50, [3, 12]], ["new", 50, [11]]];
      const lanes = () => some.map((each) => lane(...each));
      return [
        inLine([...tasks], []).map((one) => one.number),
        inLine([...tasks], [{ number: 1 }, { number: 5 }, { number: 99 }]).map((one) => one.number),
        inOrder(lanes(), []).map((one) => one.key),
        inOrder(lanes(), ["high", "late", "early"]).map((one) => one.key),
      ];
    """
    assert node(folder, 'import { inLine, inOrder } from "./view-lanes.js";', body) == [
        [3, 5, 2, 1, 4],
        [1, 5, 3, 2, 4],
        ["high", "early", "late", "new"],
        ["high", "late", "early", "new"],
    ]


def events_file(*rows, header=None):
    return "\n".join(json.dumps(row) for row in ([header] if header else []) + list(rows)) + "\n"


FED = "const store = new Store(); for (const event of given) store.apply(event);"
HEADER = {"whywait events": 1, "slots": 2, "hard": {"cpu": 4}, "soft": {"ram": 8_000}}
PARSE = "try { return parseSaved(given); } catch (error) { return error.message; }"
IMPORT_SAVED = 'import { parseSaved } from "./saved.js";'


def test_the_limits_in_the_first_line_of_a_file_are_known_and_later_changes_count(folder):
    changed = {"seq": 2, "time_ns": 5, "kind": "LIMIT_CHANGED", "scope": "", "name": "cpu", "details": {"limit": 6}}
    found = node(folder, IMPORT_SAVED, PARSE, events_file(submitted(1, 1), changed, header=HEADER))
    assert [event["seq"] for event in found["events"]] == [1, 2]
    assert [(gate["name"], gate["limit"], gate["soft"]) for gate in found["gates"]] == [
        ("slot", 2, False),
        ("cpu", 6, False),
        ("ram", 8_000, True),
    ]
    assert node(folder, IMPORT_SAVED, PARSE, events_file(submitted(1, 1)))["gates"] is None


def test_the_units_of_devices_are_known_with_those_that_came_and_went(folder):
    """N1, V6: as the first line and later changes tell it."""
    header = {**HEADER, "devices": {"gpu": {"10": 8, "2": 8}, "rig": {"a": 0}}}
    changed = {
        "seq": 2,
        "time_ns": 5,
        "kind": "LIMIT_CHANGED",
        "scope": "",
        "name": "gpu",
        "details": {"units": {"2": 6}},
    }
    found = node(folder, IMPORT_SAVED, PARSE, events_file(submitted(1, 1), changed, header=header))
    assert found["devices"] == [
        {"kind": "gpu", "name": "2", "size": 6, "present": True},
        {"kind": "gpu", "name": "10", "size": 8, "present": False},
        {"kind": "rig", "name": "a", "size": 0, "present": True},
    ]
    assert [gate["name"] for gate in found["gates"]] == ["slot", "cpu", "ram"]
    assert node(folder, IMPORT_SAVED, PARSE, events_file(submitted(1, 1)))["devices"] == []


def test_who_waits_for_a_device_is_told_who_has_it(folder):
    """N5, V6: also where the holder asked for memory only."""
    events = [
        submitted(1, 1, demand={"vram": 5}),
        happened(2, "TASK_STARTED", 1, 0, devices={"gpu": ["0"]}),
        submitted(3, 2, demand={"gpu": 1}),
        {**happened(4, "LANE_WAITS", 0, 0, priority=50, demand={"gpu": 1}, cause="gpu", tasks=1), "number": None},
    ]
    del events[3]["number"]
    body = (
        FED
        + """
      const task = store.tasks.get(2); return [store.reason(task), store.holders(task).map(({ id }) => id)];"""
    )
    assert node(folder, 'import { Store } from "./store.js";', body, events) == ["gpu", ["t1"]]


def test_a_last_line_that_was_cut_off_is_said_and_passed_over(folder):
    whole = events_file(submitted(1, 1), submitted(2, 2), header=HEADER)
    found = node(folder, IMPORT_SAVED, PARSE, whole[:-20])
    assert ([event["seq"] for event in found["events"]], found["cut"]) == ([1], True)
    assert node(folder, IMPORT_SAVED, PARSE, whole)["cut"] is False


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ('{"a": 1}\nnope\n{"b": 1}', "line 2 is not JSON"),
        ("[1, 2]", "no events"),
        ('{"whywait record":1}', "serve"),
        (events_file(submitted(1, 1), submitted(1, 2)), "line 2: seq 1 comes after 1"),
        (events_file(submitted(1, 1, name="x" * 100_000)), "line 1: a name is longer than 1,000 characters"),
        (events_file(submitted(1, 1, after=["x"])), "line 1: it awaits what is no number of a task"),
        (events_file({**submitted(1, 1), "scope": 5}), "line 1: its scope is no text"),
        (events_file({**submitted(1, 1), "time_ns": "x"}), "line 1: its time_ns is no number"),
        (events_file({**submitted(1, 1), "details": [1]}), "line 1: its details are no object"),
        (
            events_file({"seq": 1, "time_ns": 0, "kind": "SCOPE_CREATED", "scope": "a", "details": {"parent": "b"}}),
            "line 1: the parent of scope a was not there yet",
        ),
    ],
)
def test_a_file_that_cannot_have_happened_is_refused_in_words(folder, text, said):
    found = node(folder, IMPORT_SAVED, PARSE, text)
    assert isinstance(found, str)
    assert said in found


def test_what_cannot_have_happened_is_passed_over(folder):
    """V3: a retry of a later task, and tasks that await each other; nothing goes round for ever."""
    events = [
        submitted(1, 2, after=[1]),
        retried(2, 1, of=2),
        submitted(3, 3, after=[3, 4]),
        submitted(4, 4, after=[3]),
    ]
    body = f"""{FED} const tasks = [...store.tasks.values()]; const {{ nodes }} = fold(store, tasks);
      const row = (task) => [task.of, store.latest(task.number).number, store.awaitedBy(task).length];
      return [tasks.map(row), nodes.size];"""
    imports = 'import { Store } from "./store.js"; import { fold } from "./view-graph.js";'
    assert node(folder, imports, body, events) == [[[None, 2, 0], [None, 1, 1], [None, 3, 2], [None, 4, 1]], 4]


def measured(number, name, asked, peak, counted=None):
    """Return the events of a task whose memory was measured."""
    seq = 10 * number
    demand = {"demand": {"ram": asked}} if asked else {}
    events = [submitted(seq, number, name=name, **demand), happened(seq + 1, "TASK_STARTED", number, 0)]
    if counted is not None:
        events.append(happened(seq + 2, "TASK_MEASURED", number, 1, ram=counted))
    if peak is not None:
        events.append(happened(seq + 3, "TASK_FINISHED", number, 2, outcome="success", peak_ram=peak))
    return events


NAMES = ["train:a", "train:b", "load", "frame-1", "frame-20", "7", "@0000000012", ":x", "a:", "x2y", "sample#3"]


def test_memory_asked_for_and_used_is_told_by_name_as_in_the_report(folder):
    """U1: the same rows from the same events."""
    events = [
        event
        for number, name in enumerate(NAMES, 1)
        for event in measured(number, name, asked=100 * (number % 3), peak=150 + number % 4)
    ]
    body = f"{FED} return memoryUse(store.tasks.values());"
    imports = 'import { Store } from "./store.js"; import { memoryUse } from "./view-budget.js";'
    rows = node(folder, imports, body, events)
    expected = Account(map(Event.from_dict, events)).to_dict()["memory"]
    key = operator.itemgetter("id")
    assert sorted(rows, key=key) == sorted(expected, key=key)
    assert [row["peak"] for row in rows] == [row["peak"] for row in expected]


def test_a_gauge_counts_what_is_really_used(folder):
    """U2: of memory that is measured, asked for or not; else what was asked for."""
    events = [
        *measured(1, "greedy", 100, None, counted=300),
        *measured(2, "honest", 100, None),
        *measured(3, "silent", 0, None, counted=70),
    ]
    each = '["ram", "slots", "cpu"].map((name) => needOf(task, name))'
    body = f"{FED} return [...store.tasks.values()].map((task) => {each});"
    imports = 'import { Store } from "./store.js"; import { needOf } from "./view-budget.js";'
    assert node(folder, imports, body, events) == [[300, 1, 0], [100, 1, 0], [70, 1, 0]]
