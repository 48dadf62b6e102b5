"""Histograms, texts, tensors, curves, meshes and charts: ours beside torch's and tensorboardX's."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.util import tensor_util

from runhooks.summary.kinds.histogram import default_edges
from runhooks.tensorboard import SummaryWriter

EDGES = default_edges()
RNG = np.random.default_rng(0)
NUMBERS = {
    "normal": RNG.normal(size=(100, 30)).astype(np.float32),
    "float64": RNG.normal(size=3000) * 1e-3,
    "float16": RNG.normal(size=3000).astype(np.float16),
    "many magnitudes": np.exp(RNG.uniform(-30, 40, 3000)) * RNG.choice([-1, 1], 3000),
    "the edges": EDGES,
    "just below the edges": np.nextafter(EDGES[1:], -np.inf),
    "just above the edges": np.nextafter(EDGES[:-1], np.inf),
    "edges in float32": EDGES[1:-1].astype(np.float32),
    "above in float32": np.nextafter(EDGES[1:-1].astype(np.float32), np.float32(np.inf)),
    "below in float32": np.nextafter(EDGES[1:-1].astype(np.float32), np.float32(-np.inf)),
    "zeros": np.zeros(7, np.float32),
    "one number": np.array([0.25]),
    "next to nothing": np.array([0.0, -0.0, 1e-45, -1e-45, 1e-300, -1e-300, 1e-12]),
    "integers": RNG.integers(-1000, 1000, 3000),
    "uint8": RNG.integers(0, 256, 3000, np.uint8),
    "bools": RNG.random(100) > 0.3,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_histograms_are_those_of_torch(name, same_as_torch):
    numbers = NUMBERS[name]

    def add(writer):
        writer.add_histogram("plain", numbers, 1)
        writer.add_histogram("of torch", torch.from_numpy(numbers), 2)
        writer.add_histogram("few", numbers, 3, max_bins=10)

    same_as_torch(add)


@pytest.mark.parametrize("bins", ["auto", "fd", "doane", "sqrt", 7, (-1.0, 0.0, 0.5, 2.0)])
@pytest.mark.parametrize("max_bins", [None, 1, 3, 5, 1000])
def test_bins_are_those_of_torch(bins, max_bins, same_as_torch):
    numbers = RNG.normal(size=500).astype(np.float32)
    same_as_torch(lambda w: w.add_histogram("h", numbers, 1, bins=bins, max_bins=max_bins))


@pytest.mark.parametrize("values", [[1, 2.5, 3], jnp.arange(5.0)], ids=["list", "jax"])
def test_lists_and_arrays_of_jax_are_taken_as_by_tensorboardx(values, same_as_tensorboardx):
    same_as_tensorboardx(lambda writer: writer.add_histogram("h", values, 1))


def test_several_blocks_are_counted_as_by_torch(same_as_torch):
    numbers = RNG.normal(size=300_001).astype(np.float32)
    same_as_torch(lambda writer: writer.add_histogram("h", numbers, 1))


def histogram_in(events):
    return events["."][0].summary.value[0].histo


def test_numbers_that_are_not_finite_are_left_out_and_counted(ours):
    numbers = np.array([1.0, np.nan, np.inf, 2.0, -np.inf, np.nan])
    values = ours(lambda writer: writer.add_histogram("h", numbers))["."][0].summary.value
    assert [(v.tag, v.simple_value) for v in values[1:]] == [("h/nan_count", 2), ("h/inf_count", 2)]
    histogram = values[0].histo
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (1, 2, 2, 3)
    assert sum(histogram.bucket) == 2


def test_nothing_but_nan_is_an_empty_histogram(ours):
    events = ours(lambda writer: writer.add_histogram("h", np.full(3, np.nan), bins="fd"))
    assert (histogram_in(events).num, sum(histogram_in(events).bucket)) == (0, 0)


def test_numbers_beyond_the_bins_are_counted(ours):
    numbers = np.array([-1e30, 1.0, 1e25, 1e25])
    histogram = histogram_in(ours(lambda writer: writer.add_histogram("h", numbers)))
    assert [count for count in histogram.bucket if count] == [1, 1, 2]
    assert histogram.bucket_limit[-1] > 1e25


def test_numbers_beyond_given_edges_are_none(ours):
    events = ours(lambda writer: writer.add_histogram("h", np.array([5.0]), bins=[0, 1, 2]))
    assert sum(histogram_in(events).bucket) == 0


def test_bfloat16_is_counted(ours):
    numbers = torch.tensor([0.5, 0.5, -3.0], dtype=torch.bfloat16)
    histogram = histogram_in(ours(lambda writer: writer.add_histogram("h", numbers)))
    assert (histogram.min, histogram.max, histogram.num) == (-3, 0.5, 3)


@pytest.mark.parametrize(
    "values", [np.empty(0), torch.empty(0, 3), []], ids=["numpy", "torch", "list"]
)
def test_no_numbers_are_refused_as_by_torch(values, tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match="at least one"):
        writer.add_histogram("h", values)


@pytest.mark.parametrize("bins", ["none", 0, [1.0], [2.0, 1.0], [[1.0, 2.0]]])
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


def test_what_is_no_text_is_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(TypeError, match="must be a str, got 7"):
        writer.add_text("text", 7)


DTYPES = [
    *(torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.bool, torch.complex64, torch.complex128),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
def test_tensors_are_those_of_torch(dtype, shape, same_as_torch):
    tensor = (torch.arange(math.prod(shape)).reshape(shape) - 2).to(dtype)
    same_as_torch(lambda writer: writer.add_tensor("tensor", tensor, 3))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16], ids=str)
def test_tensors_that_torch_garbles_are_written(dtype, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_tensor("t", torch.tensor([0.5, 2.0]).to(dtype))
    (event,) = (event for event in summary_iterator(tmp_path) if event.summary.value)
    array = tf.make_ndarray(event.summary.value[0].tensor)
    expected = [0, 2] if dtype == torch.uint8 else [0.5, 2.0]
    assert (array.dtype.name, array.astype(np.float32).tolist()) == (str(dtype)[6:], expected)


def summary_iterator(folder):
    (path,) = folder.iterdir()
    return tf.compat.v1.train.summary_iterator(str(path))


LABELS = RNG.integers(0, 2, 100)
PREDICTIONS = RNG.random(100)


@pytest.mark.parametrize("thresholds", [127, 10, 1000])
@pytest.mark.parametrize("weights", [None, 2.0, RNG.random(100)], ids=["none", "one", "each"])
def test_curves_are_those_of_torch(thresholds, weights, same_as_torch):
    def add(writer):
        writer.add_pr_curve("a", LABELS, PREDICTIONS, 1, thresholds, weights)
        writer.add_pr_curve("b", LABELS == 1, np.append(PREDICTIONS[:-1], 1.0), 2, thresholds)
        of_torch = torch.from_numpy(LABELS), torch.from_numpy(PREDICTIONS)
        writer.add_pr_curve("c", *of_torch, 2, thresholds, weights)

    same_as_torch(add)


def test_counted_curves_are_those_of_torch(same_as_torch):
    rows = [[75, 64, 21, 5, 0], [150, 105, 18, 0, 0], [0, 45, 132, 150, 150], [0, 11, 54, 70, 75]]
    rates = [[0.33, 0.37, 0.53, 1.0, 0.0], [1.0, 0.85, 0.28, 0.06, 0.0]]

    def add(writer):
        writer.add_pr_curve_raw("lists", *rows, *rates, 1, 5)
        writer.add_pr_curve_raw("arrays", *map(np.array, rows), *map(np.array, rates), 2)
        writer.add_pr_curve_raw(
            "torch", *map(torch.tensor, rows), *map(torch.tensor, rates), 3, 500
        )

    same_as_torch(add)


def test_rows_of_other_lengths_are_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match="one shape"):
        writer.add_pr_curve_raw("rows", [1, 2], [1], [1], [1], [1], [1])


VERTICES = [[[1, 1, 1], [-1, -1, 1], [1, -1, -1], [-1, 1, -1.5]]]
COLORS = [[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 0, 255]]]
FACES = [[[0, 2, 3], [0, 3, 1], [0, 1, 2], [1, 3, 2]]]
CONFIG = {"material": {"cls": "PointsMaterial", "size": 0.1}, "camera": {"cls": "X"}}


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_meshes_are_those_of_torch(make, same_as_torch):
    vertices, colors, faces = map(make, (VERTICES, COLORS, FACES))

    def add(writer):
        writer.add_mesh("mesh", vertices=vertices, colors=colors, faces=faces)
        writer.add_mesh("cloud", vertices, config_dict=CONFIG, global_step=4)
        writer.add_mesh("colors", vertices, colors / 255)

    same_as_torch(add)


def test_a_mesh_of_another_shape_is_refused(tmp_path):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match=r"\[N, count, 3\]"):
        writer.add_mesh("mesh", np.zeros((4, 3)))


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


def test_charts_are_read_by_tensorboard(ours):
    events = ours(lambda writer: writer.add_custom_scalars(LAYOUT))
    (layout,) = tensor_util.make_ndarray(events["."][0].summary.value[0].tensor).flat
    categories = layout_pb2.Layout.FromString(layout).category
    assert [chart.title for category in categories for chart in category.chart] == [
        *("twse", "dow", "nasdaq")
    ]


def test_a_margin_of_two_is_refused_as_by_torch(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(AssertionError, match="three tags"):
            writer.add_custom_scalars_marginchart(["a", "b"])
        with pytest.raises(AssertionError, match="three tags"):
            writer.add_custom_scalars({"category": {"title": ["Margin", ["a"]]}})
