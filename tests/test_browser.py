"""The real TensorBoard, in a real browser, on a run of the example."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).parents[1]
ARTEFACTS = ROOT / "tests" / "artefacts"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
GROUPS = ("global_step", "gradients", "learning_rate", "loss", "test")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"found none of {', '.join(BROWSERS)}")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    example = [sys.executable, ROOT / "examples" / "digits_jax.py"]
    subprocess.run([*example, "--dir", path / "digits", "--steps", "301"], check=True)
    return path


@pytest.fixture(scope="module")
def board(run_dir):
    """The address of a TensorBoard on the run."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", run_dir]
    with subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", "0"], stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            lines = iter(server.stderr.readline, "")
            found = filter(None, (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in lines))
            yield next(found).group()
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def page(board):
    """TensorBoard's first page with every group of cards open, kept as a picture."""
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        # So tall that all cards are in view: TensorBoard draws no others.
        page = browser.new_page(viewport={"width": 1400, "height": 3200})
        page.goto(board)
        expect(page.locator("button.group-toolbar")).to_have_count(len(GROUPS))
        closed = page.locator("button.group-toolbar:has([svgicon=expand_more_24px])")
        while closed.count():
            closed.first.click()
        yield page
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / "tensorboard.png")
        browser.close()


def card(page, kind, tag):
    return page.locator(f"{kind}-card:has([title='{tag}'])")


@pytest.mark.parametrize("tag", ["loss", "learning_rate", "test/accuracy", "global_step/sec"])
def test_scalar_chart_is_drawn(page, tag):
    chart = card(page, "scalar", tag)
    expect(chart.locator("line-chart canvas")).to_be_visible()
    expect(chart.locator("tb-data-table-content-row")).to_contain_text("301")


@pytest.mark.parametrize("layer", ["conv1", "conv2", "dense"])
def test_histograms_are_drawn_one_behind_the_other(page, layer):
    drawn = card(page, "histogram", f"gradients/{layer}").locator(".histogram path")
    expect(drawn).to_have_count(7)


def test_misread_digit_is_shown(page):
    image = card(page, "image", "test/misread/image/0").locator("img")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 64
