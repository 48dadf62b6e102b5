"""Creating, losing and ending TensorFlow sessions under ours."""

import threading

import numpy as np
import pytest
import tensorflow

import runhooks as rh
from runhooks.tensorflow import train

tf = tensorflow.compat.v1


class LoseAt(train.SessionRunHook):
    """Loses the session after some runs, once each."""

    def __init__(self, *runs, error=tf.errors.AbortedError):
        self.runs, self.made, self.error = set(runs), 0, error

    def after_run(self, run_context, run_values):
        self.made += 1
        if self.made in self.runs:
            raise self.error(None, None, "a server went away")


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_lost_session_goes_on_from_the_last_checkpoint(model, tmp_path, error):
    steps = []
    hooks = [train.StopAtStepHook(last_step=6), LoseAt(4, error=error)]
    with train.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, hooks=hooks, save_checkpoint_steps=2
    ) as session:
        while not session.should_stop():
            session.run(model.train_op)
            steps.append(session.global_step)
        assert session.recoveries == 1
    assert steps == [1, 2, 3, 3, 4, 5, 6]
    reader = tf.train.load_checkpoint(str(tmp_path))
    np.testing.assert_array_equal(reader.get_tensor("weights"), [6, 6])


def test_damaged_checkpoint_is_skipped_for_the_one_before(model, tmp_path, caplog):
    def loop(last_step):
        with train.MonitoredTrainingSession(
            checkpoint_dir=tmp_path,
            hooks=[train.StopAtStepHook(last_step=last_step)],
            save_checkpoint_steps=2,
        ) as session:
            first = session.global_step
            while not session.should_stop():
                session.run(model.train_op)
            return first

    assert loop(4) == 0
    (data,) = tmp_path.glob("model.ckpt-4.data*")
    data.write_bytes(data.read_bytes()[:-4])
    assert loop(5) == 2
    assert "model.ckpt-4 is damaged" in caplog.text


