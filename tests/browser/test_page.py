"""The DevTools page in a real browser, with a live run behind it."""

import pytest

import whywait
from devtools_client import Gate, get, served
from whywait import Authority
from whywait.bridges.jsonl import JsonLines
from whywait.devtools.run import LiveRun
from whywait.devtools.saved import SavedRun
from whywait.devtools.server import DevTools
from whywait.engines.thread import ThreadEngine
from whywait.kernel.events import Kind
from whywait.kernel.reasons import Placement, Shortage

pytestmark = pytest.mark.browser

VIEWS = ("lanes", "timeline", "graph", "budget", "periodics", "failures", "scopes")
SHOWN = {
    "lanes": ("Running", "train", "vram", "held by train", "upscale", "Not ready yet", "after upscale", "sweep-0"),
    "timeline": ("follow",),
    "graph": ("upscale", "pack", "victim"),
    "budget": ("vram", "soft", "4.5 GB of 6.0 GB", "slots", "hard"),
    "periodics": ("batch/sample", "on", "50 ms"),
    "failures": ("broken", "exception", "given up after 2 attempts", "took down 1: victim"),
    "scopes": ("render", "batch", "running", "suspend"),
}


def test_v6_every_view_shows_the_live_run(farm, page):
    """V6: what runs, what waits, why, in which lane, behind whom; in every view, without a complaint of the browser."""
    _, tools, _ = farm
    page.open(tools.url)
    for view in VIEWS:
        page.view(view)
        for text in SHOWN[view]:
            page.shows(text)
    page.view("timeline")
    page.until("return Number(document.querySelector('canvas').dataset.drawn) >= 3")
    assert page.js("return location.hash") == "#timeline", "the token does not stay in the address"
    assert page.errors() == []


def test_the_why_of_a_waiting_task_names_its_holder_and_leads_there(farm, page):
    _, tools, _ = farm
    page.open(tools.url)
    page.click(".pill", "upscale")
    page.shows("Waits for vram", "#panel")
    page.shows("needs 4.0 GB, 1.5 GB of 6.0 GB free", "#panel")
    page.shows("held by train", "#panel")
    page.shows("2.5 GB more vram is free", "#panel")
    page.shows("submitted", "#panel .story")
    page.click("#panel .held .link", "train")
    page.shows("Running since", "#panel")
    page.shows("waits for what it holds: upscale", "#panel")
    page.click(".line", "pack")
    page.shows("waits for upscale ready, which waits for vram train", "#panel .held")


def test_the_panel_tells_the_cadence_of_a_stream(page):
    with served() as (authority, tools, gate):

        def body():
            for index in range(5):
                whywait.current().emit(index)
            gate()

        authority.submit(body, id="talker")
        page.open(tools.url)
        page.click(".card", "talker")
        page.shows("5 chunks", "#panel")
        page.shows("one every", "#panel")
        gate.open()
        page.shows("closed", "#panel")


class Far(ThreadEngine):
    """Threads that pretend to be a cluster."""

    name = "far"

    def placement(self, handle):
        return Placement(self.name, missing=(Shortage("gpu", 1, 2, 0),))


def test_a_task_on_a_cluster_shows_what_it_waits_for_there_and_where_it_runs(page):
    """V6: permitted is not placed; then node, machine and process."""
    with served(engine=Far()) as (authority, tools, gate):
        handle = authority.submit(gate, id="train")
        page.open(tools.url)
        page.click(".card", "train")
        page.shows("Permitted, waits for far to place it since", "#panel")
        page.shows("far has too little free: it needs 1 gpu, and the node that comes closest has 0", "#panel")
        place = (("engine", "far"), ("node", "ab12"), ("machine", "deep"), ("pid", 7))
        authority.note(handle, Kind.TASK_PLACED, place)
        page.shows("Running since", "#panel")
        page.shows("far runs it on deep (ab12), process 7", "#panel")
        page.shows("on deep (ab12)", ".card")
        assert get(tools, "/api/tasks")["tasks"][0]["place"] == dict(place)
        gate.open()
        page.shows("far ran it on deep (ab12), process 7", "#panel")


