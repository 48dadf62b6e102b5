"""The global step of a TensorFlow session: known after each run, at no run of its own."""

import collections

import numpy as np
import pytest
import tensorflow

import runhooks as rh
from runhooks.tensorflow import train

tf = tensorflow.compat.v1


def test_training_step_is_one_run(model, runs):
    hooks = [train.StopAtStepHook(last_step=100), train.StepCounterHook(every_n_steps=50)]
    with train.MonitoredSession(hooks=hooks) as session:
        session.run(model.train_op)
        runs.clear()
        for step in range(2, 40):
            session.run(model.train_op)
            assert session.global_step == step
        assert len(runs) == 38


@pytest.mark.parametrize("use_resource", [True, False])
def test_step_of_either_kind_of_variable_is_known(use_resource, graph, runs):
    with tf.variable_scope("", use_resource=use_resource):
        step = tf.train.create_global_step()
    changes = [tf.assign_add(step, 3), tf.assign(step, 1), tf.assign_sub(step, 1)]
    with train.MonitoredSession() as session:
        assert session.global_step == 0
        runs.clear()
        for op, expected in zip(changes, (3, 1, 0), strict=True):
            session.run(op.op)
            assert session.global_step == expected
    assert len(runs) == 3
    # What reads a reference may change the order of operations that race.
    added = [op for op in graph.get_operations() if op.name.startswith("runhooks")]
    assert bool(added) == use_resource


def third_loss(library, use_resource):
    """The loss that a hook fetches beside the third step, of variables that the step changes."""

    class FetchesLoss(library.SessionRunHook):
        losses = ()
        runs = 0

        def before_run(self, run_context):
            self.runs += 1
            return library.SessionRunArgs([step, loss] if self.runs == 3 else [step])

        def after_run(self, run_context, run_values):
            self.losses += tuple(run_values.results[1:])

    hook = FetchesLoss()
    config = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    with tensorflow.Graph().as_default(), tf.variable_scope("", use_resource=use_resource):
        weights = tf.get_variable("weights", initializer=[1.0, 2.0])
        step = tf.train.create_global_step()
        loss = tf.reduce_sum(tf.square(weights))
        train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        creator = library.ChiefSessionCreator(config=config)
        with library.MonitoredSession(creator, hooks=[hook]) as session:
            for _ in range(3):
                session.run(train_op)
    return hook.losses


@pytest.mark.parametrize("use_resource", [True, False])
def test_operations_that_race_in_one_thread_are_ordered_as_by_tensorflow(use_resource):
    assert third_loss(train, use_resource) == third_loss(tf.train, use_resource)


@pytest.mark.parametrize("control_flow_v2", [True, False])
def test_step_increased_in_a_branch_is_read_after_the_run(graph, control_flow_v2):
    if not control_flow_v2:
        tf.disable_control_flow_v2()
    try:
        _increase_in_a_branch()
    finally:
        tf.enable_control_flow_v2()


def _increase_in_a_branch():
    with_step = tf.placeholder(tf.bool, [])
    step = tf.train.create_global_step()
    op = tf.cond(with_step, lambda: tf.identity(tf.assign_add(step, 2)), lambda: tf.identity(step))
    with train.MonitoredSession() as session:
        steps = []
        for choice in (True, False, True):
            session.run(op, {with_step: choice})
            steps.append(session.global_step)
    assert steps == [2, 2, 4]


def test_step_after_a_run_that_failed_in_the_middle_is_read(graph):
    step, bad = tf.train.create_global_step(), tf.placeholder(tf.float32, [])
    with tf.control_dependencies([tf.assign_add(step, 1)]):
        op = tf.check_numerics(bad, "faulty")
    with train.MonitoredSession() as session:
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(op, {bad: float("nan")})
        assert session.global_step == 1


def test_a_callable_of_a_monitored_session_calls_hooks_and_is_one_run(model, runs):
    asked = train.FinalOpsHook(model.loss), train.StopAtStepHook(last_step=3)
    with train.MonitoredSession(hooks=asked) as session:
        step = session.make_callable([model.train_op, {"loss": model.loss}], [model.fault])
        step(0.0)
        runs.clear()
        step(np.float32(0))
        assert len(runs) == 1
        assert session.global_step == 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="faulty"):
            step(float("nan"))
        assert not session.should_stop()
        step(0.0)
        assert session.should_stop()
    assert asked[0].final_ops_values == 6.0


class Notes(rh.SessionRunHook):
    """Sleeps until the step is divisible by ten, and notes the steps at which it is called."""

    def __init__(self):
        self.timer, self.steps = rh.Timer(rh.Trigger(every_steps=10)), []

    def next_due(self):
        return self.timer.due()

    def before_run(self, run_context):
        self.steps.append(run_context.next_step)

    def after_run(self, run_context, run_values):
        self.timer.update_last_triggered_step(run_context.session.global_step)


BETWEEN = {
    "assign": lambda raw, model: raw.assign({"global_step": 18}),
    "run": lambda raw, model: [raw.run(model.train_op) for _ in range(14)],
    "callable": lambda raw, model: [raw.make_callable(model.train_op)() for _ in range(14)],
}