def test_scaffold_is_filled_with_what_tensorflow_needs(graph):
    tf.get_variable("local", initializer=1, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    tf.get_variable("shared", initializer=2)
    scaffold = train.Scaffold().finalize()
    with tf.Session() as session:
        assert set(session.run(scaffold.ready_op)) == {b"local", b"shared"}
        session.run([scaffold.init_op, scaffold.local_init_op])
        assert session.run(scaffold.ready_op).size == 0


def test_worker_waits_for_the_chief_of_a_server(model):
    server = tf.train.Server.create_local_server()
    ready, seen = threading.Event(), []

    def work(graph):
        with graph.as_default():
            ready.set()
            with train.MonitoredTrainingSession(server.target, is_chief=False) as session:
                seen.append(session.run(model.loss))

    # The graph must be complete, for a scaffold of another thread may not add to a final one.
    scaffold = train.Scaffold().finalize()
    worker = threading.Thread(target=work, args=(tf.get_default_graph(),), daemon=True)
    worker.start()
    assert ready.wait(60)
    with train.MonitoredTrainingSession(server.target, scaffold=scaffold) as chief:
        chief.run(model.train_op)
        worker.join(60)
        assert seen == [0.0] or seen == [2.0]


def test_steps_of_another_worker_are_seen(model):
    server = tf.train.Server.create_local_server()
    with train.MonitoredTrainingSession(server.target) as chief:
        with tf.Session(server.target) as other:
            for _ in range(3):
                other.run(model.train_op)
        chief.run(model.loss)
        assert chief.global_step == 3


def test_closed_session_says_so(model):
    session = train.SingularMonitoredSession()
    raw = session.raw_session()
    raw.run(model.train_op)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        raw.run(model.train_op)
    assert raw.global_step == 1


def test_cause_of_a_loss_is_told_without_the_places_where_it_arose(model, caplog):
    class Faulty(train.SessionRunHook):
        is_first = True

        def before_run(self, run_context):
            if self.is_first:
                self.is_first = False
                return train.SessionRunArgs(None, {model.fault: float("nan")})
            return None

    class LosingCreator(train.SessionCreator):
        def create_session(self):
            session = train.ChiefSessionCreator().create_session()
            run = session.run

            def losing(*args, **kwargs):
                try:
                    return run(*args, **kwargs)
                except tf.errors.InvalidArgumentError as error:
                    message = error.message  # of several lines, as a server's are
                    raise tf.errors.AbortedError(None, error.op, message) from None

            session.run = losing
            return session

    with train.MonitoredSession(LosingCreator(), hooks=[Faulty()]) as session:
        session.run(model.train_op)
    assert "AbortedError('faulty : Tensor had NaN values')" in caplog.text


@pytest.mark.parametrize("place", ["scaffold", "hook"])
def test_saver_of_the_other_engines_is_refused(model, tmp_path, place):
    saver, hooks, scaffold = rh.Saver(), [], None
    if place == "hook":
        hooks = [train.CheckpointSaverHook(tmp_path, save_steps=1, saver=saver)]
    else:
        scaffold = train.Scaffold(saver=saver)
    with pytest.raises(TypeError, match="saver"):
        train.SingularMonitoredSession(hooks, scaffold)


def test_scaffold_of_tensorflow_is_for_its_graphs_alone(graph):
    with pytest.raises(TypeError, match="scaffold"), rh.Graph().as_default():
        rh.ChiefSessionCreator(tf.train.Scaffold())


class Counting(train.SessionRunHook):
    """Counts the runs of a training, over all its sessions."""

    def __init__(self):
        self.count = 0

    def after_run(self, run_context, run_values):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def counted(model, folder, last_step, *hooks):
    counting = Counting()
    with train.MonitoredTrainingSession(
        checkpoint_dir=folder,
        hooks=[train.StopAtStepHook(last_step=last_step), counting, *hooks],
        save_checkpoint_steps=2,
    ) as session:
        while not session.should_stop():
            session.run(model.train_op)
    return counting.count


def test_what_hooks_keep_comes_back_with_a_checkpoint_and_when_a_session_is_lost(model, tmp_path):
    assert counted(model, tmp_path, 3) == 3
    assert counted(model, tmp_path, 5) == 5
    assert counted(model, tmp_path, 9, LoseAt(2)) == 9


@pytest.mark.parametrize("sharded", [False, True])
def test_what_hooks_keep_goes_with_checkpoints_of_the_old_format(model, tmp_path, sharded):
    saver = tf.train.Saver(max_to_keep=2, sharded=sharded, write_version=tf.train.SaverDef.V1)
    hooks = [
        train.StopAtStepHook(last_step=8),
        Counting(),
        train.CheckpointSaverHook(tmp_path, save_steps=2, saver=saver),
    ]
    with train.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(model.train_op)
    kept = {path.name for path in tmp_path.glob("*.hooks")}
    assert kept == {"model.ckpt-6.hooks", "model.ckpt-8.hooks"}


def test_damage_of_what_hooks_keep_costs_no_checkpoint(model, tmp_path, caplog):
    counted(model, tmp_path, 3)
    for path in (tmp_path / "model.ckpt-3.hooks").iterdir():
        path.write_bytes(b"")
    assert counted(model, tmp_path, 5) == 2
    assert "hooks start over" in caplog.text


@pytest.mark.parametrize("answer", [True, False])
def test_a_scaffold_may_say_that_a_session_is_ready_by_a_bool(model, answer):
    ready = tf.constant(answer, name="ready")
    creator = train.ChiefSessionCreator(train.Scaffold(ready_op=ready))
    if answer:
        with train.MonitoredSession(creator) as session:
            assert session.run(model.loss) == 0.0
    else:
        with pytest.raises(RuntimeError, match="error: ready:0 is False$"):
            train.MonitoredSession(creator)


def test_a_ragged_tensor_is_fetched_whole(graph):
    class Asks(train.SessionRunHook):
        def before_run(self, run_context):
            return train.SessionRunArgs({"it": ragged})

        def after_run(self, run_context, run_values):
            self.got = run_values.results["it"]

    ragged = tensorflow.ragged.constant([[1, 2], [3]])
    hook = Asks()
    with train.MonitoredSession(hooks=[hook]) as session:
        alone, (listed,) = session.run(ragged), session.run([ragged])
    for got in (alone, listed, hook.got):
        assert got.to_list() == [[1, 2], [3]]


@pytest.mark.parametrize("hook_feeds_pair", [False, True])
def test_a_hook_feeds_beside_a_key_of_several_tensors(graph, hook_feeds_pair):
    one, two, three = (tf.placeholder(tf.int32, [], name=name) for name in ("a", "b", "c"))
    total, pair = one + two + three, {(one, two): (1, 2)}
    mine, other = ({three: 100}, pair) if hook_feeds_pair else (pair, {three: 100})
    with train.MonitoredSession(hooks=[train.FeedFnHook(lambda: other)]) as session:
        assert session.run(total, mine) == 103
        with pytest.raises(RuntimeError, match="'[ac]:0' is fed by .* and by FeedFnHook"):
            session.run(total, {one: 1, three: 1})


@pytest.mark.parametrize(("dtype", "value"), [(tf.bool, 2), (tf.string, 5), (tf.int8, 300)])
def test_an_int_that_a_tensor_cannot_hold_is_refused(graph, dtype, value):
    held = tf.placeholder(dtype, [])
    fetched = tf.identity(held)
    with train.MonitoredSession() as session, pytest.raises(TypeError, match="not compatible"):
        session.run(fetched, {held: value})


def test_an_int_is_fed_as_a_bool(graph):
    held = tf.placeholder(tf.bool, [])
    fetched = tf.identity(held)
    with train.MonitoredSession() as session:
        assert [bool(session.run(fetched, {held: value})) for value in (0, 1)] == [False, True]