def test_a_task_is_paused_resumed_and_cancelled_from_its_panel(own_farm, page):
    authority, tools, _ = own_farm
    page.open(tools.url)
    page.click(".pill", "upscale")
    page.click("#panel [data-act=pause]")
    page.shows("paused", "#panel .state")
    assert authority.get("upscale").state == "PAUSED"
    page.click("#panel [data-act=resume]")
    page.until("return document.querySelector('#panel [data-act=pause]') !== null")
    handle = authority.get("upscale")
    page.click("#panel [data-act=cancel]")
    page.shows("ABORTED (cancelled)", "#panel")
    assert handle.outcome == "ABORTED"


def test_without_the_token_the_page_only_shows(farm, page):
    _, tools, _ = farm
    page.open(tools.base_url)
    page.js("sessionStorage.clear()")
    page.open(tools.base_url)
    page.click(".pill", "upscale")
    page.shows("held by train", "#panel")
    assert page.js("return document.querySelectorAll('[data-act]').length") == 0


def test_switching_a_periodic_takes_effect(own_farm, page):
    authority, tools, _ = own_farm
    page.open(tools.url)
    page.view("periodics")
    page.click(".switch[aria-checked=true]")
    page.until("return document.querySelector('.switch').getAttribute('aria-checked') === 'false'")
    assert [periodic.enabled for periodic in authority.snapshot().periodics] == [False]
    page.click(".switch")
    page.until("return document.querySelector('.switch').getAttribute('aria-checked') === 'true'")
    assert [periodic.enabled for periodic in authority.snapshot().periodics] == [True]


def test_a_scope_is_suspended_and_resumed(own_farm, page):
    authority, tools, _ = own_farm
    page.open(tools.url)
    page.view("scopes")
    page.click("[data-scope=batch][data-verb=suspend]")
    page.shows("suspended")
    assert authority.get_scope("batch").state == "SUSPENDED"
    page.click("[data-scope=batch][data-verb=resume]")
    page.until("return !document.getElementById('main').innerText.includes('suspended')")


def test_the_page_reconnects_after_the_server_was_gone(own_farm, page):
    authority, tools, _ = own_farm
    page.open(tools.url)
    tools.close()
    page.shows("disconnected", ".status")
    page.shows("does not answer", "#notice")
    page.shows("train")
    authority.submit(int, id="meanwhile", priority="low")
    again = authority.devtools(tools.port, announce=False)
    page.shows("live", ".status")
    page.shows("meanwhile")
    assert page.text("#notice") == ""
    again.close()


def test_the_end_of_the_run_is_told_from_a_lost_server(page):
    authority = Authority()
    tools = authority.devtools(announce=False)
    page.open(tools.url)
    page.shows("No tasks yet")
    authority.submit(int, id="only").result(10)
    authority.dispose()
    page.shows("finished", ".status")
    page.shows("The run is over", "#notice")
    page.view("timeline")
    page.until("return document.querySelector('canvas').dataset.drawn === '1'")


def test_a_view_with_nothing_to_show_says_so(page):
    with served(slots=None) as (_, tools, _):
        page.open(tools.url)
        for view in VIEWS:
            page.view(view)
            page.until("return document.querySelector('#main .empty, #main table, #main .gauge') !== null")
        assert page.errors() == []


