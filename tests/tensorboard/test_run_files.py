"""The files of a run: where they are, how they are opened and closed."""

from __future__ import annotations

import pickle
import socket
import threading

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2, summary_pb2
from torch.utils.tensorboard.summary import hparams

import runhooks as rh
from runhooks import events
from runhooks.tensorboard import SummaryWriter
from tests.tensorboard.conftest import events_in


def values_of(folder, tag="loss"):
    return events.read(folder)["."].scalars[tag].values.tolist()


def test_default_directory_names_time_host_and_comment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="_lr0.1") as writer:
        writer.add_scalar("loss", 1.0)
        assert writer.log_dir == writer.get_logdir() == writer.logdir
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith(f"_{socket.gethostname()}_lr0.1")
    assert writer.log_dir == f"runs/{folder.name}"


@pytest.mark.parametrize("make", [str, lambda path: path])
def test_directory_is_as_it_was_given(make, tmp_path):
    with SummaryWriter(make(tmp_path / "a" / "b")) as writer:
        assert writer.get_logdir() == make(tmp_path / "a" / "b")
        assert writer.file_writer.get_logdir() == str(tmp_path / "a" / "b")
    with SummaryWriter(logdir=make(tmp_path / "c")) as writer:
        assert writer.log_dir == make(tmp_path / "c")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"max_queue": -1}, "max_queue"),
        ({"flush_secs": -1}, "flush_secs"),
        ({"filename_suffix": "a/b"}, "filename_suffix"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, name, tmp_path):
    with pytest.raises(ValueError, match=name):
        SummaryWriter(tmp_path, **arguments)


@pytest.mark.parametrize("name", ["log_dir", "logdir"])
def test_what_is_no_directory_is_refused(name):
    with pytest.raises(TypeError, match=f"^{name} must be a str or a Path, got 3$"):
        SummaryWriter(**{name: 3})


def test_a_closed_writer_has_no_files_and_opens_new_ones(tmp_path):
    with SummaryWriter(tmp_path, "", 5, 20, 30, ".suffix") as writer:
        assert (writer.max_queue, writer.flush_secs, writer.filename_suffix) == (20, 30, ".suffix")
        writer.add_scalar("loss", 1.0, 5)
        writer.add_scalars("group", {"a": 1.0}, 1)
    assert (writer.file_writer, writer.all_writers) == (None, None)
    writer.close()
    writer.flush()
    writer.add_scalar("loss", 2.0, 6)
    writer.add_scalars("group", {"a": 2.0}, 2)
    writer.close()
    assert values_of(tmp_path) == [1, 2]
    assert values_of(tmp_path / "group_a", "group") == [1, 2]
    assert {path.suffix for path in tmp_path.rglob("*tfevents*")} == {".suffix"}


def test_purge_step_hides_what_was_written_before_in_sub_runs(tmp_path):
    for purge_step in (None, 3):
        with SummaryWriter(tmp_path, purge_step=purge_step) as writer:
            for step in range(purge_step or 0, 5):
                writer.add_scalars("rate", {"up": 0.5 if purge_step else 1.5}, step)
            writer.close()  # what is added then hides nothing that this writer has written
            writer.add_scalars("rate", {"up": 0.25}, 5)
    runs = events.read(tmp_path)
    assert runs["rate_up"].scalars["rate"].steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert runs["rate_up"].scalars["rate"].values.tolist() == [1.5] * 3 + [0.5] * 2 + [0.25]


def test_purge_step_hides_the_metrics_of_hyperparameters_that_were_written_before(tmp_path):
    for purge_step, accuracy in ((None, 0.75), (3, 0.5)):
        with SummaryWriter(tmp_path, purge_step=purge_step) as writer:
            for run_name in ("trial", "."):
                writer.add_hparams({"lr": 0.1}, {"accuracy": accuracy}, None, run_name, 9)
            writer.add_scalar("loss", accuracy, 9)
            writer.add_hparams({"lr": 0.1}, {"accuracy": accuracy}, None, ".", 10)
    for place, tag, count in (("trial", "accuracy", 1), ("", "accuracy", 2), ("", "loss", 1)):
        found = EventAccumulator(str(tmp_path / place)).Reload()
        assert [point.value for point in found.Scalars(tag)] == [0.5] * count


