"""What is wrong with an argument, also where it shows only when the values are read."""

from __future__ import annotations

import numpy as np
import pytest

from runhooks.events import read
from runhooks.tensorboard import SummaryWriter, flax, metric_writers
from tests.summary.conftest import Late

VIDEO = np.zeros((1, 1, 1, 2, 3))
WRONG = {
    "texts": lambda w, of: w.add_histogram("tag", of(np.array(["a"]))),
    "channels of an image": lambda w, of: w.add_image("tag", of(np.zeros((5, 4, 4)))),
    "boxes": lambda w, of: w.add_image_with_boxes("tag", np.zeros((3, 4, 4)), of(np.ones((1, 3)))),
    "channels of a video": lambda w, of: w.add_video("tag", of(np.zeros((1, 2, 2, 4, 4)))),
    "channels of a sound": lambda w, of: w.add_audio("tag", of(np.zeros((9, 9)))),
    "shape of a mesh": lambda w, of: w.add_mesh("tag", of(np.zeros((4, 2)))),
    "shapes of a curve": lambda w, of: w.add_pr_curve("tag", of(np.ones(3)), np.ones(2)),
    "numbers": lambda w, of: w.add_scalar("tag", of(np.ones(2))),
}


class LateRow(Late):
    """One that can be counted."""

    def __len__(self):
        return 1


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused_at_the_call_or_when_they_are_read(name, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises((ValueError, TypeError)) as at_once:
            WRONG[name](writer, lambda array: array)
        assert "tag" in str(at_once.value)
        WRONG[name](writer, LateRow)
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
        (lambda w: w.add_pr_curve_raw("p", *[[1.0]] * 6, num_thresholds=0), ValueError, "num_th"),
    ],
)
def test_other_arguments_out_of_range_are_refused(call, error, match, tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(error, match=match):
        call(writer)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda w: w.image("i", np.zeros((2, 3, 4, 5)), 1), ValueError, "1 to 4 channels"),
        (lambda w: w.image("i", np.zeros((3, 4, 3), int), 1), TypeError, "uint8"),
        (lambda w: w.histogram("h", np.ones(3), 1, bins=0), ValueError, "bins"),
        (lambda w: w.scalar("s", np.ones(2), 1), ValueError, "single number"),
        (lambda w: w.scalar("s", 1.0, None), TypeError, "step"),
    ],
)
def test_the_writer_of_flax_refuses_them_too(call, error, match, tmp_path):
    writer = flax.SummaryWriter(tmp_path)
    with pytest.raises(error, match=match):
        call(writer)
    writer.close()


def test_numbers_that_are_not_finite_are_left_out_or_red(tmp_path):
    writer = metric_writers.SummaryWriter(tmp_path)
    writer.write_histograms(1, {"h": np.array([1.0, np.nan, 3.0])})
    writer.write_images(1, {"i": np.full((2, 2, 3), np.inf), "gray": np.full((2, 2, 1), np.nan)})
    writer.close()
    run = read(tmp_path)["."]
    assert run.histograms["h"][0].value.num == 2
    assert len(run.images["i"][0].value) == 1
