"""Private names of TensorFlow's sessions and scaffolds work, or say what to do instead."""

import time

import pytest
import tensorflow

from runhooks.tensorflow import train

tf = tensorflow.compat.v1

SESSIONS = {
    "monitored": lambda **kw: train.MonitoredSession(train.ChiefSessionCreator(), **kw),
    "singular": train.SingularMonitoredSession,
    "training": train.MonitoredTrainingSession,
}


class OwnCreator(train.SessionCreator):
    def create_session(self):
        session = tf.Session()
        session.run(tf.global_variables_initializer())
        return session


def found_by_name(session):
    """As programs look for the session that a saver takes."""
    for _ in range(10):
        if type(session).__name__ == "Session":
            return session
        session = session._sess
    raise AssertionError("there is no session of that name")


@pytest.mark.parametrize("kind", SESSIONS)
def test_raw_session_is_found_in_every_way(kind, model, tmp_path):
    saver = tf.train.Saver()
    with SESSIONS[kind]() as session:
        raw = session._tf_sess()
        assert isinstance(raw, tf.Session)
        assert session._coordinated_creator.tf_sess is raw
        assert session._sess._sess._sess._sess is raw
        assert found_by_name(session) is raw
        session.run(model.train_op)
        saver.save(found_by_name(session), str(tmp_path / "model.ckpt"))
        assert not session._coordinated_creator.coord.should_stop()
        assert not session._is_closed()
    assert session._is_closed()
    assert session._coordinated_creator.tf_sess is None


def test_hooks_are_found_and_cannot_be_added_to_silently(model):
    hook = train.StopAtStepHook(last_step=3)
    with train.MonitoredTrainingSession(hooks=[hook]) as session:
        assert hook in session._hooks
        with pytest.raises(AttributeError):
            session._hooks.append(train.SessionRunHook())
        with pytest.raises(AttributeError):
            session._hooks = []


@pytest.mark.parametrize("name", ["_close_internal", "_graph_was_finalized", "_coord"])
def test_any_other_private_name_says_what_to_do(name, model):
    with train.MonitoredSession() as session:
        assert not hasattr(session, name)
        with pytest.raises(AttributeError, match=f"{name}.*run_step_fn"):
            getattr(session, name)


def test_scaffold_is_read_and_written_by_private_names(model):
    init_op, calls = tf.global_variables_initializer(), []
    scaffold = train.Scaffold(init_op=init_op)
    assert scaffold._init_op is init_op
    assert (scaffold._saver, scaffold._init_fn, scaffold._user_init_fn) == (None, None, None)
    assert train.Scaffold(init_fn=print)._user_init_fn is print
    scaffold._saver = saver = tf.train.Saver()
    scaffold._init_fn = calls.append
    scaffold._local_init_feed_dict = {model.fault: 0.0}
    with train.SingularMonitoredSession(scaffold=scaffold) as session:
        assert calls == [session.raw_session()]
    assert scaffold.saver is scaffold._saver is saver
    names = {name for name in vars(tf.train.Scaffold()) if name.startswith("_")}
    assert {name for name in names if not hasattr(scaffold, name)} == set()


@pytest.mark.parametrize("cadence", [{"every_steps": 3}, {"every_secs": 0.5}])
def test_timers_have_the_private_names_of_tensorflow(cadence):
    timer, theirs = train.SecondOrStepTimer(**cadence), tf.train.SecondOrStepTimer(**cadence)
    names = [name for name in vars(theirs) if name.startswith("_")]
    assert {it: getattr(timer, it) for it in names} == {it: getattr(theirs, it) for it in names}
    before = time.time()
    timer.update_last_triggered_step(7)
    assert timer._last_triggered_step == 7
    assert before <= timer._last_triggered_time <= time.time()
    hook = train.SummarySaverHook(save_steps=3, output_dir="d", summary_op="s")
    assert hook._timer._every_steps == 3
    assert train.LoggingTensorHook(["loss"], every_n_iter=3)._timer._every_steps == 3
    assert train.LoggingTensorHook(["loss"], every_n_secs=3)._timer._every_secs == 3


def test_default_local_init_op_is_made_in_a_function_too():
    ops = []

    def init():
        ops.append(train.Scaffold.default_local_init_op())

    tf.wrap_function(init, [])
    assert isinstance(ops[0], tensorflow.Operation)