@pytest.mark.parametrize("feeds", [False, True])
@pytest.mark.parametrize("between", [*BETWEEN, "another run"])
def test_step_that_something_else_has_moved_makes_hooks_due_in_time(model, between, feeds):
    hook, moves = Notes(), tf.assign(model.global_step, 18).op
    actions = {**BETWEEN, "another run": lambda raw, model: raw.run(moves)}
    feed_dict = {model.fault: 0.0} if feeds else None
    with train.SingularMonitoredSession(hooks=[hook]) as session:
        raw = session.raw_session()
        for _ in range(4):
            session.run(model.train_op, feed_dict)
        hook.steps.clear()
        actions[between](raw, model)
        assert session.global_step == 18
        for _ in range(20):
            session.run(model.train_op, feed_dict)
        assert hook.steps == [19, 20, 30]


def test_runs_that_make_several_steps_or_none_meet_the_hooks_in_time(model):
    hook, three = Notes(), tf.assign_add(model.global_step, 3)
    by_variable = tf.assign_add(model.global_step, tf.cast(model.weights[0], tf.int64) * 0 + 2)
    with train.SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(5):
            assert session.run(model.loss) is not None
        for fetches in (three, by_variable, model.train_op):
            for _ in range(12):
                session.run(fetches)
        assert session.global_step == 72
    assert [step // 10 for step in hook.steps] == list(range(1, 8))


def test_runs_that_need_all_of_session_run_count_too(model):
    with train.MonitoredSession() as session:
        session.run(model.train_op, options=tf.RunOptions(), run_metadata=tf.RunMetadata())
        assert session.global_step == 1
        session.run(collections.defaultdict(list, a=model.train_op))
        assert session.global_step == 2


def test_session_of_tensorflows_own_creator_makes_no_further_runs(model, runs):
    creator = tf.train.ChiefSessionCreator(tf.train.Scaffold())
    hooks = [train.StopAtStepHook(last_step=9), train.NanTensorHook(model.loss, late=True)]
    with train.MonitoredSession(creator, hooks=hooks) as session:
        session.run(model.train_op)
        runs.clear()
        session.run(model.train_op)
        assert session.global_step == 2
        assert len(runs) == 1


def fed(session, fetches, feed_dict, last_step):
    """Make such runs until a hook stops the session, and return the steps after them."""
    steps = []
    while not session.should_stop() and len(steps) < 2 * last_step:
        session.run(fetches, feed_dict)
        steps.append(session.global_step)
    return steps


class FromOutside(train.SessionCreator):
    """Creates a session of TensorFlow's own, which is adopted."""

    def create_session(self):
        session = tf.Session()
        session.run(tf.get_collection("init"))
        return session


@pytest.mark.parametrize("shared", [False, "server", "adopted"])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_step_that_the_caller_feeds_is_not_taken_for_the_new_one(model, shared, by_name):
    step, creator = model.global_step, None
    rate = tf.cast(step, tf.float32) * 0.1
    key = tf.get_default_graph().as_graph_element(step).name if by_name else step
    tf.add_to_collection("init", tf.global_variables_initializer())
    if shared == "adopted":
        creator = FromOutside()
    elif shared:
        server = tf.train.Server.create_local_server()
        creator = train.ChiefSessionCreator(master=server.target)
    hooks = [train.StopAtStepHook(last_step=3)]
    with train.MonitoredSession(creator, hooks) as session:
        steps = []
        while not session.should_stop():
            session.run(rate, {key: 1000})
            session.run(model.train_op)
            steps.append(session.global_step)
    assert steps == [1, 2, 3]


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_step_whose_result_is_fed_is_not_made(graph, use_resource):
    with tf.variable_scope("", use_resource=use_resource):
        made = tf.identity(tf.assign_add(tf.train.create_global_step(), 1))
    after = made + 1
    with train.MonitoredSession() as session:
        assert session.run(after, {made: 10}) == 11
        assert session.global_step == 0


def test_the_increase_of_a_step_may_be_fed(graph):
    increase = tf.constant(1, tf.int64)
    op = tf.assign_add(tf.train.create_global_step(), increase)
    with train.MonitoredSession(hooks=[train.StopAtStepHook(last_step=20)]) as session:
        session.run(op)
        session.run(op)
        assert fed(session, op, {increase: 5}, 20) == [7, 12, 17, 22]


def test_a_step_that_is_increased_through_an_identity_of_its_handle_is_known(graph, runs):
    handle = tf.identity(tf.train.create_global_step().handle)
    op = tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(1, tf.int64))
    with train.MonitoredSession(hooks=[train.StopAtStepHook(last_step=3)]) as session:
        runs.clear()
        assert fed(session, op, None, 3) == [1, 2, 3]
        assert len(runs) == 3


@pytest.mark.parametrize("creator", [None, FromOutside()])
def test_steps_of_partial_runs_are_noticed(graph, tmp_path, creator):
    fed_later = tf.placeholder(tf.int64, [])
    made = tf.assign_add(tf.train.create_global_step(), 1)
    total = made + fed_later
    tf.add_to_collection("init", tf.global_variables_initializer())

    def step(step_context):
        raw = step_context.session
        handle = raw.partial_run_setup([made, total], [fed_later])
        value = raw.partial_run(handle, made)
        return raw.partial_run(handle, total, {fed_later: value})

    saver = train.CheckpointSaverHook(tmp_path, save_steps=100, saver=tf.train.Saver())
    with train.MonitoredSession(creator, [saver, train.StopAtStepHook(last_step=3)]) as session:
        session.run(fed_later, {fed_later: 0})
        for number in (1, 2, 3):
            assert session.run_step_fn(step) == 2 * number
            assert session.global_step == number
        session.run(fed_later, {fed_later: 0})
        assert session.should_stop()
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-3")