def test_a_finished_run_that_is_still_served_is_shown_to_who_comes_late(page):
    gate = Gate()
    authority = Authority(slots=1)
    with DevTools(LiveRun(authority, "over", control=True)) as tools:
        first = authority.scope("render").submit(gate, id="first")
        authority.submit(int, id="second", after=[first])
        gate.open()
        authority.get_scope("default").wait()
        authority.dispose()
        tools.finish()
        page.open(tools.url)
        page.shows("finished", ".status")
        page.shows("2 succeeded", "#bar")
        page.shows("Where the waiting went")
        page.shows("second", "[data-key=longest]")
        page.view("scopes")
        page.shows("render")
        page.view("timeline")
        page.until("return document.querySelector('canvas').dataset.drawn === '2'")
        page.view("graph")
        page.click("g.node", "second")
        page.shows("It succeeded", "#panel")
        assert page.js("return document.querySelectorAll('[data-act]').length") == 0
        assert page.errors() == []


def test_a_task_with_an_odd_id_is_found_and_told_of(page):
    """Ids that mean something in an address or a number are only ids; also in the panel and for its buttons."""
    with served(slots=1) as (authority, tools, gate):
        authority.submit(gate, id="first")
        gate.running.wait(10)
        for index, name in enumerate(("1", "a\nb", "x/cancel", "?#%2F", " ", "..")):
            handle = authority.submit(int, id=name, priority=index)
            page.open(tools.url)
            page.js("whywait.choose(arguments[0])", handle.ref.number)
            page.shows("Waits for", "#panel")
            assert page.js("return document.querySelector('#panel h2').textContent") == name
            page.click("#panel [data-act=cancel]")
            page.shows("ABORTED (cancelled)", "#panel")
            assert handle.outcome == "ABORTED"
        assert page.errors() == []


def test_the_view_is_kept_over_a_reload(farm, page):
    _, tools, _ = farm
    page.open(tools.url)
    page.view("budget")
    page.driver.refresh()
    page.until("return document.getElementById('main').dataset.view === 'budget'")
    page.shows("vram")


HOSTILE = (
    '<img src=x onerror="window.hacked=1">',
    '"><script>window.hacked=2</script>',
    "javascript:window.hacked=3",
    "{{7*7}} ${7*7} &lt;b&gt;",
    "\u202egnp.exe " + "long " * 60,
    "__proto__",
)


def test_a_hostile_name_is_only_a_name(page):
    with served(slots=1) as (authority, tools, gate):
        scope = authority.scope(HOSTILE[0])
        first = scope.submit(gate, id="first")
        for name in HOSTILE:
            scope.submit(int, id=name, after=[first])
            scope.submit(int, id=f"ready {name}")
        authority.scope(HOSTILE[1]).periodic(int, every=60, id=HOSTILE[2])
        page.open(tools.url)
        for view in VIEWS:
            page.view(view)
        page.view("lanes")
        page.shows(HOSTILE[0])
        page.click(".pill", "ready <img")
        page.shows(HOSTILE[0], "#panel h2")
        page.js("document.getElementById('search').value = '<img'")
        page.js("document.getElementById('search').dispatchEvent(new Event('input', { bubbles: true }))")
        page.shows(HOSTILE[0], "#found")
        assert page.js("return window.hacked") is None
        assert page.js("return document.querySelectorAll('#main img, #panel img, #found img').length") == 0
        assert page.errors() == []


LOOKED_AT = "return document.querySelector('canvas').dataset.looked.split(' ').map(Number)"


def test_ten_thousand_tasks_are_drawn_and_move(page):
    with served(slots=4, events=100_000) as (authority, tools, _):
        for index in range(10_000):
            authority.submit(int, id=f"task-{index}", priority=index % 5 * 20)
        authority.get_scope("default").wait()
        page.open(tools.url)
        page.until("return whywait.store.tasks.size >= 10000")
        page.view("timeline")
        page.until("return Number(document.querySelector('canvas').dataset.drawn) >= 10000")
        slots, most = page.js(LOOKED_AT), page.js("return 2 * document.querySelector('canvas').clientWidth + 2")
        assert max(slots) <= most, "what one frame costs is bounded by the pixels, not by the tasks"
        before = page.js("return document.querySelector('canvas').toDataURL()")
        page.click("[data-zoom=in]")
        page.js("document.querySelector('canvas').focus()")
        for key in ("ArrowLeft", "+", "ArrowRight", "-"):
            page.press(key)
        page.until("return document.querySelector('canvas').toDataURL() !== arguments[0]", before)
        for _ in range(12):
            page.press("+")
        page.until("return document.querySelector('canvas').dataset.looked.split(' ').every((each) => each < 50)")
        page.view("graph")
        page.view("failures")
        page.shows("No failures")
        assert page.errors() == []


