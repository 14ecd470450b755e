"""The DevTools page in a real browser, with a live run behind it."""

import http.server
import threading

import pytest

import whywait
from devtools_client import Gate, get, served
from mounting_service import service
from patience import until
from whywait import Authority
from whywait.bridges.jsonl import JsonLines
from whywait.devtools.access import ByToken
from whywait.devtools.runs import LiveRun
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


def test_each_card_has_a_gauge_with_the_tasks_on_it(page):
    """N5, V6: live, with what is free; the panel names every unit and leads to the tasks on it."""
    with served(slots=8, gpus=["24GB", "24GB"], devices={"rig": ["a"]}) as (authority, tools, gate):
        for name in ("lora", "tune"):
            authority.submit(gate, id=name, vram="6GB")
        authority.submit(gate, id="train", gpu=1)
        authority.submit(gate, id="next", gpu=2)
        page.open(tools.url)
        page.view("budget")
        page.shows("12.0 GB of 24.0 GB", "[data-key='gpu 0']")
        page.shows("lora", "[data-key='gpu 0'] .holders")
        page.shows("tune", "[data-key='gpu 0'] .holders")
        page.shows("24.0 GB of 24.0 GB", "[data-key='gpu 1']")
        page.shows("train", "[data-key='gpu 1'] .holders")
        page.shows("0 of 1", "[data-key='rig a']")
        assert not page.js("return document.querySelector('.gauge[data-key=vram]')"), "it is the memory of the cards"
        authority.resize(gpus={"0": "24GB"})
        page.shows("gone", "[data-key='gpu 1']")
        page.view("lanes")
        page.shows("on gpu 1")
        page.click(".pill", "next")
        page.shows("gpu 0: 12.0 GB of 24.0 GB free held by lora", "#panel")
        page.shows("gpu 1: gone held by train", "#panel")
        page.click("#panel .held .link", "train")
        page.shows("on gpu 1", "#panel")
        gate.open()
        assert page.errors() == []


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
        authority._core.note(handle, Kind.TASK_PLACED, place)
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
    page.shows("aborted (cancelled)", "#panel")
    assert handle.outcome == "aborted"


def test_without_the_token_the_page_shows_nothing_and_asks_for_it(farm, page):
    _, tools, _ = farm
    page.open(tools.base_url)
    page.js("sessionStorage.clear()")
    page.open(tools.base_url)
    page.shows("locked", ".status")
    page.shows("needs the token")
    assert "upscale" not in page.text("body")
    unlock = "document.getElementById('token').value = arguments[0]; document.getElementById('unlock').requestSubmit()"
    page.js(unlock, "wrong")
    page.shows("the token is wrong", "#notice")
    page.js(unlock, f"  DevTools: {tools.url}")
    page.shows("live", ".status")
    page.shows("upscale")
    assert page.text("#notice") == ""


@pytest.mark.parametrize("mark", ["#", "?"])
def test_the_token_is_taken_out_of_the_address_and_kept_for_the_tab(farm, page, mark):
    _, tools, _ = farm
    page.open(f"{tools.base_url}{mark}token={tools.token}")
    page.shows("upscale")
    assert tools.token not in page.js("return location.href + document.cookie + JSON.stringify(localStorage)")
    page.driver.refresh()
    page.shows("upscale")
    page.js("sessionStorage.clear()")


def test_what_is_waited_for_is_told_from_who_is_awaited_and_failed_from_cancelled(page):
    with served(slots=2) as (authority, tools, gate):
        first = authority.submit(gate, id="holds-nothing")
        authority.submit(int, id="next", after=[first])
        until(lambda: first.state == "RUNNING")
        authority.submit(int, id="unwanted", after=[first]).cancel()
        bad = authority.submit(int, "x", id="bad")
        bad.exception(10)
        page.open(tools.url)
        page.shows("1 waits for its end", ".card")
        assert "what it holds" not in page.text("body")
        page.shows("1 failed", ".totals")
        page.shows("1 cancelled", ".totals")
        assert page.text("#tabs .badge") == "1"
        page.click(".card", "holds-nothing")
        page.shows("1 waits for its end: next", "#panel")
        page.view("failures")
        page.shows("Cancelled")
        assert page.errors() == []


def test_lanes_and_their_tasks_stand_as_the_api_has_them(page):
    """P2: in the order in which they start, also among those that became READY at the same instant."""
    with served(slots=1) as (authority, tools, gate):
        first = authority.submit(gate, id="first")
        until(lambda: first.state == "RUNNING")
        for scope in ("zebra", "ant"):
            authority.scope(scope)
        paused = [
            authority.get_scope(scope).submit(int, id=f"{scope}-{index}")
            for scope in ("zebra", "ant")
            for index in range(6)
        ]
        for handle in paused:
            handle.pause()
        for handle in reversed(paused):
            handle.resume()
        lanes = get(tools, "/api/lanes")["lanes"]
        expected = [[lane["scope"], *(task["id"] for task in lane["tasks"])] for lane in lanes]
        assert expected[0][:2] == ["ant", "ant-5"]
        page.open(tools.url)
        page.shows("zebra-0")
        shown = page.js(
            """return [...document.querySelectorAll(".lane")].map((lane) => [lane.querySelector("header .name"),
                 ...lane.querySelectorAll(".pill .name")].map((one) => one.textContent))"""
        )
        assert shown == expected


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
    again = authority.devtools(tools.port, announce=False, token=tools.token)
    page.shows("live", ".status")
    page.shows("meanwhile")
    assert page.text("#notice") == ""
    again.close()
    page.shows("disconnected", ".status")
    another = authority.devtools(tools.port, announce=False)
    page.shows("wants another token", "#notice")
    page.shows("train")
    another.close()


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
            page.shows("aborted (cancelled)", "#panel")
            assert handle.outcome == "aborted"
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


