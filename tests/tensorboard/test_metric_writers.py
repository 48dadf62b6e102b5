"""Metric writers: what CLU writes through TensorFlow 2, for the same calls."""

from __future__ import annotations

import logging

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
from tensorboard.plugins.hparams import api as hparams_api
from tensorboard.util import tensor_util

from runhooks.events import read
from runhooks.tensorboard import metric_writers

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(-0.1, 1.1, (4, 5, 6, 3)).astype(np.float32)
SOUNDS = RNG.uniform(-1, 1, (2, 50, 2)).astype(np.float32)


def values_in(folder):
    """What TensorBoard shows: by tag, the plugin, the step and the tensor of the last event."""
    found = {}
    for path in sorted(folder.rglob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                plugin = value.metadata.plugin_data.plugin_name
                array = tensor_util.make_ndarray(value.tensor)
                content = [array.dtype.name, array.shape, array.tolist()]
                if plugin == "images":  # which two encoders compress in their own ways
                    content[2][2:] = [
                        tf.image.decode_image(it).numpy().tolist() for it in array[2:]
                    ]
                found[value.tag] = plugin, event.step, content
    return found


@pytest.fixture
def same_as_tensorflow(tmp_path):
    def same(ours, theirs):
        writer = metric_writers.SummaryWriter(tmp_path / "ours")
        ours(writer)
        writer.close()
        with tf.summary.create_file_writer(str(tmp_path / "theirs")).as_default():
            theirs()
        assert values_in(tmp_path / "ours") == values_in(tmp_path / "theirs")

    return same


def test_scalars_are_those_of_clu(same_as_tensorflow):
    scalars = {"loss": 0.1, "accuracy": np.float32(0.5), "of jax": jnp.float32(0.25), "n": 3}
    same_as_tensorflow(
        lambda writer: writer.write_scalars(7, scalars),
        lambda: [tf.summary.scalar(tag, value, 7) for tag, value in scalars.items()],
    )


def test_images_are_those_of_clu(same_as_tensorflow):
    images = {
        "batch": IMAGES,
        "bytes": (IMAGES * 200).clip(0, 255).astype(np.uint8),
        "one": IMAGES[0],
    }

    def theirs():
        for tag, image in images.items():
            batch = image if image.ndim == 4 else image[None]
            tf.summary.image(tag, batch, 7, max_outputs=len(batch))

    same_as_tensorflow(lambda writer: writer.write_images(7, images), theirs)


def test_sounds_are_those_of_clu(same_as_tensorflow):
    same_as_tensorflow(
        lambda writer: writer.write_audios(7, {"sound": SOUNDS}, sample_rate=8000),
        lambda: tf.summary.audio("sound", SOUNDS, 8000, 7),
    )


def test_texts_are_those_of_clu(same_as_tensorflow):
    same_as_tensorflow(
        lambda writer: writer.write_texts(7, {"a": "some *text*", "b": "ü"}),
        lambda: [tf.summary.text("a", "some *text*", 7), tf.summary.text("b", "ü", 7)],
    )


@pytest.mark.parametrize(
    "numbers",
    [RNG.normal(size=500), np.zeros(3), np.arange(10), np.empty(0)],
    ids=["normal", "zeros", "integers", "none"],
)
def test_histograms_are_those_of_clu(numbers, same_as_tensorflow):
    same_as_tensorflow(
        lambda writer: writer.write_histograms(7, {"a": numbers, "b": numbers}, {"b": 7}),
        lambda: [
            tf.summary.histogram("a", numbers, 7),
            tf.summary.histogram("b", numbers, 7, buckets=7),
        ],
    )


def test_tensors_are_those_of_clu(same_as_tensorflow):
    metadata = SummaryMetadata(plugin_data={"plugin_name": "mine", "content": b"content"})
    same_as_tensorflow(
        lambda writer: writer.write_summaries(7, {"a": np.arange(3.0)}, {"a": metadata}),
        lambda: tf.summary.write("a", np.arange(3.0), 7, metadata=metadata),
    )


def test_hyperparameters_are_those_of_clu(same_as_tensorflow, tmp_path):

    def ours(writer):
        writer.write_hparams({"lr": 0.1, "model": {"name": "mlp", "sizes": [3, 5]}, "no": None})

    flat = {"lr": 0.1, "model.name": "mlp", "model.sizes.0": 3, "model.sizes.1": 5, "no": ""}
    same_as_tensorflow(ours, lambda: hparams_api.hparams(flat))
    assert read(tmp_path / "ours")["."].hparams == read(tmp_path / "theirs")["."].hparams == flat


def test_videos_and_points_are_written(tmp_path):
    writer = metric_writers.SummaryWriter(tmp_path)
    writer.write_videos(1, {"one": IMAGES, "batch": IMAGES[None]})
    colors = {"points": np.full((1, 4, 3), 255)}
    settings = {"points": {"material": {"cls": "PointsMaterial"}}}
    writer.write_pointcloud(
        2, {"points": RNG.random((1, 4, 3))}, point_colors=colors, configs=settings
    )
    writer.flush()
    writer.close()
    assert values_in(tmp_path).keys() == {"one", "batch", "points_VERTEX", "points_COLOR"}


def test_the_default_writer_logs_too(tmp_path, caplog):
    caplog.set_level(logging.INFO, "runhooks")
    writer = metric_writers.create_default_writer(tmp_path, collection="train")
    with metric_writers.ensure_flushes(writer):
        writer.write_scalars(3, {"loss": 0.5, "accuracy": np.float32(0.25)})
        writer.write_texts(3, {"note": "text"})
        writer.write_images(3, {"image": IMAGES})
        writer.write_histograms(3, {"weights": RNG.random(3)})
        writer.write_audios(3, {"sound": SOUNDS}, sample_rate=8000)
        writer.write_videos(3, {"video": IMAGES})
        writer.write_pointcloud(3, {"points": RNG.random((1, 4, 3))})
        writer.write_summaries(3, {"tensor": np.ones(3)})
        writer.write_hparams({"lr": 0.1})
    assert {"loss", "note", "weights", "points_VERTEX"} <= values_in(tmp_path / "train").keys()
    writer.close()
    lines = [it.message for it in caplog.records if it.levelno == logging.INFO]
    assert lines[0] == "[train] [3] loss=0.5, accuracy=0.25"
    assert lines[1] == "[train] [3] text note: text"
    assert lines[2] == "[train] [3] images: image of shape (4, 5, 6, 3)"
    assert lines[-1] == "[train] hyperparameters: {'lr': 0.1}"


@pytest.mark.parametrize("arguments", [{"just_logging": True}, {"logdir": None}])
def test_only_the_first_process_writes(arguments, tmp_path):
    writer = metric_writers.create_default_writer(**{"logdir": tmp_path, **arguments})
    writer.write_scalars(1, {"loss": 1})
    writer.close()
    assert list(tmp_path.iterdir()) == []
