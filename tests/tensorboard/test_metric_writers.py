"""Metric writers: what CLU writes through TensorFlow 2, for the same calls."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
from tensorboard.plugins.hparams import api as hparams_api
from tensorboard.plugins.mesh import summary_v2 as mesh_summary

from runhooks.events import read
from runhooks.tensorboard import metric_writers
from tests.summary.conftest import Late
from tests.tensorboard.conftest import shown_in

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(-0.1, 1.1, (4, 5, 6, 3)).astype(np.float32)
SOUNDS = RNG.uniform(-1, 1, (2, 50, 2)).astype(np.float32)


@pytest.fixture
def same_as_tensorflow(tmp_path):
    def same(ours, theirs):
        writer = metric_writers.SummaryWriter(tmp_path / "ours")
        ours(writer)
        writer.close()
        with tf.summary.create_file_writer(str(tmp_path / "theirs")).as_default():
            theirs()
        assert shown_in(tmp_path / "ours") == shown_in(tmp_path / "theirs", pytest.approx)

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


def test_sounds_texts_tensors_and_points_are_those_of_clu(same_as_tensorflow):
    metadata = SummaryMetadata(plugin_data={"plugin_name": "mine", "content": b"content"})
    points, colors = RNG.normal(size=(1, 8, 3)), RNG.uniform(0, 255, (1, 8, 3))
    points, colors = points.astype(np.float32), colors.astype(np.float32)

    def ours(writer):
        writer.write_audios(7, {"sound": SOUNDS}, sample_rate=8000)
        writer.write_texts(7, {"a": "some *text*", "b": "ü"})
        writer.write_summaries(7, {"tensor": np.arange(3.0)}, {"tensor": metadata})
        writer.write_pointcloud(7, {"p": points}, point_colors={"p": colors})

    def theirs():
        tf.summary.audio("sound", SOUNDS, 8000, 7)
        tf.summary.text("a", "some *text*", 7)
        tf.summary.text("b", "ü", 7)
        tf.summary.write("tensor", np.arange(3.0), 7, metadata=metadata)
        mesh_summary.mesh("p", points, colors=colors, step=7)

    same_as_tensorflow(ours, theirs)


@pytest.mark.parametrize("numbers", [RNG.normal(size=500), np.arange(10)], ids=["normal", "ints"])
def test_histograms_are_those_of_clu(numbers, same_as_tensorflow):
    same_as_tensorflow(
        lambda writer: writer.write_histograms(7, {"a": numbers, "b": numbers}, {"b": 7}),
        lambda: [
            tf.summary.histogram("a", numbers, 7),
            tf.summary.histogram("b", numbers, 7, buckets=7),
        ],
    )


def test_hyperparameters_are_those_of_clu(same_as_tensorflow, tmp_path):

    def ours(writer):
        writer.write_hparams({"lr": 0.1, "model": {"name": "mlp", "sizes": [3, 5]}, "no": None})

    flat = {"lr": 0.1, "model.name": "mlp", "model.sizes.0": 3, "model.sizes.1": 5, "no": ""}
    same_as_tensorflow(ours, lambda: hparams_api.hparams(flat))
    assert read(tmp_path / "ours")["."].hparams == read(tmp_path / "theirs")["."].hparams == flat


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
    assert {"loss", "note", "weights", "points_VERTEX"} <= shown_in(tmp_path / "train").keys()
    writer.close()
    lines = [it.message for it in caplog.records if it.levelno == logging.INFO]
    assert lines[0] == "[train] [3] loss=0.5, accuracy=0.25"
    assert lines[1] == "[train] [3] text note: text"
    assert lines[2] == "[train] [3] images: image of shape (4, 5, 6, 3)"
    assert lines[-1] == "[train] hyperparameters: {'lr': 0.1}"


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (np.ones(6).tobytes(), ValueError),
        ({"plugin": "mine"}, TypeError),
    ],
)
def test_what_is_no_metadata_is_refused(bad, error, tmp_path):
    writer = metric_writers.SummaryWriter(tmp_path)
    with pytest.raises(error, match="the metadata of 'a' must be a SummaryMetadata"):
        writer.write_summaries(2, {"a": np.eye(3)}, {"a": bad})
    writer.write_scalars(3, {"after": 1.0})
    writer.close()
    assert shown_in(tmp_path).keys() == {"after"}


class Recorder(metric_writers.MetricWriter):
    """Keeps the calls of a writer written for CLU's interface; some fail, or wait."""

    def __init__(self):
        self.calls = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def _call(self, name, *args, **kwargs):
        assert self.may_go_on.wait(60)
        self.calls.append((name, args, kwargs))
        if "bad" in str(args):
            raise OSError("the disk is full")


def test_a_writer_of_ones_own_need_not_write_everything():
    class Own(metric_writers.MetricWriter):
        pass

    with pytest.raises(NotImplementedError, match="an? Own has no write_pointcloud"):
        Own().write_pointcloud(1, {"p": np.ones((1, 3))})


def test_an_async_writer_writes_what_the_values_were_without_waiting():
    inner = Recorder()
    writer = metric_writers.AsyncWriter(inner)
    inner.may_go_on.clear()
    loss, scalars = np.array(1.0), {}
    with metric_writers.ensure_flushes(writer) as same:
        assert same is writer
        for step in range(3):
            scalars["loss"] = loss
            same.write_scalars(step, scalars)
            loss += 1
        same.write_hparams({"sizes": [1, 2]})
        assert inner.calls == []
        inner.may_go_on.set()
    *calls, flushed = inner.calls
    assert [(name, *args) for name, args, _ in calls] == [
        *(("write_scalars", step, {"loss": step + 1}) for step in range(3)),
        ("write_hparams", {"sizes": [1, 2]}),
    ]
    assert flushed[0] == "flush"
    writer.close()
    assert inner.calls[-1][0] == "close"


