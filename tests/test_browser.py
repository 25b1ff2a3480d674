"""Notebooks in a real JupyterLab in a real Chromium: open, run all, move the slider, press play.

    pytest -m browser            SHOTS=some/folder keeps screenshots to look at

Needs a chromium on PATH and the Python package playwright (which drives it; it need not install a browser).
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH")]
playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")

NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
LAB = "labs/lab1"  # the student's: nothing is answered
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()
SECONDS = 1000  # playwright counts in milliseconds
RUN_ALL = 240 * SECONDS
SETTINGS = {
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',  # its pop-up covers a corner
    "notebook-extension/tracker": '{"windowingMode": "none"}',  # or cells off the screen do not exist
}
PROMPTS = "[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(e => e.textContent.trim())"
ERROR = '.jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"]'  # a traceback, or a warning


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab over a copy of the notebooks, cleared, so that old prompts and pictures prove nothing."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "root" / "labs").mkdir(parents=True)
    for name in (*NOTEBOOKS, LAB):
        notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, folder / "root" / f"{name}.ipynb")
    for place, text in SETTINGS.items():
        path = folder / "settings" / "@jupyterlab" / f"{place}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", "--IdentityProvider.token=t", f"--ServerApp.root_dir={folder / 'root'}"]
    command += ["--LabApp.extension_manager=readonly"]
    places = ("JUPYTERLAB_SETTINGS", "JUPYTERLAB_WORKSPACES", "JUPYTER_CONFIG", "JUPYTER_DATA", "JUPYTER_RUNTIME")
    own = {f"{place}_DIR": str(folder / place.split("_")[-1].lower()) for place in places}
    environment = os.environ | own | {"IPYTHONDIR": str(folder / "ipython"), "OMP_WAIT_POLICY": "PASSIVE"}
    log = folder / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        wait_for(f"http://127.0.0.1:{port}/api/status?token=t", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=1)
            return
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not come up:\n{log.read_text()}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=CHROMIUM,
            headless=True,
            args=FLAGS,
            viewport={"width": 1280, "height": 900},
        )
        context.set_default_timeout(60 * SECONDS)
        yield context
        context.close()


@pytest.fixture(scope="module")
def run_page(browser, lab):
    """Opens a notebook and runs all of it, once. Only the last one stays open: a kernel can hold a model."""
    pages = {}

    def page_of(name: str):
        if name not in pages:
            for other in list(pages):
                pages.pop(other).close()
            for session in browser.request.get(f"{lab}/api/sessions?token=t").json():
                browser.request.delete(f"{lab}/api/sessions/{session['id']}?token=t")
            pages[name] = open_and_run(browser, lab, name)
        return pages[name]

    return page_of


def open_and_run(browser, lab: str, name: str):
    page = browser.new_page()
    page.add_locator_handler(page.locator(".jp-Dialog"), lambda dialog: dialog.locator("button.jp-mod-accept").click())
    page.goto(f"{lab}/doc/tree/{name}.ipynb?token=t&reset", wait_until="domcontentloaded")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    # The kernel must be there, not only the page, or the click asks which kernel to take.
    page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()
    for _ in range(4):  # a click while the kernel connects can be lost
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        with contextlib.suppress(playwright.TimeoutError):
            page.wait_for_function(f"{PROMPTS}.some(text => text !== '[ ]:')", timeout=10 * SECONDS)
            break
    done = f"{PROMPTS}.every(text => /^\\[\\d+\\]:$/.test(text))"
    stopped = "false" if name == LAB else f"document.querySelector('{ERROR}')"  # a lab goes on after an error
    page.wait_for_function(f"{stopped} || {done}", timeout=RUN_ALL)
    return page


def keep_shot(page, name: str) -> None:
    if folder := os.environ.get("SHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/{name}.png")


def test_slider_and_play_move_the_picture(run_page):
    page = run_page("00_start_here")
    picture = page.locator(".widget-html svg").first
    picture.scroll_into_view_if_needed()
    first = step_of(picture)
    before = page.screenshot(clip=picture.bounding_box())
    keep_shot(page, "player_before")
    page.locator(".noUi-handle").first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    playwright.expect(picture).to_have_attribute("aria-label", re.compile(f"^Step {first + 3}:"), timeout=30 * SECONDS)
    moved = page.screenshot(clip=picture.bounding_box())
    keep_shot(page, "player_moved")
    assert moved != before, "the words of the picture moved and its pixels did not"
    page.locator(".widget-play button").first.click()
    last = int(re.search(r"of (\d+)", picture.text_content()).group(1))
    playwright.expect(picture).to_have_attribute("aria-label", re.compile(f"^Step {last}:"), timeout=30 * SECONDS)
    assert page.screenshot(clip=picture.bounding_box()) != moved
    keep_shot(page, "player_end")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_without_an_error(run_page, name):
    page = run_page(name)
    errors = page.locator(ERROR)
    assert errors.count() == 0, errors.first.inner_text()
    assert page.locator(".jp-OutputArea-output img").count()
    keep_shot(page, name)


def test_a_lab_runs_to_its_end_and_says_what_is_missing(run_page):
    """Every graded cell in one line, and "Run All" did not stop at the first of them."""
    page = run_page(LAB)
    lab = nbformat.read(ROOT / "notebooks" / f"{LAB}.ipynb", as_version=4)
    code = [cell for cell in lab.cells if cell.cell_type == "code"]
    shown = page.locator(".jp-CodeCell").all()
    assert len(shown) == len(code)
    for cell, seen in zip(code, shown):
        if cell.metadata.nbgrader.grade:
            assert seen.locator(ERROR).inner_text().startswith("NOT YET: "), cell.source
    others = [text for text in page.locator(ERROR).all_inner_texts() if not text.startswith("NOT YET: ")]
    assert all(re.search("NotImplementedError|NameError", text) for text in others), others  # or its consequence
    keep_shot(page, LAB.replace("/", "_"))


def step_of(picture) -> int:
    return int(re.match(r"Step (\d+):", picture.get_attribute("aria-label")).group(1))
