"""Files with anything in them: each gives a valid object or one line that says what is wrong, and both soon.

A few hundred of each kind here; `make fuzz-files` tries 10,000.
"""

import io
import json
import tomllib
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostile import ANYTHING, a_run, broken_bytes, in_time, mutated, mutated_lines
from whywait import ConfigError, Record, Simulation
from whywait.bridges import chrome_trace, read_events
from whywait.devtools.saved import SavedRun
from whywait.kernel.events import Kind
from whywait.observe.event_words import event_in_words
from whywait.observe.report import Account
from whywait.simulation.whatif import workload_of
from whywait.simulation.workload import Workload
from whywait.workflow import load
from whywait.workflow.drawings import FORMATS
from whywait.workflow.plan import levels, to_workload, without_duration

WORKLOAD = {
    "name": "farm",
    "config": {
        "slots": 2, "order": "aging", "every_ms": 500, "boost": 10, "cap": 99, "backfill": "none", "cpu": 4,
        "ram": "2GB", "resources": {"licence": 1},
        "gpus": ["8GB", "8GB"], "devices": {"rig": ["a", "b"]},
        "queue_limit": 50, "overflow": "displace", "retry": 1, "backoff_ms": 5,
        "scopes": {"night": {"slots": 1, "max_spawn": 9}, "deep": {"parent": "night", "on_error": "abort"}},
    },
    "tasks": [
        {"id": "a", "at_ms": 0, "duration_ms": 900, "scope": "deep", "cpu": 2, "outcome": "error", "retry": 2},
        {"id": "b", "at_ms": 5, "duration_ms": 20, "priority": "high", "after": ["a"], "max_wait_ms": 40},
        {"id": "c", "at_ms": 5, "duration_ms": 20, "after_ended": ["a", "b"], "resources": {"licence": 1}},
        {"id": "d", "at_ms": 7, "duration_ms": 30, "timeout_ms": 10, "ram": "3GB", "fails": 1},
        {"id": "e", "at_ms": 7, "duration_ms": 30, "vram": "2GB", "slot": False, "devices": {"rig": 1}},
    ],
    "ops": [{"at_ms": 9, "do": "pause", "id": "c"}, {"at_ms": 50, "do": "resume", "id": "c"}],
    "periodics": [{"id": "p", "every_ms": 50, "duration_ms": 5, "until_ms": 500, "overlap": "queue", "jitter": 0.1,
                   "gpu": 1}],
}  # fmt: skip
WORKFLOW = """
name = "film"
slots = 3
sequence = ["a", "b"]
[budget]
cpu = 2
resources = { licence = 1 }
[vars]
size = 3
[defaults]
duration = "2s"
retry = { times = 2, backoff = "1s" }
[scope.net]
slots = 2
[scope.low]
parent = "net"
[task.a]
run = "echo {size}"
cpu = 1
[task.b]
run = ["echo", "{item}"]
foreach = [1, 2, 3]
scope = "low"
timeout = "5m"
[task.c]
run = "echo {x} {y}"
foreach = { x = ["a", "b"], y = [1, 2] }
after = ["b:{y}"]
env = { LEVEL = "{x}" }
priority = "high"
[periodic.p]
run = "true"
every = "500ms"
"""
LONGEST_LINE = 1_000  # characters of a message, most of them those of the path
pytestmark = pytest.mark.timeout(0)  # each input has its own limit, by the same alarm clock
KINDS = [str(kind) for kind in Kind]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The files of a real run: events, record."""
    return a_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def many(request):
    """Return the settings of a search: as many inputs as were asked for."""
    count = request.config.getoption("--inputs", default=150)
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=count <= 150,  # the same ones each time among the other tests; others in a search
        database=None,
    )


def attack(many, strategy, act):
    """Try inputs; each is carried out, or refused in one line."""

    @many
    @given(strategy)
    def attempt(data):
        with in_time():
            try:
                act(data)
            except ConfigError as error:
                told = str(error)
                assert told
                assert all(line.isprintable() and len(line) < LONGEST_LINE for line in told.splitlines()), told

    attempt()


def written(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode(errors="surrogatepass"))
    return path


def look_at_events(path):
    """Do with a file of events whatever whywait can do with one."""
    events = list(read_events(path))
    saved = SavedRun.from_file(path)
    saved.make_feed(1000)
    assert saved.overview()
    assert saved.stats()
    assert saved.report()
    json.dumps(chrome_trace(events), allow_nan=False)
    Account(events).to_dict()
    for event in events:
        assert event_in_words(event)


def look_at_record(path):
    """Do with a record whatever whywait can do with one."""
    assert Record(path).replay() is not None
    saved = SavedRun.from_file(path)
    saved.make_feed(1000)
    assert saved.overview()
    assert saved.report()
    Simulation(workload_of(path)).run().to_dict()


def test_events_that_were_tampered_with(run, many, tmp_path):
    """V3: a field, a line, a byte."""
    text = run[0].read_bytes()
    lines = text.decode().splitlines()
    attack(many, mutated_lines(lines), lambda data: look_at_events(written(tmp_path, "e.jsonl", data)))
    attack(many, broken_bytes(text), lambda data: look_at_events(written(tmp_path, "e.jsonl", data)))


def test_events_that_were_made_up(many, tmp_path):
    """V3: every field of an event is there, with anything in it."""
    number = st.integers(1, 6)
    detail = st.sampled_from("state priority demand after attempt of waits outcome cause from to parent limit".split())
    value = st.one_of(ANYTHING, number, st.sampled_from(["READY", "RUNNING", "PAUSED", "success", "a", "b"]))
    event = st.fixed_dictionaries(
        {"kind": st.sampled_from(KINDS), "scope": st.sampled_from(["", "a", "b", "c"]), "number": number},
        optional={"name": st.sampled_from(["t", "p"]), "details": st.dictionaries(detail, value, max_size=5)},
    )

    def look(events):
        lines = [json.dumps({"seq": at, "time_ns": at * 1000, **each}) for at, each in enumerate(events, 1)]
        look_at_events(written(tmp_path, "e.jsonl", "\n".join(lines) + "\n"))

    attack(many, st.lists(event, min_size=1, max_size=30), look)


def test_histories_that_no_run_can_have(many, tmp_path):
    """V3: each event is right by itself; together they tell of tasks that start twice or end before they begin."""
    details = {
        "TASK_SUBMITTED": {"state": "READY", "priority": 50},
        "TASK_STARTED": {"waits": {"slot": 5}},
        "TASK_FINISHED": {"outcome": "success"},
        "TASK_PAUSED": {"from": "RUNNING"},
        "TASK_RESUMED": {"to": "READY"},
        "TASK_ABORT_ASKED": {"cause": "cancelled"},
        "TASK_CANCELLED": {"outcome": "aborted", "cause": "cancelled"},
        "TASK_DROPPED": {"cause": "max_wait"},
        "TASK_READY": {},
        "LANE_WAITS": {"priority": 50, "cause": "cpu", "tasks": 1},
        "SCOPE_CREATED": {"parent": "b"},
    }
    step = st.tuples(
        st.sampled_from(sorted(details)), st.integers(1, 4), st.sampled_from(["a", "b"]), st.integers(0, 3)
    )

    def look(steps):
        lines, begun = ['{"skipped": 3}'], 0
        for seq, (kind, number, scope, pause) in enumerate(steps, 4):
            event = {"seq": seq, "time_ns": 100 * seq + pause, "kind": kind, "scope": scope, "details": details[kind]}
            if kind == "TASK_SUBMITTED":
                begun = event["number"] = max(begun + 1, number)
            elif kind.startswith("TASK"):
                event["number"] = number
            lines.append(json.dumps(event))
        look_at_events(written(tmp_path, "e.jsonl", "\n".join(lines) + "\n"))

    attack(many, st.lists(step, min_size=1, max_size=40), look)


def test_records_that_were_tampered_with(run, many, tmp_path):
    """V3: a field, a line, a byte."""
    text = run[1].read_bytes()
    lines = text.decode().splitlines()
    attack(many, mutated_lines(lines), lambda data: look_at_record(written(tmp_path, "r.rec", data)))
    attack(many, broken_bytes(text), lambda data: look_at_record(written(tmp_path, "r.rec", data)))


def test_workloads_that_were_tampered_with(many, tmp_path):
    """C0: a field, a byte, a number out of all bounds."""

    def look(data):
        text = data if isinstance(data, bytes) else json.dumps(data)
        Simulation(Workload.from_file(written(tmp_path, "w.json", text))).run().to_dict()

    attack(many, mutated(WORKLOAD), look)
    attack(many, broken_bytes(json.dumps(WORKLOAD).encode()), look)


@pytest.mark.parametrize("suffix", ["toml", "yaml", "json"])
def test_workflows_that_were_tampered_with(many, tmp_path, suffix):
    """G5: a field, a byte, in each of the three languages; a file that is right can be planned and drawn."""

    def look(data):
        path = tmp_path / f"f.{suffix}"
        path.write_bytes(data if isinstance(data, bytes) else data.encode(errors="surrogatepass"))
        workflow = load(str(path))
        levels(workflow)
        for name in ("text", "mermaid", "dot"):
            FORMATS[name](workflow)
        if not without_duration(workflow):
            Simulation(to_workload(workflow)).run()

    whole = json.dumps(tomllib.loads(WORKFLOW), ensure_ascii=False)
    if suffix != "toml":
        attack(many, mutated(tomllib.loads(WORKFLOW)).map(json.dumps), look)  # which is YAML as well
    text = WORKFLOW if suffix == "toml" else whole
    attack(many, mutated_lines(WORKFLOW.splitlines()) if suffix == "toml" else mutated_lines([whole]), look)
    attack(many, broken_bytes(text.encode()), look)


# Short files that stand for very much


def simulated(workload, **options):
    Simulation(workload, **options).run()


def chain(depth, parent="parent"):
    """Return scopes of which each is inside the one before."""
    return {f"s{number}": {parent: f"s{number - 1}"} if number else {} for number in range(depth)}


ENDLESS = {"id": "a", "at_ms": 0, "duration_ms": 1, "outcome": "error"}
ONE = {"id": "a", "at_ms": 0, "duration_ms": 1}
TICKS = {"id": "p", "every_ms": 1, "duration_ms": 1, "until_ms": 10**15}


@pytest.mark.parametrize(
    ("workload", "options", "told"),
    [
        ({"tasks": [{**ENDLESS, "retry": 10**9}]}, {}, "tasks[0].retry: the workload stands for more than"),
        ({"config": {"retry": 10**9}, "tasks": [ENDLESS]}, {}, "attempts: retry less often"),
        ({"config": {"scopes": {"s": {"retry": 10**9}}}, "tasks": [{**ENDLESS, "scope": "s"}]}, {}, "attempts"),
        ({"tasks": [ENDLESS]}, {"retry": 10**9}, "attempts"),
        ({"tasks": [{**ENDLESS, "id": f"t{n}", "retry": 10**4} for n in range(300)]}, {}, "attempts"),
        ({"tasks": [ONE], "periodics": [TICKS]}, {}, "periodics[0].until_ms: the workload stands for more than"),
        ({"config": {"scopes": chain(30_000)}, "tasks": [ONE]}, {}, "nested deeper than 100"),
        ({"config": {"scopes": chain(30_000) | {"s0": {"parent": "s29999"}}}, "tasks": [ONE]}, {}, "form a circle"),
        ({"tasks": [{**ONE, "id": "x" * 100_000}]}, {}, "at most 1,000 characters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_short_workload_that_stands_for_very_much_is_refused_at_once(workload, options, told):
    """C0: with the place and what to do."""
    with in_time(), pytest.raises(ConfigError) as caught:
        simulated(workload, **options)
    assert told in str(caught.value)


def test_what_can_end_does():
    """C0: a retry without end that is not needed, ticks that are few, times beyond any clock."""
    with in_time():
        simulated({"tasks": [{**ONE, "retry": 10**9, "fails": 3}], "config": {"slots": 1}})
        simulated(
            {"tasks": [{**ONE, "at_ms": 10**12}], "periodics": [{**TICKS, "every_ms": 10**9, "until_ms": 10**12}]}
        )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[task.a]\nrun = 'true'\nforeach = {LIST}\n[task.b]\nrun = 'true'\nforeach = {LIST}\nafter = ['a']\n",
            "task.b.after: the file stands for more than 1,000,000 dependencies: let one task come between",
        ),
        (
            "[vars]\nbig = '{BIG}'\n[task.a]\nrun = 'echo {big}'\nforeach = { x = {SHORT}, y = {SHORT} }\n",
            "task.a.run: with {name} replaced, the file stands for more than 100,000,000 characters",
        ),
        (
            "[task.a]\nrun = 'true'\n" + "".join(f"[scope.s{n}]\nparent = 's{n - 1}'\n" for n in range(1, 9000)),
            "nested",
        ),
    ],
    ids=["dependencies", "text", "scopes"],
)
def test_a_short_workflow_that_stands_for_very_much_is_refused_at_once(tmp_path, text, told):
    """G5: 30,000 tasks after 30,000 others; 90,000 long commands; scopes in scopes."""
    made = text.replace("{LIST}", str(list(range(30_000)))).replace("{SHORT}", str(list(range(300))))
    path = written(tmp_path, "f.toml", made.replace("{BIG}", "x" * 100_000))
    with in_time(), pytest.raises(ConfigError) as caught:
        load(str(path))
    assert told in str(caught.value)


@pytest.mark.parametrize("what", ["nan", "retries", "id"])
def test_a_saved_run_that_would_not_end_is_refused(run, tmp_path, what):
    """V3: NaN for a time, a task that is its own retry, an id of 100 KB."""
    events = [json.loads(line) for line in run[0].read_text().splitlines()]
    record = run[1].read_text().splitlines()
    seq, now = events[-1]["seq"], events[-1]["time_ns"]
    if what == "nan":
        record[5] = record[5].replace(record[5].split(",")[1], "NaN")
        path = written(tmp_path, "r.rec", "\n".join(record))
    elif what == "retries":
        details = {"of": 999, "attempt": 2, "state": "READY"}
        head = {"seq": seq + 1, "time_ns": now, "kind": "TASK_RETRIED", "scope": "default", "number": 999}
        events.append({**head, "details": details})
    else:
        events.append({"seq": seq + 1, "time_ns": now, "kind": "SCOPE_CREATED", "scope": "x" * 100_000})
    if what != "nan":
        path = written(tmp_path, "e.jsonl", "".join(json.dumps(event) + "\n" for event in events))
    with in_time(), pytest.raises(ConfigError, match=r"(r.rec|e.jsonl):\d+: .*(NaN|expected)"):
        SavedRun.from_file(path)


# Files of moderate size that cost the square of it


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"tasks": [{' + "".join(f'"k{n}": 1, ' for n in range(200_000)) + '"x": 1, "x": 2}]}', "twice"),
        ('{"tasks": [{"x": 1, "x": 2}], "' + "k" * 100_000 + '": [' + "[], " * 100_000 + "[]]}", "twice"),
        ('{"' + ".".join("a" * 200_000) + '": 1}', "unknown key"),
        ('{"' + "9" * 5_000 + '": 1}', "unknown key"),
        ('{"tasks[' + "9" * 5_000 + ']": 1}', "unknown key"),
    ],
    ids=["keys", "places", "dots", "digits", "index"],
)
def test_a_wide_workload_with_a_mistake_is_refused_at_once(tmp_path, text, told):
    """C0: a key that stands twice among 200,000, or behind long names; keys that look like places."""
    path = written(tmp_path, "w.json", text)
    with in_time(), pytest.raises(ConfigError) as caught:
        Workload.from_file(path)
    assert told in str(caught.value)


def test_finding_the_line_of_a_mistake_takes_little_memory(tmp_path):
    """C0: 240,000 values inside 900 lists, next to an unknown key."""
    inner = ",".join(["1"] * 240_000)
    path = written(tmp_path, "w.json", f'{{"zz": {"[" * 900}{inner}{"]" * 900}}}')
    tracemalloc.start()
    try:
        with in_time(), pytest.raises(ConfigError, match=r"w\.json:1: zz: unknown key"):
            Workload.from_file(path)
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (".".join("a" * 200_000) + " = 1\n", "a key of many parts"),
        ("a = 1\n" + "# long\n" * 100_000, "is larger than 500.0 kB"),
    ],
    ids=["dots", "large"],
)
def test_a_workflow_on_standard_input_has_the_limits_of_a_file(monkeypatch, text, told):
    """G5: whatever its format turns out to be."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    with in_time(), pytest.raises(ConfigError) as caught:
        load("-")
    assert told in str(caught.value)
