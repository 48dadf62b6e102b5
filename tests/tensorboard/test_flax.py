"""The writer of flax: ours beside its own."""

from __future__ import annotations

import numpy as np
import pytest
from flax.metrics.tensorboard import SummaryWriter as FlaxWriter

from runhooks.tensorboard.flax import SummaryWriter
from tests.tensorboard.conftest import shown_in

RNG = np.random.default_rng(0)
SOUNDS = 2 * RNG.random((5, 30, 1)) - 1
FLOATS = RNG.random((4, 5, 6, 3)).astype(np.float32)


CALLS = {
    "scalars": lambda w: [w.scalar("a", 0.1, 1), w.scalar("b", np.float32(2), 2)],
    "image": lambda w: w.image("image", FLOATS, 1),
    "all images": lambda w: w.image("image", FLOATS, 1, max_outputs=10),
    "one image": lambda w: w.image("image", FLOATS[0], 1),
    "bytes": lambda w: w.image("image", (FLOATS * 255).astype(np.uint8), 1),
    "gray": lambda w: w.image("image", FLOATS[..., :1], 1),
    "gray without channels": lambda w: w.image("image", FLOATS[0, ..., 0], 1),
    "batch without channels": lambda w: w.image("image", FLOATS[..., 0], 1),
    "sounds": lambda w: w.audio("sound", SOUNDS, 1, 8000, 2),
    "histograms": lambda w: [
        w.histogram("a", np.arange(20.0).reshape(4, 5), 1),
        w.histogram("b", np.arange(20), 2, bins=4),
    ],
    "texts": lambda w: [w.text("a", "some text", 1), w.text("b", b"bytes", 2)],
    "tensors": lambda w: w.write("tensor", np.arange(6).reshape(2, 3), 1),
    "hparams": lambda w: w.hparams({"lr": 0.1, "model": {"size": 3, "name": "mlp"}}),
    "other hparams": lambda w: w.hparams(
        {"list": [1, 2], "none": None, "complex": 1 + 1j, "inner": {"tuple": (1, 2)}}
        | {"numpy": np.float32(0.5), "is": np.bool_(True), "word": np.str_("a"), "kind": int}
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_are_those_of_flax(name, tmp_path):
    for make, folder in ((FlaxWriter, "theirs"), (SummaryWriter, "ours")):
        writer = make(tmp_path / folder, auto_flush=False)
        CALLS[name](writer)
        writer.flush()
        writer.close()
    assert shown_in(tmp_path / "ours") == shown_in(tmp_path / "theirs", pytest.approx)


def test_what_is_written_is_in_the_file_at_once(tmp_path):
    writer = SummaryWriter(tmp_path)
    for call in CALLS.values():
        call(writer)
        before = shown_in(tmp_path)
    writer.close()
    assert before == shown_in(tmp_path, pytest.approx)


def test_what_is_no_text_is_refused(tmp_path):
    writer = SummaryWriter(tmp_path)
    with pytest.raises(ValueError, match="must be a str or bytes, got 7"):
        writer.text("text", 7, 1)
    writer.close()
    assert shown_in(tmp_path) == {}
