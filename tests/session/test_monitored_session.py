"""MonitoredSession and SingularMonitoredSession, as their users see them."""

import logging
import os
import signal

import numpy as np
import pytest

import runhooks as rh
from runhooks.testing import RecordingHook


@pytest.mark.every_engine
def test_run_answers_like_a_raw_session(model):
    with rh.MonitoredSession() as sess:
        assert sess.run({"loss": [model.loss], "op": "train_op"}) == {"loss": [0.0], "op": None}


def test_it_knows_its_graph_and_global_step(graph, model):
    with rh.MonitoredSession() as sess:
        assert sess.graph is graph
        assert sess.global_step == 0
        sess.run(model.train_op)
        assert sess.global_step == 1


def test_loop_runs_until_a_hook_stops_it(model):
    runs = 0
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=7)]) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
            runs += 1
    assert runs == 7


def test_loop_over_a_finite_input_needs_no_condition(graph):
    total = rh.Variable(0, name="total")
    add = total.assign_add(rh.inputs([1, 2, 3]))
    seen = []
    with rh.MonitoredSession() as sess:
        while True:
            seen.append(int(sess.run(add)))
    assert seen == [1, 3, 6]


# stopping and closing


def test_request_stop_ends_the_loop_and_keeps_the_reason(model):
    with rh.MonitoredSession() as sess:
        assert sess.stop_reason is None
        sess.request_stop("the loss is low enough")
        assert sess.should_stop()
        assert sess.stop_reason == "the loss is low enough"


def test_stop_reason_names_the_hook_that_asked(model):
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=1)]) as sess:
        sess.run(model.train_op)
        assert "StopAtStepHook" in sess.stop_reason


@pytest.mark.parametrize(
    ("source", "epochs"), [([1], " (epochs=1)"), (lambda step: [1], ""), (iter([1]), "")]
)
def test_stop_reason_after_the_end_of_the_input_names_it(graph, source, epochs):
    number = rh.inputs(source, name="numbers")
    with rh.MonitoredSession() as sess:
        while True:
            sess.run(number)
    assert sess.stop_reason == f"the input 'numbers' has no more elements{epochs}"


def test_run_that_began_before_a_stop_was_asked_for_is_not_refused(model):
    # A signal, or another thread, may ask between should_stop() and run().
    with rh.MonitoredSession() as sess:
        assert not sess.should_stop()
        sess.request_stop("enough")
        sess.run(model.train_op)
        assert sess.should_stop()
        assert (sess.global_step, sess.stop_reason) == (1, "enough")


def test_run_after_a_hook_has_stopped_names_it_and_says_what_to_do(model):
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(num_steps=1)]) as sess:
        sess.run(model.train_op)
        with pytest.raises(RuntimeError, match=r"StopAtStepHook .*should_stop"):
            sess.run(model.train_op)
        assert sess.global_step == 1


def test_run_without_hooks_goes_on_after_a_stop_as_an_evaluation_does(model):
    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(num_steps=1)]) as sess:
        sess.run(model.train_op)
        sess.run(model.loss, hooks=False)
    assert sess.stop_reason == "StopAtStepHook"


def test_run_after_close_is_an_error(model):
    sess = rh.MonitoredSession()
    sess.close()
    with pytest.raises(RuntimeError, match="closed"):
        sess.run(model.train_op)
    assert sess.should_stop()


def test_close_inside_the_block_calls_end_once(model):
    hook = RecordingHook()
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.close()
    assert hook.methods.count("end") == 1


def test_raw_session_is_closed_with_it(model):
    sess = rh.SingularMonitoredSession()
    raw = sess.raw_session()
    sess.close()
    with pytest.raises(RuntimeError, match="closed"):
        raw.run(model.loss)


def test_second_session_on_the_same_graph_starts_anew(model):
    for _ in range(2):
        with rh.MonitoredSession() as sess:
            assert sess.global_step == 0
            sess.run(model.train_op)


def test_graph_can_be_added_to_again_after_the_session(model):
    with rh.MonitoredSession():
        pass
    assert rh.placeholder("later").name == "later:0"


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


def test_step_fn_may_be_a_method(model):
    class Trainer:
        def step(self, step_context):
            return step_context.run_with_hooks(model.loss)

    with rh.MonitoredSession() as sess:
        assert sess.run_step_fn(Trainer().step) == 0.0


def test_request_stop_of_the_step_context_leaves_the_block_well(model):
    hook = RecordingHook()

    def step_fn(step_context):
        step_context.request_stop()
        pytest.fail("request_stop came back")

    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run_step_fn(step_fn)
        pytest.fail("run_step_fn came back")
    assert hook.methods[-1] == "end"


