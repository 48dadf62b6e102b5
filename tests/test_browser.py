"""The real TensorBoard, in a real browser: a run that has a value of every kind."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

import runhooks as rh
from runhooks.summary import FileWriter, Margin

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
LINES = "vz-line-chart2 path[d*=L]"  # not the marks of the points
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"found none of {', '.join(BROWSERS)}"),
]


# As for those who have no TensorFlow: to import it would take longer than to draw.
BOARD = """
import sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard import main
main.run_main()
"""


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """The address of a TensorBoard on a run that has a value of every kind."""
    path = tmp_path_factory.mktemp("kinds")
    write_every_kind(path)
    command = [sys.executable, "-c", BOARD, "--logdir", path, "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stderr.readline, "")
            found = filter(None, (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in lines))
            yield next(found).group()
        finally:
            server.terminate()


def write_every_kind(path):
    rng = np.random.default_rng(0)
    sine = np.sin(np.arange(4000) / 10)
    graph = rh.Graph()
    with graph.as_default():
        rh.call(np.sin, rh.placeholder("angle"), name="height")
    with FileWriter(path) as writer:
        writer.graph(graph)
        for step in range(3):
            writer.scalars({"loss": 2.0 - step, "low": 1.0 - step, "high": 3.0 - step}, step)
            writer.histogram("weights", [*rng.normal(size=1000), np.nan, np.inf], step)
            writer.image("photo", rng.uniform(size=(3, 16, 24)), step, "CHW")
            writer.image("photos", rng.uniform(size=(2, 16, 24, 3)), step)
            writer.audio("beep", sine, step, 8000)
            writer.audio("beeps", np.stack([sine, -sine])[..., None], step, 8000)
            writer.text("note", f"**step {step}**", step)
            writer.text("table", [["one", "two"], ["three", "four"]], step)
            writer.tensor("matrix", np.eye(3), step)
            writer.pr_curve("digit", rng.random(100) > 0.5, rng.random(100), step)
            colors = rng.integers(0, 256, (8, 3))
            writer.mesh("cube", rng.normal(size=(8, 3)), step, colors, rng.integers(0, 8, (12, 3)))
        writer.hparams({"rate": 0.125, "optimizer": "adam"}, {"accuracy": 0.75}, 2)
        charts = {"lines": ["loss", "low"], "band": Margin("loss", "low", "high")}
        writer.custom_scalars({"my charts": charts})


@pytest.fixture(scope="module")
def tab(board):
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1800})
        page.goto(board)
        yield page
        browser.close()


@pytest.fixture
def open_page(tab, board, request):
    """Opens a page of TensorBoard, such as ``"audio"``; it is kept as a picture."""
    opened = []

    def open_page(plugin):
        opened.append(plugin)
        tab.goto(f"{board}#{plugin}")  # what is loaded stays
        return tab

    yield open_page
    ARTEFACTS.mkdir(exist_ok=True)
    for plugin in opened:
        tab.screenshot(path=ARTEFACTS / f"tensorboard_{plugin}.png")


def test_the_first_page_shows_curves_histograms_and_images(open_page):
    page = open_page("timeseries")
    closed = page.locator("button.group-toolbar:has([svgicon=expand_more_24px])")
    expect(page.locator("button.group-toolbar").first).to_be_visible()
    while closed.count():
        closed.first.click()
    for kind, tag in (("scalar", "loss"), ("histogram", "weights"), ("image", "photo")):
        expect(page.locator(f"{kind}-card:has([title='{tag}'])")).to_be_visible()
    chart = page.locator("scalar-card:has([title='loss'])")
    expect(chart.locator("line-chart canvas")).to_be_visible()
    expect(chart.locator("tb-data-table-content-row")).to_contain_text("2")


def test_histograms_of_what_is_not_finite_are_drawn(open_page):
    page = open_page("histograms")
    expect(page.locator("vz-histogram-timeseries .histogram path")).to_have_count(3)


def test_an_image_and_a_batch_are_shown(open_page):
    images = open_page("images").locator("tf-image-loader img")
    expect(images).to_have_count(3)
    for index in range(3):
        decoded = "image => image.decode().then(() => [image.naturalWidth, image.naturalHeight])"
        assert images.nth(index).evaluate(decoded) == [24, 16]


def test_a_clip_and_a_batch_can_be_played(open_page):
    clips = open_page("audio").locator("tf-audio-loader audio")
    expect(clips).to_have_count(3)
    for index in range(3):
        loaded = """clip => new Promise((resolve, reject) => {
            clip.onerror = () => reject(clip.error);
            clip.onloadedmetadata = () => resolve(clip.duration);
            clip.load();
        })"""
        assert clips.nth(index).evaluate(loaded) == 0.5


def test_text_is_shown_as_markdown_and_as_a_table(open_page):
    page = open_page("text")
    expect(page.locator("tf-text-loader strong")).to_have_text(["step 2", "step 1", "step 0"])
    expect(page.locator("tf-text-loader td")).to_have_text(["one", "two", "three", "four"] * 3)


def test_a_precision_recall_curve_is_drawn(open_page):
    card = open_page("pr_curves").locator("tf-pr-curve-card")
    expect(card.locator(LINES).first).to_be_attached()


def test_a_mesh_is_drawn(open_page):
    page = open_page("mesh")
    canvas = page.locator("tf-mesh-loader canvas").first
    expect(canvas).to_be_visible()
    has_many_colors = """canvas => {
        const copy = document.createElement("canvas");
        [copy.width, copy.height] = [canvas.width, canvas.height];
        const context = copy.getContext("2d");
        context.drawImage(canvas, 0, 0);
        const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
        return new Set(new Uint32Array(pixels.buffer)).size > 10;
    }"""
    # Asked in every frame: what is drawn in one is gone for scripts in the next.
    page.wait_for_function(has_many_colors, arg=canvas.element_handle())


def test_hyperparameters_stand_beside_what_came_of_them(open_page):
    page = open_page("hparams")
    table = page.locator("tf-hparams-table-view")
    for text in ("rate", "0.12500", "optimizer", "adam"):
        expect(table.get_by_text(text, exact=True).first).to_be_visible()
    # Every scalar of the run is a metric here, and columns beyond the window are not drawn.
    expect(page.get_by_role("checkbox", name="accuracy", exact=True).first).to_be_visible()


def test_custom_scalars_are_drawn_together(open_page):
    page = open_page("custom_scalars")
    expect(page.get_by_text("my charts")).to_be_visible()
    for card, title in (("multi-line-chart", "lines"), ("margin-chart", "band")):
        chart = page.locator(f"tf-custom-scalar-{card}-card")
        expect(chart.get_by_text(title, exact=True)).to_be_visible()
        expect(chart.locator(LINES).first).to_be_attached()


def test_the_graph_is_drawn(open_page):
    nodes = open_page("graphs").locator("tf-graph-scene g.node text.nodelabel")
    expect(nodes).to_contain_text(["angle", "height"])