def test_a_pickled_writer_can_be_used_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter("run") as writer:
        pickled = pickle.dumps(writer)
    with pickle.loads(pickled) as copy:
        assert copy.file_writer.get_logdir() == "run"
        copy.add_scalar("loss", 0.5, 1)
        copy.add_scalars("rate", {"up": 1.5}, 1)
        copy.add_hparams({"lr": 0.1}, {"loss": 0.5}, run_name="hparams")
        copy.add_embedding(np.eye(2))
    assert values_of(tmp_path / "run") == [0.5]
    assert {"rate_up", "hparams"} <= events.read(tmp_path / "run").keys()
    assert (tmp_path / "run" / "projector_config.pbtxt").exists()


def test_purge_step_hides_what_was_written_before(tmp_path):
    for purge_step in (None, 3):
        with SummaryWriter(tmp_path, purge_step=purge_step, filename_suffix=".a") as writer:
            for step in range(purge_step or 0, 5):
                writer.add_scalar("loss", 0.5 if purge_step else 1.5, step)
    found = EventAccumulator(str(tmp_path)).Reload().Scalars("loss")
    assert [(point.step, point.value) for point in found] == [
        *((0, 1.5), (1, 1.5), (2, 1.5), (3, 0.5), (4, 0.5))
    ]


def test_nothing_is_written_to_disk(tmp_path):
    with SummaryWriter(tmp_path / "run", write_to_disk=False) as writer:
        writer.add_scalar("loss", 1.0, 1)
        writer.add_scalar("loss", np.float32(1))
        writer.add_scalars("group", {"a": 1})
        writer.add_histogram("h", np.ones(3))
        writer.add_hparams({"lr": 1}, {"loss": 1})
        writer.add_embedding(np.ones((2, 2)))
        writer.add_text("text", "text")
        writer.flush()
    assert list(tmp_path.iterdir()) == []


def test_threads_share_a_writer(tmp_path):
    def add(name):
        for step in range(500):
            writer.add_scalar(name, float(step), step)
            writer.add_scalars("group", {name: step}, step)

    with SummaryWriter(tmp_path) as writer:
        threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(values_of(tmp_path, name)) for name in "abcd"] == [500] * 4
    assert [len(values_of(tmp_path / f"group_{name}", "group")) for name in "abcd"] == [500] * 4


def test_file_writer_takes_messages_of_protocol_buffers(tmp_path):
    value = summary_pb2.Summary.Value(tag="loss", simple_value=0.5)
    message = summary_pb2.Summary(value=[value])
    with SummaryWriter(tmp_path) as writer:
        files = writer._get_file_writer()  # as PyTorch Lightning does
        for record in hparams({"lr": 0.1}, {"loss": 1}):
            files.add_summary(record)
        files.add_summary(message, 3, walltime=1.5)
        files.event_writer.add_event(event_pb2.Event(summary=message, step=4, wall_time=7.5))
        files.add_event(event_pb2.Event(summary=message, step=4), 5, 2.5)
        message.value[0].simple_value = 9
    *records, first, second, third = events_in(tmp_path)["."]
    assert [record.summary.value[0].tag[:10] for record in records] == ["_hparams_/"] * 3
    assert (first.step, first.wall_time) == (3, 1.5)
    assert (second.step, second.wall_time) == (4, 7.5)
    assert (third.step, third.wall_time) == (5, 2.5)
    assert {e.summary.value[0].simple_value for e in (first, second, third)} == {0.5}


def test_hooks_write_with_it(tmp_path):
    def step():
        return 0.5

    writer = SummaryWriter(tmp_path)
    graph = rh.Graph()
    with graph.as_default():
        loss = rh.summary.scalar("loss", rh.call(step, name="loss"))
        train_op = rh.train.get_or_create_global_step().assign_add(1)
        hook = rh.SummarySaverHook(save_steps=1, summary_writer=writer, summary_op=loss)
        hooks = [hook, rh.StopAtStepHook(last_step=3)]
        with rh.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train_op)
                writer.add_scalar("mine", 1.0, 2)
    assert not writer.closed
    writer.close()
    assert writer.closed
    assert len(values_of(tmp_path)) == len(values_of(tmp_path, "mine")) == 3