def test_light_and_dark_are_both_there_and_remembered(farm, page):
    _, tools, _ = farm
    page.open(tools.url)

    def background():
        return page.js("return getComputedStyle(document.body).backgroundColor")

    first = background()
    page.press("t")
    second = background()
    assert first != second
    page.open(tools.url)
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
        page.shows("error (exception)", "#panel")
        page.view("graph")
        page.click("g.node", "second")
        page.shows("dependency", "#panel")
        assert page.errors() == []


def test_a_file_that_is_no_run_is_refused_in_words(farm, page):
    """V3: what is wrong with it is said, and the live run stays."""
    _, tools, _ = farm
    page.open(tools.url)
    refused = {
        "": "empty",
        '{"a": 1}\nnope\n{"b": 1}': "line 2 is not JSON",
        "[1, 2]": "no events",
        '{"whywait record":1}': "serve",
    }
    for text, said in refused.items():
        drop(page, text)
        page.shows(said, "#notice")
    page.shows("live", ".status")


def test_the_page_works_where_a_host_has_mounted_it(page, tmp_path):
    with service(tmp_path) as served:
        base = f"http://127.0.0.1:{served.port}/whywait/"
        page.open(f"{base}#token={served.token}")
        page.shows("live", ".status")
        page.view("timeline")
        page.until("return document.querySelector('canvas')?.dataset.drawn === '1'")
        asked = page.js("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert [name for name in asked if not name.startswith(base)] == []
        assert page.errors() == []
        streams = "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('snapshots'))"
        page.until(f"return {streams}.length >= 2")
        page.shows("live", ".status")
    page.until("return ['disconnected', 'finished'].includes(whywait.state.status)")  # it ended with the page open


FOREIGN = """<!doctype html><title>evil</title><script>
const target = "http://127.0.0.1:PORT/";
const tries = [];
const attempt = (name, wait) => tries.push(wait.then(() => name + " got through", () => name + " failed"));
const loaded = (element) => new Promise((done, fail) => {
  element.onload = done; element.onerror = fail; document.head.append(element);
});
for (const path of ["", "healthz", "metrics", "api/info", "api/snapshot", "page/icon.svg", "page/main.js"]) {
  attempt(`img ${path}`, loaded(Object.assign(new Image(), { src: target + path })));
  attempt(`script ${path}`, loaded(Object.assign(document.createElement("script"), { src: target + path })));
  attempt(`cors ${path}`, fetch(target + path));
  attempt(`post ${path}`, fetch(target + path, { method: "POST", body: "{}" }));
  fetch(target + path, { mode: "no-cors" }).catch(() => null);
  fetch(target + path, { mode: "no-cors", method: "POST", body: "{}" }).catch(() => null);
}
const source = new EventSource(target + "api/events");
attempt("events", new Promise((done, fail) => Object.assign(source, { onopen: done, onerror: fail })));
Promise.all(tries).then((all) => (window.verdict = all));
</script>"""


def test_no_foreign_website_reaches_the_server_through_the_browser(own_farm, page, monkeypatch):
    """V6: an image, a script, a fetch, a form of another site: all are refused before any handler is reached."""
    _, tools, _ = own_farm
    let_through = []
    check = ByToken.__call__

    def noted(access, scope):
        check(access, scope)
        let_through.append(scope["path"])

    monkeypatch.setattr(ByToken, "__call__", noted)
    evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), foreign_site(tools.port))
    evil.daemon_threads = False  # closing waits for them
    threading.Thread(target=evil.serve_forever).start()
    try:
        for host in ("localhost", "127.0.0.1"):  # another site, and the same site on another port
            page.driver.get("about:blank")
            page.driver.get(f"http://{host}:{evil.server_port}/")
            verdict = page.until("return window.verdict")
            assert [each for each in verdict if "got through" in each] == []
        assert let_through == []
    finally:
        evil.shutdown()
        evil.server_close()
    page.open(tools.url)
    assert "/api/info" in let_through
    page.shows("upscale")


def foreign_site(port):
    class Site(http.server.BaseHTTPRequestHandler):
        timeout = 1  # a connection that the browser opens and never uses

        def do_GET(self):
            body = FOREIGN.replace("PORT", str(port)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Site


def test_nothing_is_asked_of_any_other_server(farm, page):
    _, tools, _ = farm
    page.open(tools.url)
    for view in VIEWS:
        page.view(view)
    asked = page.js("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert asked
    assert [name for name in asked if not name.startswith(tools.base_url)] == []
