"""MonitoredSession and SingularMonitoredSession, as their users see them."""

import signal

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook

# stopping and closing


def test_request_stop_ends_the_loop_and_keeps_the_reason(model):
    with rh.MonitoredSession() as sess:
        assert sess.stop_reason is None
        sess.request_stop("the loss is low enough")
        assert sess.should_stop()
        assert sess.stop_reason == "the loss is low enough"


@pytest.mark.parametrize(
    ("source", "epochs"), [([1], " (epochs=1)"), (lambda step: [1], ""), (iter([1]), "")]
)
def test_stop_reason_after_the_end_of_the_input_names_it(graph, source, epochs):
    number = rh.inputs(source, name="numbers")
    with rh.MonitoredSession() as sess:
        while True:
            sess.run(number)
    assert sess.stop_reason == f"the input 'numbers' has no more elements{epochs}"


def test_run_without_hooks_goes_on_after_a_stop_as_an_evaluation_does(model):
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(num_steps=1)]) as sess:
        sess.run(model.train_op)
        sess.run(model.loss, hooks=False)
    assert sess.stop_reason == "StopAtStepHook"


def test_graph_that_was_finalized_by_its_user_stays_so(model, graph):
    graph.finalize()
    with rh.MonitoredSession() as sess:
        sess.run(model.train_op)
    assert graph.finalized


# run_step_fn


def test_step_fn_runs_raw_or_with_hooks_as_it_likes(model):
    hook = RecordingHook(fetches=model.global_step)

    def step_fn(step_context):
        loss = step_context.session.run(model.loss)
        step_context.run_with_hooks(model.train_op)
        return loss

    with rh.MonitoredSession(hooks=[hook]) as sess:
        assert [sess.run_step_fn(step_fn) for _ in range(2)] == [0.0, 2.0]
    assert hook.results == [0, 1]


@pytest.mark.every_engine
def test_lost_session_repeats_the_whole_step_fn_on_the_new_one(model):
    sessions = []

    def step_fn(step_context):
        sessions.append(step_context.session)
        step_context.run_with_hooks(model.train_op)
        return step_context.session.global_step

    with rh.MonitoredSession() as sess:
        model.faults.fail(rh.errors.AbortedError("lost"))
        assert sess.run_step_fn(step_fn) == 1
    assert len(sessions) == 2
    assert sessions[0] is not sessions[1]


# SingularMonitoredSession


@pytest.mark.every_engine
def test_singular_session_resumes_from_a_directory(model, tmp_path):
    saver = rh.Saver()
    with rh.SingularMonitoredSession(checkpoint_dir=tmp_path) as sess:
        sess.run(model.train_op)
        saver.save(sess.raw_session(), tmp_path / "model.ckpt", global_step=sess.global_step)
    with rh.SingularMonitoredSession(checkpoint_dir=tmp_path) as sess:
        assert sess.global_step == 1
        np.testing.assert_array_equal(sess.run(model.weights), [1, 1])


def test_singular_session_restores_the_checkpoint_named(model, tmp_path):
    saver, paths = rh.Saver(), []
    with rh.SingularMonitoredSession() as sess:
        for _ in range(2):
            sess.run(model.train_op)
            paths.append(saver.save(sess.raw_session(), tmp_path / "m", sess.global_step))
    with rh.SingularMonitoredSession(checkpoint_filename_with_path=paths[0]) as sess:
        assert sess.global_step == 1


def test_checkpoint_that_is_not_there_is_an_error_naming_it(model, tmp_path):
    missing = str(tmp_path / "model.ckpt-3")
    with pytest.raises(rh.errors.NotFoundError, match=r"model\.ckpt-3"):
        rh.SingularMonitoredSession(checkpoint_filename_with_path=missing)


def test_second_interrupt_while_ending_leaves_nothing_behind(graph, model):
    class Stuck(rh.SessionRunHook):
        def end(self, session):
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        with rh.MonitoredSession(hooks=[Stuck()]) as sess:
            sess.run(model.train_op)
    assert signal.getsignal(signal.SIGINT) is before
    assert sess.should_stop()
    assert not graph.finalized
    sess.close()


def test_named_hook_that_counts_runs_counts_those_it_is_named_for(model, caplog):
    caplog.set_level("INFO", logger="runhooks")
    hook = rh.LoggingTensorHook({"loss": model.loss}, every_n_iter=2)
    with rh.MonitoredSession() as sess:
        for _ in range(6):
            sess.run(model.train_op, hooks=[hook])
            sess.run(model.train_op)
    assert sum("loss" in message for message in caplog.messages) == 3


def test_step_function_may_choose_hooks(model):
    hook, calls = RecordingHook(), []

    def step_fn(step_context):
        step_context.run_with_hooks(model.train_op, hooks=False)
        calls.append(list(hook.methods))
        step_context.run_with_hooks(model.train_op)

    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run_step_fn(step_fn)
    assert "before_run" not in calls[0]
    assert hook.methods.count("before_run") == 1


def test_graph_of_two_sessions_is_final_until_both_have_ended(graph, model):
    first, second = rh.MonitoredSession(), rh.MonitoredSession()
    first.close()
    assert graph.finalized
    second.close()
    assert not graph.finalized


def test_global_step_is_known_after_a_failure(model):
    with pytest.raises(ValueError, match="boom"), rh.MonitoredSession() as sess:
        sess.run(model.train_op)
        raise ValueError("boom")
    assert sess.global_step == 1


def test_global_step_of_a_session_that_cannot_be_replaced_is_that_of_the_lost_one(model):
    class Creator(rh.SessionCreator):
        is_first = True

        def create_session(self):
            if not self.is_first:
                raise ValueError("no machine to be had")
            self.is_first = False
            return rh.ChiefSessionCreator().create_session()

    with pytest.raises(ValueError, match="no machine"), rh.MonitoredSession(Creator()) as sess:
        sess.run(model.train_op)
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    assert sess.global_step == 1


def test_graph_stays_open_for_a_creator_that_finalizes_none(model):
    class Creator(rh.SessionCreator):
        def create_session(self):
            return rh.Session()

    with rh.MonitoredSession(Creator()) as sess:
        later = rh.call(lambda loss: loss + 1, model.loss)
        sess.run(model.train_op)
        assert sess.run(later) == 3.0
