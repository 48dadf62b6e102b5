"""Epochs of a ``tf.Graph``, and the mean of a value over one, in either library's sessions."""

import numpy as np
import pytest
import tensorflow

import runhooks as rh
from runhooks.tensorflow import train

tf = tensorflow.compat.v1

#: Batches of several sizes: an epoch has three steps, of six examples.
BATCHES = [np.float32([0.1, 0.2, 0.7]), np.float32([0.3]), np.float32([0.9, 1.1])]
MEANS = [np.mean(it, dtype=np.float32) for it in BATCHES]


def by_minimize(loss, step):
    return tf.train.GradientDescentOptimizer(0.0).minimize(loss, step)


def in_a_group(loss, step):
    return tf.group(by_minimize(loss, None), step.assign_add(1))


def by_assign(loss, step):
    with tf.control_dependencies([by_minimize(loss, None)]):
        return step.assign(step + 1)


def in_a_function(loss, step):
    @tensorflow.function
    def count(made):
        step.assign_add(1)
        return made + 0.0

    with tf.control_dependencies([by_minimize(loss, None)]):
        return count(loss)


FORMS = [by_minimize, in_a_group, by_assign, in_a_function]
IN_EITHER = pytest.mark.parametrize(
    "session", [train.MonitoredTrainingSession, tf.train.MonitoredTrainingSession]
)


def build(form=by_minimize, *, use_resource=True):
    """A graph with a step; returns its train_op."""
    batch = tf.placeholder(tf.float32, [None], name="batch")
    weight = tf.get_variable("weight", [], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(batch * weight, name="loss")
    step = tf.get_variable(
        "global_step",
        [],
        tf.int64,
        tf.zeros_initializer(),
        trainable=False,
        use_resource=use_resource,
        collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.GLOBAL_STEP],
    )
    tf.add_to_collection(rh.GraphKeys.STEPS_PER_EPOCH, 3)
    return form(loss, step)


def run(train_op, tensors, session, folder=None, first=0, last=6, **cadence):
    """Train from step ``first``; return the values of ``tensors``, at the end of each epoch."""
    seen = []
    trigger = rh.Trigger(**(cadence or {"every_epochs": 1}))
    keep = rh.CallHook(
        lambda *it: seen.append([np.asarray(x).item() for x in it]), tensors, trigger=trigger
    )
    with session(
        checkpoint_dir=folder,
        hooks=[keep],
        save_summaries_steps=None,
        save_checkpoint_steps=100,
        log_step_count_steps=None,
    ) as running:
        for step in range(first, last):
            running.run(train_op, {"batch:0": BATCHES[step % 3]})
    return seen


def trained(session, form=by_minimize, weight=None, use_resource=True, **more):
    with tensorflow.Graph().as_default():
        train_op = build(form, use_resource=use_resource)
        return run(train_op, ["epoch", rh.epoch_mean("loss", weight)], session, **more)


def mean(count, weights=(3, 1, 2)):
    values, weights = np.float64(MEANS[:count]), weights[:count]
    return pytest.approx(np.average(values, weights=weights), rel=1e-7)


@IN_EITHER
@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_mean_of_the_epoch_weighted_by_examples(form, session):
    assert trained(session, form) == [[1, mean(3)], [2, mean(3)]]


@IN_EITHER
def test_it_is_the_mean_so_far_with_the_step_of_the_run(session):
    seen = trained(session, every_steps=1)
    assert seen == [[epoch, mean(count)] for epoch in (1, 2) for count in (1, 2, 3)]


def test_variables_by_reference_do_as_well():
    seen = trained(train.MonitoredTrainingSession, use_resource=False)
    assert seen == [[1, mean(3)], [2, mean(3)]]


@IN_EITHER
@pytest.mark.parametrize("last", [1, 3, 4])
def test_after_a_stop_in_mid_epoch_it_is_the_same_to_the_last_digit(last, session, tmp_path):
    before = trained(session, folder=tmp_path.as_posix(), last=last)
    after = trained(session, folder=tmp_path.as_posix(), first=last)
    assert before + after == trained(session)


def test_weights():
    session = train.MonitoredTrainingSession
    assert trained(session, weight=1, last=3) == [[1, mean(3, (1, 1, 1))]]
    assert trained(session, weight="loss", last=3) == [[1, mean(3, MEANS)]]


def test_each_mean_counts_the_runs_of_its_own_step(graph):
    step = tf.train.get_or_create_global_step()
    tf.add_to_collection(rh.GraphKeys.STEPS_PER_EPOCH, 4)
    makes, tensors = [], []
    for name in "ab":
        value = tf.placeholder(tf.float32, [], name)
        with tf.control_dependencies([tf.identity(value)]):
            makes.append(tf.assign_add(step, 1))
        tensors.append(rh.epoch_mean(name))
    with train.MonitoredSession() as session:
        session.run(makes[0], {"a:0": 1.0})
        session.run(makes[0], {"a:0": 2.0})
        session.run(makes[1], {"b:0": 5.0})
        assert session.run([makes[0], tensors[0]], {"a:0": 6.0})[1] == 3.0
        assert session.run([makes[1], tensors[1]], {"b:0": 7.0})[1] == 7.0  # of the next epoch


def test_the_same_call_returns_the_same_mean(graph):
    build()
    mean = rh.epoch_mean("loss")
    added = len(tf.get_default_graph().get_operations())
    assert rh.epoch_mean("loss:0") is mean
    assert len(tf.get_default_graph().get_operations()) == added
    assert rh.epoch_mean("loss", weight=1) is not mean


def test_an_error_says_what_a_graph_lacks(graph):
    value = tf.placeholder(tf.float32, [], "value")
    with pytest.raises(ValueError, match="epoch_mean goes by epochs.*GraphKeys.STEPS_PER_EPOCH"):
        rh.epoch_mean(value)
    tf.add_to_collection(rh.GraphKeys.STEPS_PER_EPOCH, 4)
    with pytest.raises(ValueError, match="the graph needs a global step"):
        rh.epoch_mean(value)
    step = tf.train.get_or_create_global_step()
    step.assign_add(1)
    with pytest.raises(ValueError, match="'value:0' needs: call epoch_mean when the graph has"):
        rh.epoch_mean(value)
    tf.group(tf.identity(value), step.assign_add(1))
    with pytest.raises(ValueError, match=r"'pair:0' must be a single number.*\(2,\)"):
        rh.epoch_mean(tf.constant([1.0, 2.0], name="pair"))
    rh.epoch_mean(value)


def test_the_step_of_a_graph_of_runhooks_may_be_a_function_of_tensorflow():
    total = tensorflow.Variable(0.0)

    @tensorflow.function
    def step(batch):
        total.assign_add(tensorflow.reduce_sum(batch))
        return tensorflow.reduce_mean(batch)

    def train_step(taken, batch):
        return taken + 1, {"loss": step(batch)}

    graph = rh.graph(train_step, taken=0, data=BATCHES, epochs=2)
    seen = []
    with graph.as_default():
        keep = rh.CallHook(
            lambda *it: seen.append([float(x) for x in it]),
            ["epoch", rh.epoch_mean("loss")],
            every_n_epochs=1,
        )
        rh.train.train("train_op", hooks=[keep])
    assert seen == [[1, mean(3)], [2, mean(3)]]