def test_hook_that_stops_inside_a_step_fn_stops_the_session(model):
    def step_fn(step_context):
        step_context.run_with_hooks(model.train_op)

    with rh.MonitoredSession(hooks=[rh.StopAtStepHook(last_step=1)]) as sess:
        sess.run_step_fn(step_fn)
        assert sess.should_stop()


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


@pytest.mark.parametrize(
    "step_fn",
    [lambda: None, lambda context: None, lambda step_context, more: None, "step"],
    ids=["no argument", "another name", "one too many", "no function"],
)
def test_step_fn_that_does_not_take_one_step_context_is_refused(step_fn, model):
    with rh.MonitoredSession() as sess:
        with pytest.raises((TypeError, ValueError), match="step_fn"):
            sess.run_step_fn(step_fn)


# recovery


def test_recoveries_are_still_known_after_the_session(model):
    with rh.MonitoredSession() as sess:
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    assert sess.recoveries == 1


def test_each_recovery_of_a_run_that_gets_on_is_counted(model):
    with rh.MonitoredSession() as sess:
        for i in range(3):
            model.faults.fail(rh.errors.AbortedError("lost"))
            sess.run(model.train_op)
            assert sess.recoveries == i + 1


# the session creator


def test_session_creator_of_the_user_is_asked_for_every_session(model):
    created = []

    class Creator(rh.SessionCreator):
        def create_session(self):
            created.append(rh.ChiefSessionCreator().create_session())
            return created[-1]

    with rh.MonitoredSession(Creator()) as sess:
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    assert len(created) == 2


def test_session_creator_without_create_session_is_an_error_naming_it(model):
    class Incomplete(rh.SessionCreator):
        pass

    with pytest.raises((TypeError, NotImplementedError), match=r"Incomplete.*create_session"):
        rh.MonitoredSession(Incomplete())


# SingularMonitoredSession


def test_singular_session_gives_its_raw_session(model):
    hook = RecordingHook()
    with rh.SingularMonitoredSession(hooks=[hook]) as sess:
        hook.calls.clear()
        assert sess.raw_session().run(model.loss) == 0.0
        assert hook.calls == []


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


def test_session_in_an_empty_directory_starts_at_the_beginning(model, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "runhooks"):
        with rh.SingularMonitoredSession(checkpoint_dir=tmp_path / "new") as sess:
            assert sess.global_step == 0
    assert "resumed" not in caplog.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_between_two_runs_ends_the_loop_well(model, number, tmp_path):
    with rh.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as sess:
        while not sess.should_stop():
            os.kill(os.getpid(), number)  # as while the next batch is fetched
            sess.run(model.train_op)
    assert sess.stop_reason == number.name
    assert rh.latest_checkpoint(tmp_path).endswith("-1")


def test_thread_that_fails_is_a_failure_at_close_too(model):
    class Starter(RecordingHook):
        def after_create_session(self, session, coord):
            super().after_create_session(session, coord)
            self.coord = coord

    hook = Starter()
    with pytest.raises(ValueError, match="boom") as raised:
        with rh.MonitoredSession(hooks=[hook]) as sess:
            sess.run(model.train_op)
            hook.coord.request_stop(ValueError("boom"))
    assert hook.methods[-1] == "on_exception"
    assert not getattr(raised.value, "__notes__", [])


def test_thread_that_finds_the_end_of_its_input_is_a_good_end(model):
    class Starter(RecordingHook):
        def after_create_session(self, session, coord):
            super().after_create_session(session, coord)
            self.coord = coord

    hook = Starter()
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        hook.coord.request_stop(rh.errors.OutOfRangeError("no more"))
    assert hook.methods[-1] == "end"


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


def test_hooks_that_never_began_hear_of_no_failure(model):
    class Failing(rh.SessionRunHook):
        def begin(self):
            raise ValueError("boom")

    began, not_yet = RecordingHook(), RecordingHook()
    with pytest.raises(ValueError, match="boom"):
        rh.MonitoredSession(hooks=[began, Failing(), not_yet])
    assert began.methods == ["begin", "on_exception"]
    assert not_yet.methods == []


def test_graph_of_two_sessions_is_final_until_both_have_ended(graph, model):
    first, second = rh.MonitoredSession(), rh.MonitoredSession()
    first.close()
    assert graph.finalized
    second.close()
    assert not graph.finalized


def test_global_step_is_known_after_the_end(model):
    with rh.MonitoredSession() as sess:
        for _ in range(3):
            sess.run(model.train_op)
    assert sess.global_step == 3


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
