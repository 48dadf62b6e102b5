"""Nothing is hidden in TensorBoard, whoever writes beside whom in the directory of a run."""

from pathlib import Path

import pytest
import tensorflow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import runhooks as rh
from runhooks import events
from runhooks.tensorflow import train

tf = tensorflow.compat.v1

LIBRARIES = {"ours": train, "TensorFlow's": tf.train}


@pytest.fixture(autouse=True)
def no_writers():
    yield
    tf.summary.FileWriterCache.clear()
    rh.summary.FileWriterCache.clear()


def seen(folder):
    """The steps of each scalar, as TensorBoard shows them; our reader sees the same."""
    tf.summary.FileWriterCache.clear()
    rh.summary.FileWriterCache.clear()
    theirs = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    steps = {tag: [it.step for it in theirs.Scalars(tag)] for tag in theirs.Tags()["scalars"]}
    ours = events.read(folder)["."].scalars
    assert {tag: ours[tag].steps.tolist() for tag in ours} == steps
    return steps


class WritesItself(tf.train.SessionRunHook):
    """A program that gets a writer for the directory by itself."""

    def __init__(self, get):
        self.get = get

    def begin(self):
        self.writer, self.step = self.get(), 0

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, run_context, run_values):
        self.step += 1
        value = tf.Summary.Value(tag="own", simple_value=1.0)
        self.writer.add_summary(tf.Summary(value=[value]), self.step)


def run(library, folder, hooks, last_step):
    with tensorflow.Graph().as_default() as graph:
        train_op = tf.train.get_or_create_global_step().assign_add(1)
        made = [*(hook(graph) for hook in hooks), tf.train.StopAtStepHook(last_step=last_step)]
        with library.MonitoredTrainingSession(
            checkpoint_dir=str(folder),
            hooks=made,
            save_checkpoint_steps=2,
            save_summaries_steps=None,
            log_step_count_steps=None,
            save_checkpoint_secs=None,
        ) as session:
            while not session.should_stop():
                session.run(train_op)


def saver(library, folder, tag):
    def make(graph):
        value = tf.Summary.Value(tag=tag, simple_value=1.0)
        op = tensorflow.constant(tf.Summary(value=[value]).SerializeToString())
        return library.SummarySaverHook(save_steps=1, output_dir=str(folder), summary_op=op)

    return make


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("order", [1, -1])
def test_summary_savers_of_both_in_one_session(library, order, tmp_path):
    hooks = [saver(train, tmp_path, "a"), saver(tf.train, tmp_path, "b")][::order]
    hooks += [saver(train, tmp_path, "c"), saver(tf.train, tmp_path, "d")]
    run(LIBRARIES[library], tmp_path, hooks, 3)
    assert seen(tmp_path) == {tag: [1, 2, 3] for tag in "abcd"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_sessions_one_after_the_other(library, tmp_path):
    hooks = [saver(train, tmp_path, "a"), saver(tf.train, tmp_path, "b")]
    for last_step in (3, 5, 7):
        run(LIBRARIES[library], tmp_path, hooks, last_step)
    assert seen(tmp_path) == {tag: [1, 2, 3, 4, 5, 6, 7] for tag in "ab"}


@pytest.mark.parametrize("when", ["before", "in begin"])
@pytest.mark.parametrize("which", ["TensorFlow's cache", "our cache", "our writer"])
def test_writer_of_the_program(which, when, tmp_path):
    get = {
        "TensorFlow's cache": lambda: tf.summary.FileWriterCache.get(str(tmp_path)),
        "our cache": lambda: rh.summary.FileWriterCache.get(tmp_path),
        "our writer": lambda: rh.summary.FileWriter(tmp_path),
    }[which]
    if when == "before":
        with tensorflow.Graph().as_default():
            writer = get()
        get = lambda: writer  # noqa: E731
    own = WritesItself(get)
    run(train, tmp_path, [saver(train, tmp_path, "a"), lambda graph: own], 3)
    own.writer.close()
    assert seen(tmp_path) == {"a": [1, 2, 3], "own": [1, 2, 3]}


def test_steps_that_are_made_again_replace_those_of_both(tmp_path):
    hooks = [saver(train, tmp_path, "a"), saver(tf.train, tmp_path, "b")]
    run(train, tmp_path, hooks, 4)
    for step in (3, 4):
        for path in Path(tmp_path).glob(f"model.ckpt-{step}*"):
            path.rename(path.with_name(f"away-{path.name}"))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    run(train, tmp_path, hooks, 5)
    assert seen(tmp_path) == {"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5]}
