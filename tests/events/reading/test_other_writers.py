"""What TensorFlow, PyTorch, tensorboardX and runhooks write is read, value for value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorboardX
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter

from runhooks import summary
from runhooks.events import Run, check, read

v1 = tf.compat.v1
CHANCE = np.random.default_rng(0)
LOSSES = CHANCE.normal(size=300).astype(np.float32).tolist()
WEIGHTS = CHANCE.normal(size=500).astype(np.float32)
PICTURE = CHANCE.integers(0, 255, (8, 6, 3), np.uint8)


def write_tensorflow_2(path: Path) -> None:
    with tf.summary.create_file_writer(str(path)).as_default():
        for step, loss in enumerate(LOSSES):
            tf.summary.scalar("loss", loss, step, description="what is minimised")
        tf.summary.histogram("weights", WEIGHTS, step=3)
        tf.summary.image("picture", PICTURE[None], step=3)
        tf.summary.text("words", "hello", step=3)


def write_tensorflow_1(path: Path) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        loss = v1.placeholder(tf.float32)
        merged = v1.summary.merge([v1.summary.scalar("loss", loss)])
        rest = v1.summary.merge(
            [
                v1.summary.histogram("weights", tf.constant(WEIGHTS)),
                v1.summary.image("picture", tf.constant(PICTURE[None])),
                v1.summary.text("words", tf.constant("hello")),
            ]
        )
        writer = v1.summary.FileWriter(str(path), session.graph)
        for step, value in enumerate(LOSSES):
            writer.add_summary(session.run(merged, {loss: value}), step)
        writer.add_summary(session.run(rest), 3)
        writer.add_session_log(v1.SessionLog(status=v1.SessionLog.STOP), 9)
        writer.close()


def write_like_torch(writer: Any) -> None:
    for step, loss in enumerate(LOSSES):
        writer.add_scalar("loss", loss, step)
    writer.add_histogram("weights", WEIGHTS, 3)
    writer.add_image("picture", PICTURE, 3, dataformats="HWC")
    writer.add_text("words", "hello", 3)
    writer.close()


def write_ours(path: Path) -> None:
    with summary.FileWriter(path) as writer:
        for step, loss in enumerate(LOSSES):
            writer.add_summary(summary.Summary([summary.scalar_value("loss", loss)]), step)
        values = [
            summary.histogram_value("weights", WEIGHTS),
            summary.image_value("picture", PICTURE[None], 1),
            summary.text_value("words", "hello"),
        ]
        writer.add_summary(summary.Summary(values), 3)


WRITERS: dict[str, Callable[[Path], None]] = {
    "TensorFlow 2": write_tensorflow_2,
    "TensorFlow 1": write_tensorflow_1,
    "torch": lambda path: write_like_torch(SummaryWriter(str(path))),
    "tensorboardX": lambda path: write_like_torch(tensorboardX.SummaryWriter(str(path))),
    "runhooks": write_ours,
}


@pytest.fixture(params=WRITERS)
def written(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    WRITERS[request.param](tmp_path)
    return tmp_path


def theirs(accumulator: EventAccumulator) -> Iterator[tuple[str, int, float, float]]:
    """All scalars, of either encoding, as TensorBoard reads them."""
    for tag in accumulator.Tags()["scalars"]:
        for point in accumulator.Scalars(tag):
            yield tag, point.step, point.wall_time, point.value
    for tag in accumulator.Tags()["tensors"]:
        if accumulator.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            for event in accumulator.Tensors(tag):
                value = float(tensor_util.make_ndarray(event.tensor_proto))
                yield tag, event.step, event.wall_time, value


def ours(run: Run) -> Iterator[tuple[str, int, float, float]]:
    for tag, (steps, values, wall_times) in run.scalars.items():
        columns = (column.tolist() for column in (steps, wall_times, values))
        yield from ((tag, *point) for point in zip(*columns, strict=True))


def named(points: Any) -> Any:
    """The points of the one tag there is, whatever a writer adds to its name."""
    ((_, found),) = points.items()
    return found


def test_all_is_read(written: Path, tensorboard: Callable[[Path], EventAccumulator]) -> None:
    run = read(written).only
    assert sorted(ours(run)) == sorted(theirs(tensorboard(written)))
    ((tag, columns),) = run.scalars.items()
    assert tag.startswith("loss")
    assert (columns.values.tolist(), columns.steps.tolist()) == (LOSSES, list(range(300)))

    (histogram,) = named(run.histograms)
    assert (histogram.step, histogram.value.num) == (3, WEIGHTS.size)
    assert histogram.value.counts.sum() == WEIGHTS.size
    assert histogram.value.max == pytest.approx(WEIGHTS.max())

    (image,) = named(run.images)
    (picture,) = image.value
    assert (picture.height, picture.width) == (8, 6)
    np.testing.assert_array_equal(tf.io.decode_png(picture.encoded).numpy(), PICTURE)

    (text,) = named(run.texts)
    assert (text.step, text.value) == (3, "hello")

    assert run.damages == []
    assert all(report.sound for report in check(written))


def test_what_a_tag_is_called(tmp_path: Path) -> None:
    write_tensorflow_2(tmp_path)
    assert read(tmp_path).only.tags["loss"] == (
        "scalar",
        300,
        "scalars",
        "",
        "what is minimised",
    )


def test_a_graph_and_what_a_session_noted(tmp_path: Path) -> None:
    write_tensorflow_1(tmp_path)
    run = read(tmp_path).only
    assert run.graph is not None
    assert "Placeholder" in {node.op for node in v1.GraphDef.FromString(run.graph).node}
    assert [(log.step, log.value.status) for log in run.session_logs] == [(9, 2)]


def test_hyperparameters(tmp_path: Path) -> None:
    writer = tensorboardX.SummaryWriter(str(tmp_path))
    writer.add_hparams({"rate": 0.1, "optimizer": "adam", "bias": True}, {"loss": 1.0}, name="h")
    writer.close()
    assert read(tmp_path)["h"].hparams == {"rate": 0.1, "optimizer": "adam", "bias": True}
