"""What is wrong with an argument, also where it shows only when the values are read."""

from __future__ import annotations

import numpy as np
import pytest

from runhooks.tensorboard import SummaryWriter
from tests.summary.conftest import Late

VIDEO = np.zeros((1, 1, 1, 2, 3))
WRONG = {
    "texts": lambda w, of: w.add_histogram("tag", of(np.array(["a"]))),
    "channels of an image": lambda w, of: w.add_image("tag", of(np.zeros((5, 4, 4)))),
    "channels of a video": lambda w, of: w.add_video("tag", of(np.zeros((1, 2, 2, 4, 4)))),
    "channels of a sound": lambda w, of: w.add_audio("tag", of(np.zeros((9, 9)))),
    "shape of a mesh": lambda w, of: w.add_mesh("tag", of(np.zeros((4, 2)))),
    "shapes of a curve": lambda w, of: w.add_pr_curve("tag", of(np.ones(3)), np.ones(2)),
    "numbers": lambda w, of: w.add_scalar("tag", of(np.ones(2))),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused_at_the_call_or_when_they_are_read(name, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises((ValueError, TypeError)) as at_once:
            WRONG[name](writer, lambda array: array)
        assert "tag" in str(at_once.value)
        WRONG[name](writer, Late)
        with pytest.raises((ValueError, TypeError)) as later:
            writer.flush()
        said = [str(later.value), *later.value.__notes__]
        assert any("'tag" in text for text in said)
        writer.add_scalar("loss", 1.0)


def test_what_can_never_be_read_is_refused_at_the_call(tmp_path):
    kinds = "scalar", "histogram", "image", "video", "audio", "mesh"
    with SummaryWriter(tmp_path) as writer:
        for kind in kinds:
            for value in (object(), iter([1.0]), {1.0}, {"a": 1.0}, lambda: 1.0):
                with pytest.raises(TypeError, match="'tag"):
                    getattr(writer, f"add_{kind}")("tag", value)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda w: w.add_video("v", VIDEO, fps=0), ValueError, "fps"),
        (lambda w: w.add_video("v", VIDEO, dataformats="NTC"), ValueError, "axes"),
        (lambda w: w.add_audio("a", np.zeros(3), sample_rate=0), ValueError, "sample_rate"),
        (lambda w: w.add_histogram("h", np.ones(3), max_bins=0), ValueError, "max_bins"),
        (lambda w: w.add_mesh("m", VIDEO[0, 0], config_dict={"a": object()}), TypeError, "JSON"),
        (lambda w: w.add_pr_curve("p", [1], [1.0], num_thresholds=0), ValueError, "num_th"),
    ],
)
def test_other_arguments_out_of_range_are_refused(call, error, match, tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(error, match=match):
        call(writer)
