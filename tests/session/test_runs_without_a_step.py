"""Runs that do not increase the global step, between those that do: when hooks act."""

import pytest

import runhooks as rh


class EveryRun(rh.SessionRunHook):
    """Notes in every run the step that it is said to lead to, and the one it leads to."""

    def __init__(self):
        self.seen = []

    def before_run(self, run_context):
        self.told = run_context.next_step

    def after_run(self, run_context, run_values):
        self.seen.append((self.told, run_context.session.global_step))


class Sleeper(rh.SessionRunHook):
    """Notes the steps at which a trigger makes it act."""

    def __init__(self, **trigger):
        self.timer = rh.Timer(rh.Trigger(**trigger))
        self.seen = []

    def after_create_session(self, session, coord):
        self.timer.start(session.global_step)

    def next_due(self):
        return self.timer.due()

    def before_run(self, run_context):
        self.timer.update_last_triggered_step(run_context.next_step)

    def after_run(self, run_context, run_values):
        self.seen.append((run_context.next_step, run_context.session.global_step))


def own_graph(engine):
    graph = rh.Graph(engine=engine)
    with graph.as_default():
        weight = rh.Variable(1.0, name="weight")
        rh.call(lambda weight: weight * 2, weight, name="loss")
        changed = weight.assign(rh.call(lambda weight: weight + 1, weight))
        rh.group(changed, rh.train.get_or_create_global_step().assign_add(1), name="train_op")
    return graph, "train_op", "loss:0"


def tensorflow_graph():
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        loss = tf.constant(1.0) * 2
        train_op = tf.compat.v1.assign_add(step, 1)
    return graph, train_op, loss


@pytest.mark.parametrize("engine", ["python", "jax", "tensorflow"])
def test_hooks_are_told_the_step_and_act_in_the_run_that_makes_it(engine):
    graph, train_op, loss = tensorflow_graph() if engine == "tensorflow" else own_graph(engine)
    every_run, sleeper = EveryRun(), Sleeper(every_steps=3)
    with graph.as_default(), rh.MonitoredSession(hooks=[every_run, sleeper]) as session:
        for _ in range(7):
            session.run(loss)
            session.run(loss)
            session.run(train_op)
    assert every_run.seen == [(step, step) for at in range(7) for step in (at, at, at + 1)]
    assert sleeper.seen == [(3, 3), (6, 6)]


def test_hook_that_goes_by_seconds_acts_in_runs_that_make_no_step():
    graph, _, loss = own_graph("python")
    sleeper = Sleeper(every_secs=0)
    with graph.as_default(), rh.MonitoredSession(hooks=[sleeper]) as session:
        session.run(loss)
        session.run(loss)
    assert sleeper.seen == [(0, 0), (0, 0)]
