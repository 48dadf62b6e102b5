"""Hooks write with any writer: ours, a user's own, and those of other libraries."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorboardX
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch.utils import tensorboard as torch_tensorboard

import runhooks as rh
from runhooks import summary

FOREIGN = {
    "torch": torch_tensorboard.SummaryWriter,
    "torch's file writer": torch_tensorboard.FileWriter,
    "tensorboardX": tensorboardX.SummaryWriter,
    "tensorboardX's file writer": tensorboardX.FileWriter,
    "tensorflow": tf.compat.v1.summary.FileWriter,
    "tensorboard": EventFileWriter,
}


@pytest.fixture
def loaded(tmp_path):
    """Reads the test's directory as TensorBoard does, less what each file says of itself."""

    def loaded():
        paths = sorted(tmp_path.glob("*.tfevents.*"))
        events = [event for path in paths for event in EventFileLoader(str(path)).Load()]
        return [event for event in events if not event.HasField("file_version")]

    return loaded


@pytest.fixture(params=FOREIGN)
def foreign(request, tmp_path):
    with tf.Graph().as_default():  # where TensorFlow's writer is allowed
        writer = FOREIGN[request.param](str(tmp_path))
    yield writer
    writer.close()


def shown(event):
    """What TensorBoard's loader makes of the scalars of an event."""
    return {value.tag: value.tensor.float_val[0] for value in event.summary.value}


def save(writer, **summaries):
    return rh.SummarySaverHook(
        save_steps=1, summary_writer=writer, summary_op=list(summaries.values())
    )


def test_a_hook_writes_with_the_writer_of_another_library(foreign, model, train, loaded):
    loss = summary.scalar("loss", model.loss)
    train(save(foreign, loss=loss), steps=3)
    foreign.close()
    start, *events = loaded()
    assert (start.step, start.session_log.status) == (1, SessionLog.START)
    assert [(event.step, shown(event)) for event in events] == [
        (1, {"loss": 0.0}),
        (2, {"loss": 2.0}),
        (3, {"loss": 4.0}),
    ]


def test_a_writer_of_another_library_takes_every_kind(foreign, tmp_path, loaded):
    """What it wrote is what our own file writer writes of the same summary."""
    values = (
        summary.histogram_value("weights", np.arange(9.0)),
        summary.image_value("digits", np.zeros((1, 4, 5, 3), np.uint8)),
        summary.text_value("note", "hello"),
    )
    summary.adapted(foreign).add_summary(summary.Summary(values), 7)
    foreign.close()
    [written] = [event for event in loaded() if event.step == 7]
    with summary.FileWriter(tmp_path / "ours") as ours:
        ours.add_summary(summary.Summary(values), 7)
    [path] = (tmp_path / "ours").iterdir()
    [expected] = [event for event in EventFileLoader(str(path)).Load() if event.step == 7]
    assert written.summary == expected.summary


@pytest.mark.parametrize("library", ["torch", "tensorboardX"])
def test_a_writer_of_another_library_that_is_closed(library, tmp_path):
    writer = FOREIGN[library](str(tmp_path))
    writer.close()
    adapted = summary.adapted(writer)
    assert adapted.closed
    with pytest.raises(RuntimeError, match="closed"):
        adapted.scalar("loss", 1.0, 1)


def test_an_add_summary_of_ones_own_is_called(tmp_path):
    class Mine(torch_tensorboard.SummaryWriter):
        def add_summary(self, summary, step):
            self.added = (list(summary), step)

    with Mine(str(tmp_path)) as writer:
        summary.adapted(writer).scalar("loss", 0.5, 1)
    [[value], step] = writer.added
    assert (value.tag, value.data, step) == ("loss", 0.5, 1)


class Recorder:
    """All that a writer of one's own has to have."""

    def __init__(self):
        self.calls = []

    def add_summary(self, summary, global_step=None):
        self.calls.append(([value.tag for value in summary], global_step))


class FullRecorder(Recorder):
    """What it may have."""

    def add_session_log(self, session_log, global_step=None):
        self.calls.append((session_log.status.name, global_step))

    def flush(self):
        self.calls.append("flush")


def test_a_writer_is_told_of_sessions_and_flushed_if_it_wants(model, train):
    writer = FullRecorder()
    train(save(writer, loss=summary.scalar("loss", model.loss)), steps=1)
    assert writer.calls == [("START", 1), (["loss"], 1), "flush"]


def test_what_is_no_writer_is_refused_when_the_hook_is_made():
    with pytest.raises(TypeError, match="summary_writer"):
        rh.SummarySaverHook(save_steps=1, summary_writer="runs/a", summary_op=[])


def test_hooks_that_share_a_writer_write_one_start_for_each_session(model):
    writer = FullRecorder()
    hooks = [
        save(writer, loss=summary.scalar("loss", model.loss)),
        rh.StepCounterHook(summary_writer=writer),
        rh.ThroughputHook(summary_writer=writer),
    ]
    with rh.MonitoredSession(hooks=hooks) as sess:
        sess.run(model.train_op)
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    assert [call for call in writer.calls if call != "flush"] == [
        *(("START", 1), (["loss"], 1)),
        *(("START", 1), (["loss"], 1)),
    ]


def test_a_file_has_the_graph_though_the_directory_was_removed_between_two_sessions(
    tmp_path, model, train
):
    for _ in range(2):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        hooks = [rh.StepCounterHook(1, output_dir=tmp_path / "run") for _ in range(2)]
        with rh.MonitoredSession(hooks=hooks) as sess:
            sess.run(model.train_op)
        (path,) = (tmp_path / "run").iterdir()
        events = list(EventFileLoader(str(path)).Load())
        assert [event.HasField("graph_def") for event in events].count(True) == 1
