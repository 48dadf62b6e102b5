from types import SimpleNamespace

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import read_events


@pytest.fixture
def summary(model):
    return rh.summary.scalar("loss", model.loss)


def points(path):
    return [(scalar.step, scalar.value) for scalar in read_events(path)]


@pytest.mark.every_engine
def test_a_list_of_summaries(train, model, summary, tmp_path):
    twice = rh.summary.scalar("twice", model.loss * 2)
    train(rh.SummarySaverHook(2, output_dir=tmp_path, summary_op=[summary, twice]), steps=3)
    assert [(s.step, s.tag, s.value) for s in read_events(tmp_path)] == [
        (1, "loss", 0.0),
        (1, "twice", 0.0),
        (3, "loss", 4.0),
        (3, "twice", 8.0),
    ]


@pytest.mark.every_engine
def test_strings_are_tensors_too(train, tmp_path):
    strings = rh.summary.tensor_summary("t", ["a", "b"])
    train(rh.SummarySaverHook(2, output_dir=tmp_path, summary_op=strings), steps=1)
    ((_, _, value),) = rh.events.read(tmp_path)["."].tensors["t"]
    assert value.tolist() == [b"a", b"b"]


def test_the_summaries_of_a_scaffold(model, summary, tmp_path):
    scaffold = rh.Scaffold()
    hook = rh.SummarySaverHook(10, output_dir=tmp_path, scaffold=scaffold)
    with rh.SingularMonitoredSession(hooks=[hook], scaffold=scaffold) as sess:
        sess.run(model.train_op)
    assert points(tmp_path) == [(1, 0.0)]


def test_a_subclass_may_give_the_summary_that_a_scaffold_lacks(train, summary, tmp_path):
    class Saver(rh.SummarySaverHook):
        def _get_summary_op(self):
            given = super()._get_summary_op()
            return [summary] if given is None else given

    train(Saver(1, output_dir=tmp_path, scaffold=SimpleNamespace(summary_op=None)), steps=1)
    assert points(tmp_path) == [(1, 0.0)]


def test_without_a_place_to_write_to_nothing_begins(train, summary):
    with pytest.raises(ValueError, match="output_dir or summary_writer must be given"):
        train(rh.SummarySaverHook(2, summary_op=summary), steps=3)


@pytest.mark.parametrize("name", ["grads", "w", "x", "grads/a"])
def test_value_of_a_step_is_no_summary(name, tmp_path):
    graph = rh.graph(lambda w, x: (w + x, {"grads": {"a": x}}), w=np.zeros(2))
    hook = rh.SummarySaverHook(100, output_dir=tmp_path, summary_op=name)
    message = rf"summary_op must be a summary, got '{name}': .* rh\.summary\.scalar\('{name}'"
    with graph.as_default(), pytest.raises(ValueError, match=message):
        rh.MonitoredSession(hooks=[hook])


def test_the_summary_is_computed_on_due_steps_alone(tmp_path):
    computed = []
    with rh.Graph().as_default():
        step = rh.train.get_or_create_global_step()
        value = rh.call(lambda s: computed.append(int(s)) or 1.0, step)
        hook = rh.SummarySaverHook(
            5, output_dir=tmp_path, summary_op=rh.summary.scalar("value", value)
        )
        add = step.assign_add(1)
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for _ in range(12):
                sess.run(add)
    assert computed == [0, 5, 10]


@pytest.mark.every_engine
def test_each_directory_that_hooks_write_to_has_the_graph_once(model, tmp_path, written):
    summary = rh.summary.scalar("loss", model.loss, collections=[])
    hooks = [
        rh.SummarySaverHook(save_steps=1, output_dir=tmp_path / "a", summary_op=summary),
        rh.StepCounterHook(1, output_dir=tmp_path / "a"),
        rh.StepCounterHook(1, output_dir=tmp_path / "b"),
        rh.CheckpointSaverHook(tmp_path / "c", save_steps=1, save_graph_def=False),
    ]
    with rh.MonitoredSession(hooks=hooks) as sess:
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    for folder in "abc":
        graphs = [event.graph_def for event in written(tmp_path / folder) if event.graph_def]
        assert graphs == [rh.summary.encode_graph(model.loss.graph)]


def start_with_summary_at_end(value, directory):
    rh.train.create_global_step()
    op = rh.summary.scalar("value", value)
    hook = rh.SummarySaverHook(trigger=rh.Trigger(at_end=True), output_dir=directory, summary_op=op)
    rh.MonitoredSession(hooks=[hook])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rh.placeholder("x") * 2, "at_end: placeholder 'x:0'"),
        (lambda: rh.inputs([1.0], name="batch"), "at_end: .* draws from the input 'batch'"),
        (lambda: rh.Variable(1.0, name="w").assign_add(1), "at_end: .* changes 'w'"),
        (
            lambda: rh.call(lambda key: 1.0, rh.random_key(name="key")),
            "at_end: .* changes 'key/runs'",
        ),
    ],
)
def test_what_the_end_cannot_compute_is_told_at_the_start(graph, make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        start_with_summary_at_end(make(), tmp_path)
