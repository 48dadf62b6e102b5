"""The handwritten digits of scikit-learn, and the command line of the examples that read them."""

import argparse
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 0
BATCH = 64


def load() -> Any:
    """Images [N, 64] in 0..1 for training, for the test, and labels [N] for each."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    return train_test_split(images, labels, test_size=360, stratify=labels, random_state=SEED)


train_images, test_images, train_labels, test_labels = load()


def batches(step: int) -> Iterator[tuple[Any, Any]]:
    """The batches from ``step`` on: all digits in a new order in each epoch.

    They depend only on the step, so a resumed run gets the same ones as an uninterrupted run.
    """
    for now in itertools.count(step):
        epoch, batch = divmod(now, len(train_labels) // BATCH)
        order = np.random.default_rng([SEED, epoch]).permutation(len(train_labels))
        chosen = order[batch * BATCH :][:BATCH]
        yield train_images[chosen], train_labels[chosen]


def parser(description: str, directory: str, steps: int) -> argparse.ArgumentParser:
    """``--dir`` and ``--steps`` of the command line; the log of runhooks goes to the terminal."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("runhooks").setLevel(logging.INFO)
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--dir", default=directory, help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=steps, help="the last step (%(default)s)")
    return parser
