"""``EventAccumulator``: ours beside TensorBoard's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch
from tensorboard.backend.event_processing.event_accumulator import STORE_EVERYTHING_SIZE_GUIDANCE
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator as TensorBoards,
)
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter as TorchWriter

from runhooks.summary import FileWriter
from runhooks.tensorboard import EventAccumulator, SummaryWriter

RNG = np.random.default_rng(0)
LISTS = {
    "scalars": "Scalars",
    "histograms": "Histograms",
    "images": "Images",
    "audio": "Audio",
    "tensors": "Tensors",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Directories that torch, TensorFlow 2 and ours have written, by name."""
    folder = tmp_path_factory.mktemp("runs")
    for name, writer in (("torch", TorchWriter), ("ours", SummaryWriter)):
        with writer(str(folder / name)) as opened:
            write(opened)
    with tf.summary.create_file_writer(str(folder / "tensorflow")).as_default():
        for step in range(12):
            tf.summary.scalar("loss", step / 3, step)
            tf.summary.histogram("weights", RNG.normal(size=50), step)
            tf.summary.image("image", RNG.random((2, 3, 4, 3)), step)
            tf.summary.text("text", "some text", step)
            tf.summary.audio("audio", RNG.random((1, 20, 1), np.float32), 8000, step)
    with FileWriter(folder / "batches") as kept:
        kept.image("images", RNG.random((2, 3, 4, 3)), 1)
        kept.hparams({"lr": 0.1}, {"loss": 1}, 1)
        kept.histogram("histogram", np.arange(5), 1)
    return folder


def write(writer):
    for step in range(12):
        writer.add_scalar("loss", step / 3, step)
        writer.add_scalar("accuracy", 0.5, step)
        writer.add_scalar("new", step / 7, step, new_style=True)
        writer.add_scalar("double", step / 7, step, new_style=True, double_precision=True)
        writer.add_histogram("weights", RNG.normal(size=100), step)
        writer.add_histogram("zeros", np.zeros(3), step)
        writer.add_image("image", RNG.random((3, 4, 5)), step)
        writer.add_audio("audio", RNG.random(30), step)
        writer.add_text("text", f"step {step}", step)
        writer.add_tensor("tensor", torch.arange(6).reshape(2, 3), step)
    writer.add_custom_scalars_multilinechart(["loss"])


def plain(event):
    """The fields of an event as a list, tensors as arrays that can be compared."""
    fields = event._asdict() if hasattr(event, "_asdict") else vars(event)
    found = dict(fields)
    if "histogram_value" in found:
        value = found["histogram_value"]
        found["histogram_value"] = list(
            value._asdict().values() if hasattr(value, "_asdict") else vars(value).values()
        )
    if "tensor_proto" in found:
        array = tensor_util.make_ndarray(found["tensor_proto"])
        found["tensor_proto"] = [array.dtype.name, array.shape, array.tolist()]
    return found


@pytest.mark.parametrize("run", ["torch", "ours", "tensorflow", "batches"])
def test_contents_are_those_of_tensorboard(run, runs):
    ours = EventAccumulator(str(runs / run), size_guidance={"scalars": 5}).Reload()
    theirs = TensorBoards(str(runs / run), STORE_EVERYTHING_SIZE_GUIDANCE).Reload()
    for of, method in LISTS.items():
        tags = [tag for tag in theirs.Tags()[of] if not tag.startswith("_hparams_")]
        assert ours.Tags()[of] == sorted(tags)
        for tag in tags:
            found = list(map(plain, getattr(ours, method)(tag)))
            assert found == list(map(plain, getattr(theirs, method)(tag)))


def test_one_file_is_read(runs):
    (path,) = (runs / "torch").glob("*tfevents*")
    ours, theirs = EventAccumulator(path).Reload(), TensorBoards(str(path)).Reload()
    assert list(map(plain, ours.Scalars("loss"))) == list(map(plain, theirs.Scalars("loss")))


def test_only_what_is_new_is_added(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        accumulator = EventAccumulator(tmp_path)
        assert accumulator.Tags()["scalars"] == []
        for step in range(3):
            writer.add_scalar("loss", float(step), step)
            writer.flush()
            assert len(accumulator.Reload().Scalars("loss")) == step + 1


def test_a_restart_purges(tmp_path):
    with SummaryWriter(tmp_path, filename_suffix=".a") as writer:
        for step in range(5):
            writer.add_scalar("loss", 1.0, step)
    with SummaryWriter(tmp_path, purge_step=3, filename_suffix=".b") as writer:
        writer.add_scalar("loss", 2.0, 3)
    theirs = TensorBoards(str(tmp_path), purge_orphaned_data=True).Reload()
    for purge, expected in ((True, [1, 1, 1, 2]), (False, [1, 1, 1, 1, 1, 2])):
        ours = EventAccumulator(tmp_path, purge_orphaned_data=purge).Reload()
        assert [event.value for event in ours.Scalars("loss")] == expected
    assert [event.value for event in theirs.Scalars("loss")] == [1, 1, 1, 2]


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        EventAccumulator(tmp_path / "none").Reload()
    accumulator = EventAccumulator(tmp_path).Reload()
    unread = EventAccumulator(tmp_path)
    for method in LISTS.values():
        with pytest.raises(KeyError, match="'loss', among none at all"):
            getattr(accumulator, method)("loss")
        with pytest.raises(KeyError, match=r"'loss' yet: call Reload\(\) first"):
            getattr(unread, method)("loss")


def test_tensors_are_arrays(runs):
    (first, *_) = EventAccumulator(runs / "torch").Reload().Tensors("tensor")
    assert np.asarray(first.tensor_proto).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert first.tensor_proto.numpy().dtype == np.int64
    assert tf.make_ndarray(first.tensor_proto).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("order", [1, -1])
def test_a_tag_that_two_writers_have_written_in_two_ways_has_all_points(order, tmp_path):
    def theirs():
        with tf.summary.create_file_writer(str(tmp_path)).as_default():
            tf.summary.scalar("loss", 0.5, 1)
            tf.summary.histogram("weights", [1.0, 2.0], 1)

    def ours():
        with FileWriter(tmp_path) as writer:
            writer.scalar("loss", 0.25, 2)
            writer.histogram("weights", [1.0, 3.0], 2)

    for write in (theirs, ours)[::order]:
        write()
    accumulator = EventAccumulator(tmp_path).Reload()
    assert sorted(event.value for event in accumulator.Scalars("loss")) == [0.25, 0.5]
    maxima = [event.histogram_value.max for event in accumulator.Histograms("weights")]
    assert sorted(maxima) == [2.0, 3.0]
    assert accumulator.Tags()["tensors"] == ["loss", "weights"]
    assert len(accumulator.Tensors("loss")) == 2
    assert [event.step for event in accumulator.Tensors("weights")] == [1]
