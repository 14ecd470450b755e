"""A real Chromium, driven by its own driver, and a run to look at."""

import shutil
import threading
import time

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from devtools_client import served
from whywait import Authority

PATIENCE_S = 20
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --window-size=1280,900"
).split()


class Page:
    """The page in the browser: what a reader sees and does."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, url):
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(url)
        self.until("return window.whywait !== undefined && whywait.state.status !== 'connecting'")

    def js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def until(self, script, *args):
        """Wait until a script returns something true, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            value = self.js(script, *args)
            if value:
                return value
            assert time.monotonic() < deadline, f"not so in time: {script}\n{self.text('body')}"
            time.sleep(0.05)

    def text(self, selector="#main"):
        return self.js("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def shows(self, text, selector="#main"):
        """Wait until an element shows a text."""
        self.until("return document.querySelector(arguments[0])?.innerText.includes(arguments[1])", selector, text)

    def click(self, selector, text=None):
        """Click the first element, of those with a text if one is given, as soon as it is there."""
        self.until(
            """const found = [...document.querySelectorAll(arguments[0])]
                 .find((one) => arguments[1] === null || one.textContent.includes(arguments[1]));
               if (found) found.dispatchEvent(new MouseEvent("click", { bubbles: true }));
               return Boolean(found)""",
            selector, text,
        )  # fmt: skip

    def view(self, name):
        self.click(f"#tabs [data-view={name}]")
        self.until("return document.getElementById('main').dataset.view === arguments[0]", name)

    def press(self, key, selector="body"):
        self.js(
            """const target = document.querySelector(arguments[1]);
               (document.activeElement !== document.body ? document.activeElement : target)
                 .dispatchEvent(
                   new KeyboardEvent("keydown", { key: arguments[0], bubbles: true, cancelable: true }))""",
            key, selector,
        )  # fmt: skip

    def size(self, width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def errors(self):
        """What the browser complained about since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for path in map(shutil.which, names) if path), None)
    engine = shutil.which("chromedriver")
    if browser is None or engine is None:
        pytest.fail("no Chromium with its driver is installed: run tools/install_browser.sh")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(engine))
    yield driver
    driver.quit()


@pytest.fixture
def page(driver):
    page = Page(driver)
    page.size(1280, 900)
    yield page
    driver.get("about:blank")


@pytest.fixture(scope="module")
def farm():
    """The same for all tests that only look at it."""
    yield from make_farm()


@pytest.fixture
def own_farm():
    """One to change."""
    yield from make_farm()


def make_farm():
    """Two slots, one held: tasks that run, wait for vram, for a slot, for each other, have failed, are periodic."""
    with served(slots=2, vram="6GB", starvation_timeout=0.2) as (authority, tools, gate):
        fill(authority, gate)
        yield authority, tools, gate


def broken(known):
    known.wait(PATIENCE_S)
    raise OSError


def fill(authority: Authority, gate) -> None:
    render, batch = authority.scope("render"), authority.scope("batch", slots=1)
    batch.periodic(int, every=0.05, id="sample")
    authority.submit(gate, id="train", vram="4.5GB")
    gate.running.wait(PATIENCE_S)
    upscale = render.submit(str.upper, "x", id="upscale", vram="4GB", priority="high")
    render.submit(str.lower, upscale, id="pack")
    known = threading.Event()
    bad = batch.submit(broken, known, id="broken", retry=1)
    batch.submit(int, bad, id="victim")
    known.set()
    bad.exception(PATIENCE_S)
    batch.submit(gate, id="hold-batch")
    for index in range(4):
        batch.submit(int, id=f"sweep-{index}", priority="background")
    render.submit(int, id="asleep").pause()
