"""Histograms, texts, tensors, curves, meshes and charts: ours beside torch's and tensorboardX's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
import torch
from tensorboard.util import tensor_util

from runhooks.tensorboard import SummaryWriter

RNG = np.random.default_rng(0)
NUMBERS = {
    "normal": RNG.normal(size=(100, 30)).astype(np.float32),
    "float64": RNG.normal(size=3000) * 1e-3,
    "many magnitudes": np.exp(RNG.uniform(-30, 40, 3000)) * RNG.choice([-1, 1], 3000),
    "one number": np.array([0.25]),
    "uint8": RNG.integers(0, 256, 3000, np.uint8),
    "bools": RNG.random(100) > 0.3,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_histograms_are_those_of_torch_but_for_their_bins(name, same_as_torch):
    numbers = NUMBERS[name]

    def add(writer):
        writer.add_histogram("plain", numbers, 1)
        writer.add_histogram("of torch", torch.from_numpy(numbers), 2)
        writer.add_histogram("few", numbers, 3, max_bins=10)
        if numbers.dtype != bool:
            writer.add_histogram("rule", numbers, 4, bins="auto")

    same_as_torch(add)


def histogram_in(events):
    return events["."][0].summary.value[0].histo


@pytest.mark.parametrize("bins", ["fd", 7, (-1.0, 0.0, 0.5, 2.0)])
def test_bins_are_those_of_numpy(bins, ours):
    numbers = RNG.normal(size=500).astype(np.float32)
    histogram = histogram_in(ours(lambda w: w.add_histogram("h", numbers, 1, bins=bins)))
    counts, edges = np.histogram(numbers.astype(np.float64), bins)
    assert list(histogram.bucket) == [0, *counts]
    assert list(histogram.bucket_limit) == edges.tolist()


@pytest.mark.parametrize("bins", ["tensorflow", 7])
def test_more_bins_than_wanted_are_put_together(bins, ours):
    def add(writer):
        writer.add_histogram("h", RNG.normal(size=500), 1, bins=bins)
        writer.add_histogram("h", RNG.normal(size=500), 1, bins=bins, max_bins=3)

    whole, few = [event.summary.value[0].histo for event in ours(add)["."]]
    assert len(few.bucket) == 3 < len(whole.bucket)
    assert sum(few.bucket) == sum(whole.bucket) == 500


@pytest.mark.parametrize("bins", ["tensorflow", "fd"])
def test_numbers_that_are_not_finite_are_left_out_and_counted(bins, ours):
    numbers = np.array([1.0, np.nan, np.inf, 2.0, -np.inf, np.nan])

    def add(writer):
        writer.add_histogram("h", numbers, bins=bins)
        writer.add_histogram("none", numbers[1:2], bins=bins)
        writer.add_histogram("empty", [], bins=bins)

    some, nothing, empty = [event.summary.value for event in ours(add)["."]]
    assert [(v.tag, v.simple_value) for v in some[1:]] == [("h/nan_count", 2), ("h/inf_count", 2)]
    histogram = some[0].histo
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (1, 2, 2, 3)
    for value in (nothing[0], empty[0]):
        assert (value.histo.num, sum(value.histo.bucket), value.histo.sum) == (0, 0, 0)


def test_numbers_beyond_given_edges_are_none(ours):
    events = ours(lambda writer: writer.add_histogram("h", np.array([5.0]), bins=[0, 1, 2]))
    assert sum(histogram_in(events).bucket) == 0


@pytest.mark.parametrize("bins", ["none", 0, [2.0, 1.0], [[1.0, 2.0]]])
def test_other_bins_are_refused(bins, tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match="bins"):
        writer.add_histogram("h", np.ones(3), bins=bins)


def test_counted_histograms_are_those_of_torch(same_as_torch):
    limits, counts = [1.0, 2.0, 5.0], np.array([3, 0, 2])

    def add(writer):
        writer.add_histogram_raw("raw", 0.5, 4, 5, 9.5, 30.25, limits, counts, 3)
        writer.add_histogram_raw("raw", 0.5, 4, 5, 9.5, 30.25, limits, counts.tolist(), 4)

    same_as_torch(add)


def test_limits_without_counts_are_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match="2 limits and 1"):
        writer.add_histogram_raw("raw", 0, 1, 1, 1, 1, [1, 2], [1])


def test_texts_are_those_of_torch(same_as_torch):
    def add(writer):
        writer.add_text("markdown", "a|b\n-|-\nc|d", 3)
        writer.add_text("a tag/ü", "Größe ❤")
        writer.add_text("empty", "", 1)

    same_as_torch(add)


DTYPES = [
    *(torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.bool, torch.complex64, torch.complex128),
]


def test_tensors_are_those_of_torch(same_as_torch):
    def add(writer):
        for dtype in DTYPES:
            for shape in ((), (0,), (2, 3)):
                tensor = (torch.arange(math.prod(shape)).reshape(shape) - 2).to(dtype)
                writer.add_tensor(f"{dtype} {shape}", tensor, 3)

    same_as_torch(add)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16], ids=str)
def test_tensors_that_torch_garbles_are_written(dtype, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_tensor("t", torch.tensor([0.5, 2.0]).to(dtype))
    (event,) = (event for event in summary_iterator(tmp_path) if event.summary.value)
    # TensorBoard's own function knows no bfloat16.
    decode = tf.make_ndarray if dtype == torch.bfloat16 else tensor_util.make_ndarray
    array = decode(event.summary.value[0].tensor)
    expected = [0, 2] if dtype == torch.uint8 else [0.5, 2.0]
    assert (array.dtype.name, array.astype(np.float32).tolist()) == (str(dtype)[6:], expected)


def summary_iterator(folder):
    (path,) = folder.iterdir()
    return tf.compat.v1.train.summary_iterator(str(path))


LABELS = RNG.integers(0, 2, 100)
PREDICTIONS = RNG.random(100)


@pytest.mark.parametrize(
    ("thresholds", "weights"),
    [(127, None), (10, 2.0), (1000, RNG.random(100))],
    ids=["plain", "one weight", "weights"],
)
def test_curves_are_those_of_torch(thresholds, weights, same_as_torch):
    def add(writer):
        writer.add_pr_curve("a", LABELS, PREDICTIONS, 1, thresholds, weights)
        writer.add_pr_curve("b", LABELS == 1, np.append(PREDICTIONS[:-1], 1.0), 2, thresholds)
        of_torch = torch.from_numpy(LABELS), torch.from_numpy(PREDICTIONS)
        writer.add_pr_curve("c", *of_torch, 2, thresholds, weights)

    same_as_torch(add)


VERTICES = [[[1, 1, 1], [-1, -1, 1], [1, -1, -1], [-1, 1, -1.5]]]
COLORS = [[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 0, 255]]]
FACES = [[[0, 2, 3], [0, 3, 1], [0, 1, 2], [1, 3, 2]]]
CONFIG = {"material": {"cls": "PointsMaterial", "size": 0.1}, "camera": {"cls": "X"}}


def test_meshes_are_those_of_torch(same_as_torch):
    vertices, colors, faces = map(torch.tensor, (VERTICES, COLORS, FACES))

    def add(writer):
        writer.add_mesh("mesh", vertices=vertices, colors=colors, faces=faces)
        writer.add_mesh("cloud", vertices, config_dict=CONFIG, global_step=4)
        writer.add_mesh("colors", vertices, colors / 255)

    same_as_torch(add)


LAYOUT = {
    "Taiwan": {"twse": ["Multiline", ["twse/0050", "twse/2330"]]},
    "USA": {
        "dow": ["Margin", ["dow/aaa", "dow/bbb", "dow/ccc"]],
        "nasdaq": ["Margin", ("nasdaq/aaa", "nasdaq/bbb", "nasdaq/ccc")],
    },
}


def test_charts_are_those_of_torch(same_as_torch):
    def add(writer):
        writer.add_custom_scalars(LAYOUT)
        writer.add_custom_scalars_multilinechart(["a", "b"])
        writer.add_custom_scalars_multilinechart(["a", "b"], "category", "title")
        writer.add_custom_scalars_marginchart(["a", "b", "c"], category="category")

    same_as_torch(add)


def test_a_margin_of_two_is_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="three tags"):
            writer.add_custom_scalars_marginchart(["a", "b"])
        with pytest.raises(ValueError, match="three tags"):
            writer.add_custom_scalars({"category": {"title": ["Margin", ["a"]]}})