def test_the_store_folds_events_as_the_server_does(own_farm, page):
    """The rows of page/store.js equal those of devtools/table.py, from rows and events and from events alone."""
    authority, tools, gate = own_farm
    page.open(tools.url)
    authority.submit(int, id="late").cancel()
    authority.set_periodic_enabled("batch/sample", False)
    gate.open()
    authority.get_scope("default").wait()
    authority.get("asleep").resume()
    authority.get_scope("render").wait()
    authority.get_scope("batch").wait()
    rows = {row["number"]: row for row in get(tools, "/api/tasks?limit=1000")["tasks"]}
    last = get(tools, "/api/info")["seq"]
    page.until("return whywait.store.seq >= arguments[0]", last)
    events = get(tools, "/api/events?limit=1000")["events"]
    fields = list(next(iter(rows.values())).keys() - {"waits_for", "seq"})
    live, folded = page.driver.execute_async_script(
        """const [events, fields, done] = arguments;
           import("/page/store.js").then(({ Store }) => {
             const fresh = new Store();
             for (const event of events) fresh.apply(event);
             const row = (task) => Object.fromEntries(fields.map((name) => [name, task[name]]));
             const rows = (store) => [...store.tasks.values()].map(row);
             done([rows(whywait.store), rows(fresh)]);
           });""",
        events, fields,
    )  # fmt: skip
    expected = [{name: row[name] for name in fields} for _, row in sorted(rows.items())]
    assert sorted(live, key=lambda row: row["number"]) == expected
    assert sorted(folded, key=lambda row: row["number"]) == expected


