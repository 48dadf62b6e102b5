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


def graphs_in(folder):
    """The graphs in the event files of a folder, as TensorFlow reads them."""
    records = tensorflow.data.TFRecordDataset([str(path) for path in sorted(folder.iterdir())])
    read = [tf.Event.FromString(record) for record in records.as_numpy_iterator()]
    return [tf.GraphDef.FromString(event.graph_def) for event in read if event.graph_def]


@pytest.mark.parametrize("session", [train.MonitoredSession, tf.train.MonitoredSession])
def test_every_directory_has_tensorflows_own_graph_once(session, tmp_path):
    with tensorflow.Graph().as_default() as graph:
        train_op = tf.train.get_or_create_global_step().assign_add(1)
        summary = tf.summary.scalar("one", tf.placeholder_with_default(1.0, [], name="one"))
        hooks = [
            train.SummarySaverHook(1, output_dir=str(tmp_path / "a"), summary_op=summary),
            train.StepCounterHook(1, output_dir=str(tmp_path / "a")),
            train.StepCounterHook(1, output_dir=str(tmp_path / "b")),
        ]
        for _ in range(2):
            with session(hooks=hooks) as running:
                running.run(train_op)
        expected = graph.as_graph_def(add_shapes=True)
    rh.summary.FileWriterCache.clear()
    for name in "ab":
        (found,) = graphs_in(tmp_path / name)
        # A second session adds what it needs.
        assert [node for node in expected.node if node.name in {it.name for it in found.node}] == [
            *found.node
        ]
        assert found.versions == expected.versions


def test_a_graph_of_tensorflows_is_written_whole(tmp_path):
    with tensorflow.Graph().as_default() as graph:
        tf.constant([1.0, 2.0], name="pair")
    with rh.summary.FileWriter(tmp_path, graph) as writer:
        writer.add_graph(graph.as_graph_def())
    assert graphs_in(tmp_path) == [graph.as_graph_def(add_shapes=True), graph.as_graph_def()]
