"""The page figures/player.html, and pages of other runs, in a real Chromium from file://: press play, use the keys.

    pytest -m browser tests/test_browser_player.py            SHOTS=some/folder keeps screenshots to look at

Needs a chromium on PATH and the Python package playwright (which drives it; it need not install a browser).
"""

import os
import re
import shutil
from pathlib import Path

import pytest
from helpers import request, serve

from minibatch.commands.five_ways import served
from minibatch.memory import PagedMemory
from minibatch.plot import player_page
from minibatch.plot.words import step_words
from minibatch.schedulers import IterationScheduler

PAGE = Path(__file__).resolve().parents[1] / "figures" / "player.html"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH")]
playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """Opens a file; at the end, there must have been no error and no request for anything but files."""
    opened, wrong = [], []

    def open_one(path: Path, size=(1280, 720), mark="", **options):
        context = browser.new_context(viewport=dict(zip(("width", "height"), size)), **options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda asked: None if asked.url.startswith("file:") else wrong.append(asked.url))
        page.goto(f"{path.as_uri()}{mark}")
        opened.append(context)
        return page

    yield open_one
    for context in opened:
        context.close()
    assert wrong == []


def keep_shot(page, name: str) -> None:
    if folder := os.environ.get("SHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def said(page) -> str:
    return page.locator("output").inner_text()


def labels(page) -> list[str]:
    return [one.get_attribute("aria-label") for one in page.locator("svg[role=img]").all()]


def test_it_opens_on_the_whole_run_and_waits(open_page):
    page = open_page(PAGE)
    assert said(page) == "84 s of 84 s" and page.locator("svg[role=img]").count() == 5
    assert page.locator("h2").all_inner_texts() == ["static", "dynamic", "iteration-level", "chunked", "paged"]
    page.wait_for_timeout(300)
    assert said(page) == "84 s of 84 s" and page.locator("#play").inner_text() == "Play"
    keep_shot(page, "five_ways_end")


def test_arrow_keys_home_and_end(open_page):
    page = open_page(PAGE)
    page.keyboard.press("Home")
    assert said(page) == "1 s of 84 s"
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert said(page) == "13 s of 84 s"
    words = "slot 0 decodes A, slot 1 is dead (B), slot 2 decodes C, slot 3 decodes D; 5 waiting"
    assert labels(page)[0] == f"static. At 13 s, step 7: {words}"
    keep_shot(page, "five_ways_13")
    page.locator("#slider").focus()  # the slider itself takes one step a key, not two
    page.keyboard.press("ArrowRight")
    assert said(page) == "14 s of 84 s" and page.locator("#slider").input_value() == "13"
    page.keyboard.press("End")
    assert said(page) == "84 s of 84 s"


@pytest.mark.parametrize("press", ["button", "space", "space on the button"])
def test_play_runs_to_the_end_and_pause_holds(open_page, press):
    page = open_page(PAGE)
    page.locator("#speed").select_option("20")
    page.evaluate("document.activeElement.blur()")
    if press == "space on the button":
        page.locator("#play").focus()
    toggle = page.locator("#play").click if press == "button" else lambda: page.keyboard.press(" ")
    toggle()
    playwright.expect(page.locator("output")).to_have_text(re.compile(r"^[5-9] s"))
    assert page.locator("#play").inner_text() == "Pause"
    toggle()
    held = said(page)
    assert page.locator("#play").inner_text() == "Play" and int(held.split()[0]) < 84
    page.wait_for_timeout(300)
    assert said(page) == held
    toggle()
    playwright.expect(page.locator("output")).to_have_text("84 s of 84 s")
    playwright.expect(page.locator("#play")).to_have_text("Play")


def test_the_address_says_where_it_opens_and_a_click_where_it_goes(open_page):
    page = open_page(PAGE, mark="#30")
    assert said(page) == "30 s of 84 s"
    before = page.screenshot()
    box = page.locator("svg[role=img]").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.15, box["y"] + 20)
    assert int(said(page).split()[0]) < 15
    assert page.screenshot() != before


def test_a_run_can_be_put_away(open_page):
    page = open_page(PAGE)
    page.get_by_role("checkbox", name="dynamic").uncheck()
    assert page.locator("svg[role=img]:visible").count() == 4
    page.get_by_role("checkbox", name="dynamic").check()
    assert page.locator("svg[role=img]:visible").count() == 5


@pytest.mark.parametrize("size, least", [((1280, 720), 18), ((1024, 700), 15), ((1920, 1080), 27)])
def test_text_is_large_and_nothing_runs_off_the_side(open_page, size, least):
    page = open_page(PAGE, size, color_scheme="dark")
    sizes = page.evaluate("[...document.querySelectorAll('svg[role=img] text')].map(e => +e.getAttribute('font-size'))")
    assert min(sizes) >= least and len(sizes) > 50
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    outside = """[...document.querySelectorAll('svg[role=img] text')].filter(e => {
        const a = e.getBoundingClientRect(), b = e.ownerSVGElement.getBoundingClientRect();
        return a.left < b.left || a.right > b.right + 1 || a.bottom > b.bottom + 4; }).map(e => e.textContent)"""
    for _ in range(20):
        assert page.evaluate(outside) == []
        for _ in range(4):
            page.keyboard.press("ArrowLeft")
    keep_shot(page, f"five_ways_{size[0]}_dark")


def test_the_words_are_those_of_the_notebooks(open_page, tmp_path):
    """The script and `step_words` say the same of every step, preemptions included."""
    requests = [request(f"R{i}", 9, prompt=8, arrival=i) for i in range(3)]
    paged = serve(IterationScheduler(4, PagedMemory(6, 4)), requests)
    assert any(step.preempted for step in paged.steps)
    for name, trace in {"paged": paged, "static": served()["static"]}.items():
        path = tmp_path / f"{name}.html"
        path.write_text(player_page(trace), encoding="utf-8")
        page = open_page(path, mark="#1")
        for step in range(1, len(trace.steps) + 1):
            assert labels(page) == [step_words(trace, step)]
            page.keyboard.press("ArrowRight")
        keep_shot(page, f"player_{name}")


def test_a_short_run_beside_a_long_one_says_that_it_has_ended(open_page, tmp_path):
    runs = {name: trace for name, trace in served().items() if name in ("static", "paged")}
    path = tmp_path / "two.html"
    path.write_text(player_page(runs), encoding="utf-8")
    page = open_page(path)
    assert labels(page)[1] == "paged. Step 50: nothing runs, the last step was 32"
    assert "ended after 32 steps" in page.locator("section").nth(1).inner_text()
