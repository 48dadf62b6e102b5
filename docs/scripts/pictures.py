"""Makes the pictures of docs/pictures that show real runs: TensorBoard and the command.

``make pictures`` runs it. It trains the example of handwritten digits with JAX and with PyTorch.
It needs what ``make test`` installs, and a Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import diagrams
from terminal import picture, shown

ROOT = Path(__file__).parents[2]
PICTURES = diagrams.PICTURES
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
DIGITS = [sys.executable, str(ROOT / "examples" / "digits_jax.py")]
#: One card each.
TAGS = "loss|accuracy|conv2/kernel|misread/image/0"
RUNHOOKS = [sys.executable, "-m", "runhooks.cli"]


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    for name, svg in diagrams.pictures().items():
        (PICTURES / name).write_text(svg, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        digits = [*DIGITS, "--dir", "runs/digits", "--steps", "1000"]
        save("progress", picture(shown(digits, here), "python examples/digits_jax.py --steps 1000"))
        torch = [sys.executable, str(ROOT / "examples" / "digits_torch.py"), "--dir", "runs/torch"]
        subprocess.run([*torch, "--steps", "1000"], cwd=here, check=True)
        for name, words in {
            "show": "show runs/digits",
            "plot": "plot runs --tag loss",
            "compare": "compare runs",
            "checkpoints": "checkpoints runs/digits",
        }.items():
            screen = shown([*RUNHOOKS, *words.split()], here)
            save(name, picture(screen, f"runhooks {words}"))
        board(here / "runs")


def save(name: str, svg: str) -> None:
    """Write a picture."""
    (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")


def board(runs: Path) -> None:
    """Take a picture of TensorBoard's first page."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"found none of {', '.join(BROWSERS)}: install Chromium")
    with tensorboard(runs) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(viewport={"width": 1300, "height": 840})
        page.goto(address)
        arrange(page)
        page.screenshot(path=PICTURES / "tensorboard.png")
        chromium.close()


def arrange(page: Page) -> None:
    """Show some curves, histograms and pictures, and wait until they are drawn."""
    page.get_by_text("Enable step selection and data table").click()
    page.get_by_role("button", name="Settings").last.click()  # which closes them
    page.locator("metrics-tag-filter-component input").fill(TAGS)
    page.keyboard.press("Escape")  # the list of suggestions
    page.locator("scalar-card line-chart canvas").first.wait_for()
    page.wait_for_timeout(4000)  # for the cards to come to rest


@contextmanager
def tensorboard(logdir: Path) -> Iterator[str]:
    """Yield the address of a TensorBoard on ``logdir``."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir)]
    with subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", "0"], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            lines = iter(server.stderr.readline, "")
            found = filter(None, (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in lines))
            yield next(found).group()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
