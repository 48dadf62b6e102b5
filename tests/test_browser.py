"""The real TensorBoard, in a real browser: a run of the example, and one of every kind of value."""

import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
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
GROUPS = ("global_step", "gradient_norm", "gradients", "learning_rate", "loss", "test")
LINES = "vz-line-chart2 path[d*=L]"  # not the marks of the points
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"found none of {', '.join(BROWSERS)}")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    example = [sys.executable, ROOT / "examples" / "digits_jax.py"]
    subprocess.run([*example, "--dir", path / "digits", "--steps", "301"], check=True)
    return path


@contextmanager
def tensorboard(logdir):
    """The address of a TensorBoard on ``logdir``."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir]
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
def browser():
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(run_dir, browser):
    """TensorBoard's first page with every group of cards open, kept as a picture."""
    with tensorboard(run_dir) as board:
        # So tall that all cards are in view: TensorBoard draws no others.
        page = browser.new_page(viewport={"width": 1400, "height": 5600})
        page.goto(board)
        expect(page.locator("button.group-toolbar")).to_have_count(len(GROUPS))
        closed = page.locator("button.group-toolbar:has([svgicon=expand_more_24px])")
        while closed.count():
            closed.first.click()
        yield page
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / "tensorboard.png")
        page.close()


@pytest.fixture(scope="module")
def kinds_board(tmp_path_factory):
    """The address of a TensorBoard on a run that has a value of every kind."""
    path = tmp_path_factory.mktemp("kinds")
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
    with tensorboard(path) as board:
        yield board


@pytest.fixture
def open_page(kinds_board, browser, request):
    """Opens a page of TensorBoard, such as ``"audio"``; it is kept as a picture."""
    opened = []

    def open_page(plugin):
        page = browser.new_page(viewport={"width": 1400, "height": 1800})
        opened.append((plugin, page))
        page.goto(f"{kinds_board}#{plugin}")
        return page

    yield open_page
    ARTEFACTS.mkdir(exist_ok=True)
    for plugin, page in opened:
        page.screenshot(path=ARTEFACTS / f"tensorboard_{plugin}.png")
        page.close()


def card(page, kind, tag):
    return page.locator(f"{kind}-card:has([title='{tag}'])")


@pytest.mark.parametrize("tag", ["loss", "learning_rate", "test/accuracy", "global_step/sec"])
def test_scalar_chart_is_drawn(page, tag):
    chart = card(page, "scalar", tag)
    expect(chart.locator("line-chart canvas")).to_be_visible()
    expect(chart.locator("tb-data-table-content-row")).to_contain_text("301")


@pytest.mark.parametrize("layer", ["conv1", "conv2", "dense"])
def test_histograms_are_drawn_one_behind_the_other(page, layer):
    drawn = card(page, "histogram", f"gradients/{layer}/kernel").locator(".histogram path")
    expect(drawn).to_have_count(7)


def test_misread_digit_is_shown(page):
    image = card(page, "image", "test/misread/image/0").locator("img")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 64


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