def test_light_and_dark_are_both_there_and_remembered(farm, page):
    _, tools, _ = farm
    page.open(tools.url)

    def background():
        return page.js("return getComputedStyle(document.body).backgroundColor")

    first = background()
    page.press("t")
    second = background()
    assert first != second
    page.open(tools.base_url)
    assert background() == second
    page.js("localStorage.clear()")
    for scheme in ("dark", "light"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        page.open(tools.base_url)
        light = page.js(
            "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((part) => part > 200)"
        )
        assert light == (scheme == "light")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("width", [1280, 400])
def test_no_view_is_wider_than_the_window(farm, page, width):
    _, tools, _ = farm
    page.size(width, 800)
    page.open(tools.url)
    for view in VIEWS:
        page.view(view)
        assert page.js("return document.documentElement.scrollWidth") <= width, view
    page.view("lanes")
    page.click(".pill", "upscale")
    page.shows("held by train", "#panel")
    assert page.js("return document.documentElement.scrollWidth") <= width


def test_everything_is_reached_by_keys(farm, page):
    _, tools, _ = farm
    page.open(tools.url)
    for index, view in enumerate(VIEWS, 1):
        page.press(str(index))
        page.until("return document.getElementById('main').dataset.view === arguments[0]", view)
    page.press("2")
    for key, follows in (("ArrowLeft", "false"), ("0", "true")):
        page.press(key)
        page.until("return document.querySelector('[data-zoom=follow]').ariaPressed === arguments[0]", follows)
    for view in ("3", "1"):
        page.press(view)
        page.press("j")
        page.press("j")
        page.until("return document.activeElement.matches('.item')")
        page.js("document.activeElement.blur()")
    page.press("/")
    page.until("return document.activeElement.id === 'search'")
    page.js("document.getElementById('search').value = 'upsc'")
    page.js("document.getElementById('search').dispatchEvent(new Event('input', { bubbles: true }))")
    page.shows("upscale", "#found")
    page.press("Enter")
    page.shows("held by train", "#panel")
    page.press("Escape")
    page.press("Escape")
    page.js("document.activeElement.blur()")
    page.press("Escape")
    page.until("return document.getElementById('panel').hidden")
    page.press("?")
    page.shows("search", "#overlay")
    page.press("Escape")
    page.until("return document.getElementById('overlay').hidden")


def test_freeze_holds_the_picture_while_the_run_goes_on(own_farm, page):
    authority, tools, _ = own_farm
    page.open(tools.url)
    page.press("f")
    page.shows("frozen", ".status")
    authority.submit(int, id="newcomer", priority="low")
    page.until("return [...whywait.store.tasks.values()].some((task) => task.id === 'newcomer')")
    assert "newcomer" not in page.text()
    page.press("f")
    page.shows("newcomer")


def test_a_chosen_task_lights_up_its_neighbours_in_the_graph(farm, page):
    _, tools, _ = farm
    page.open(tools.url)
    page.view("graph")
    page.click("g.node", "pack")
    page.until("return document.querySelector('g.node.up')?.textContent.includes('upscale')")
    page.shows("1 upstream, 0 downstream of pack")


def test_a_large_graph_is_folded_by_name(page):
    with served(slots=1) as (authority, tools, gate):
        first = authority.submit(gate, id="fetch")
        frames = [authority.submit(int, id=f"frame-{index}", after=[first]) for index in range(200)]
        authority.submit(int, id="movie", after=frames)
        page.open(tools.url)
        page.view("graph")
        page.until("return document.querySelectorAll('g.node').length === 3")
        page.shows("\u00d7200")
        page.click("g.node[data-fold]")
        page.until("return document.querySelectorAll('g.node').length === 202")


def drop(page, text):
    """Let a file fall onto the page."""
    page.js(
        """const dataTransfer = new DataTransfer();
           dataTransfer.items.add(new File([arguments[0]], "run.jsonl"));
           document.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }))""",
        text,
    )


def record(path):
    gate = Gate()
    with Authority(slots=1) as authority, JsonLines(authority, path):
        first = authority.submit(gate, id="first", vram="1GB")
        gate.running.wait(10)
        authority.submit(int, id="second", after=[first])
        bad = authority.submit(int, "x", id="bad")
        gate.open()
        bad.exception(10)
        authority.get_scope("default").wait()


@pytest.mark.parametrize("how", ["served", "dropped"])
def test_a_saved_run_opens_in_the_same_page(page, tmp_path, how):
    path = tmp_path / "run.jsonl"
    record(path)
    with DevTools(SavedRun.from_file(path)) as tools:
        page.open(tools.url)
        if how == "dropped":
            drop(page, path.read_text())
        page.shows("saved run", ".status")
        page.view("timeline")
        page.until("return document.querySelector('canvas')?.dataset.drawn === '3'")
        page.view("scopes")
        page.shows("default")
        page.view("failures")
        page.shows("bad")
        page.click(".item", "bad")
        page.shows("ERROR (exception)", "#panel")
        page.view("graph")
        page.click("g.node", "second")
        page.shows("dependency", "#panel")
        assert page.errors() == []


def test_a_file_that_is_no_run_is_refused_in_words(farm, page):
    _, tools, _ = farm
    page.open(tools.url)
    refused = {
        "": "empty",
        '{"a": 1}\nnope': "line 2 is not JSON",
        "[1, 2]": "no events",
        '{"whywait record":1}': "serve",
    }
    for text, said in refused.items():
        drop(page, text)
        page.shows(said, "#notice")
    page.shows("live", ".status")


def test_nothing_is_asked_of_any_other_server(farm, page):
    _, tools, _ = farm
    page.open(tools.url)
    for view in VIEWS:
        page.view(view)
    asked = page.js("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert asked
    assert [name for name in asked if not name.startswith(tools.base_url)] == []