def test_an_async_writer_that_is_closed_refuses():
    inner = Recorder()
    writer = metric_writers.AsyncWriter(inner)
    writer.close()
    with pytest.raises(RuntimeError, match="AsyncWriter is closed: make a new one"):
        writer.write_scalars(1, {"loss": 0.5})
    writer.flush()
    writer.close()
    assert [name for name, *_ in inner.calls] == ["flush", "close"]


@pytest.mark.parametrize("raising", ["flush", "close"])
def test_an_error_of_the_thread_is_raised_once(raising):
    inner = Recorder()
    writer = metric_writers.AsyncWriter(inner)
    writer.write_texts(1, {"a": "bad"})
    with pytest.raises(OSError, match="the disk is full"):
        getattr(writer, raising)()
    if raising == "flush":
        writer.write_texts(2, {"a": "good"})
        writer.close()
    assert inner.calls[-1][0] == "close"


def test_a_later_call_raises_the_error_and_is_passed_on():
    inner = Recorder()
    writer = metric_writers.AsyncWriter(inner)
    writer.write_texts(1, {"a": "bad"})
    with pytest.raises(OSError, match="the disk is full"):
        for step in itertools.count(2):
            writer.write_texts(step, {"a": "good"})
    writer.close()
    steps = [args[0] for name, args, _ in inner.calls if name == "write_texts"]
    assert steps == [*range(1, step + 1)]


def test_a_handler_that_interrupts_an_async_writer_can_close_it():
    class Interrupted(Recorder):
        def flush(self):
            writer.close()

    inner = Interrupted()
    writer = metric_writers.AsyncWriter(inner)
    writer.write_scalars(1, {"loss": 0.5})
    thread = threading.Thread(target=writer.flush, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert inner.calls[0][0] == "write_scalars"
    assert inner.calls[-1][0] == "close"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_a_forked_child_goes_on_with_an_async_writer(tmp_path):
    script = """
import os, sys
from runhooks.tensorboard import metric_writers
writer = metric_writers.create_default_writer(sys.argv[1])
writer.write_scalars(1, {"loss": 0.5})
writer.flush()
child = os.fork()
if not child:
    writer.write_scalars(2, {"loss": 0.25})
    writer.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
writer.close()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)
    assert read(tmp_path).only.scalars["loss"].values.tolist() == [0.5, 0.25]


def test_the_default_writer_does_not_wait_for_numbers(tmp_path):
    computed = threading.Event()

    class Later(Late):
        def __array__(self, dtype=None, copy=None):
            assert computed.wait(60)
            return super().__array__()

    writer = metric_writers.create_default_writer(tmp_path)
    writer.write_scalars(1, {"loss": Later(0.5)})
    computed.set()
    writer.close()
    assert shown_in(tmp_path)["loss"][2][2] == 0.5


@dataclass
class Value:
    value: object


class Scalar(Value): ...


class Image(Value): ...


class Text(Value): ...


class HyperParam(Value): ...


@dataclass
class Summary(Value):
    metadata: object


@dataclass
class Audio(Value):
    sample_rate: int


@dataclass
class Histogram(Value):
    num_buckets: int


def test_values_of_metrics_are_written_as_what_they_are():
    metadata = SummaryMetadata(plugin_data={"plugin_name": "mine"})
    metrics = {
        "loss": Scalar(0.5),
        "plain": 3,
        "jax": jnp.ones((1,)),
        "image": Image(IMAGES),
        "text": Text("some"),
        "slow": Audio(SOUNDS, 8000),
        "fast": Audio(SOUNDS, 16000),
        "fast too": Audio(SOUNDS, 16000),
        "weights": Histogram(np.arange(3), 5),
        "tensor": Summary(np.arange(2), metadata),
        "lr": HyperParam(0.1),
    }
    inner = Recorder()
    metric_writers.write_values(inner, 7, metrics)
    found = [(name, args[-1].keys(), kwargs) for name, args, kwargs in inner.calls]
    assert found == [
        ("write_scalars", {"loss", "plain", "jax"}, {}),
        ("write_images", {"image"}, {}),
        ("write_texts", {"text"}, {}),
        ("write_audios", {"slow"}, {"sample_rate": 8000}),
        ("write_audios", {"fast", "fast too"}, {"sample_rate": 16000}),
        ("write_histograms", {"weights"}, {"num_buckets": {"weights": 5}}),
        ("write_summaries", {"tensor"}, {"metadata": {"tensor": metadata}}),
        ("write_hparams", {"lr"}, {}),
    ]
    assert inner.calls[0][1] == (7, {"loss": 0.5, "plain": 3, "jax": jnp.ones((1,))})
    assert inner.calls[-1][1] == ({"lr": 0.1},)


@pytest.mark.parametrize("bad", [np.ones(2), "text", None, object()])
def test_metrics_of_no_kind_are_refused(bad):
    with pytest.raises(TypeError, match="metric 'a' must be a number or one of Scalar, Summary"):
        metric_writers.write_values(Recorder(), 1, {"a": bad})


@pytest.mark.parametrize("arguments", [{"just_logging": True}, {"logdir": None}])
def test_only_the_first_process_writes(arguments, tmp_path):
    writer = metric_writers.create_default_writer(**{"logdir": tmp_path, **arguments})
    writer.write_scalars(1, {"loss": 1})
    writer.close()
    assert list(tmp_path.iterdir()) == []
