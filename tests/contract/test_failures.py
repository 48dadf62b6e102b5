"""The contract of a hook when something is raised: who is called and who is not."""

import contextlib
import threading

import numpy as np
import pytest

import runhooks as rh
from runhooks.engines.numpy.engine import PythonEngine
from runhooks.graph.engine import BoundBody
from runhooks.testing import RecordingHook

CLEAN_ENDS = [rh.errors.OutOfRangeError("end of input"), StopIteration()]
FAULTS = [ValueError("a bad batch"), rh.errors.DataLossError("a bad file"), KeyboardInterrupt()]


def name_of(value):
    return type(value).__name__


def train_until(sess, model, steps):
    for _ in range(steps):
        sess.run(model.train_op)


# the run raises


@pytest.mark.every_engine
@pytest.mark.parametrize("error", [CLEAN_ENDS[0], *FAULTS[:2]], ids=name_of)
def test_no_after_run_is_called_when_the_run_raises(error, model):
    hooks = [RecordingHook(), RecordingHook()]
    with pytest.raises(type(error)), contextlib.closing(rh.MonitoredSession(hooks=hooks)) as sess:
        model.faults.fail(error)
        sess.run(model.train_op)
    for hook in hooks:
        assert hook.methods == ["begin", "after_create_session", "before_run", "end"]


@pytest.mark.every_engine
@pytest.mark.parametrize("error", CLEAN_ENDS, ids=name_of)
def test_end_of_the_input_ends_the_loop_well_and_is_swallowed(error, model):
    hook = RecordingHook()
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        model.faults.fail(error)
        sess.run(model.train_op)
        pytest.fail("the end of the input was not raised inside the block")
    assert hook.methods[-2:] == ["before_run", "end"]


@pytest.mark.parametrize("error", CLEAN_ENDS, ids=name_of)
def test_end_of_the_callers_own_data_ends_the_loop_well(error, model):
    hook = RecordingHook()
    with rh.MonitoredSession(hooks=[hook]):
        raise error
    assert hook.methods[-1] == "end"
    assert hook.exceptions == []


@pytest.mark.every_engine
@pytest.mark.parametrize("error", FAULTS, ids=name_of)
def test_any_other_exception_of_a_run_propagates_without_end(error, model):
    hook = RecordingHook()
    with pytest.raises(type(error)) as caught, rh.MonitoredSession(hooks=[hook]) as sess:
        model.faults.fail(error)
        sess.run(model.train_op)
    assert caught.value is error
    assert "end" not in hook.methods
    assert hook.exceptions == [error]


@pytest.mark.parametrize("error", FAULTS, ids=name_of)
def test_any_other_exception_of_the_block_propagates_without_end(error, model):
    hook = RecordingHook()
    with pytest.raises(type(error)) as caught, rh.MonitoredSession(hooks=[hook]):
        raise error
    assert caught.value is error
    assert "end" not in hook.methods
    assert hook.exceptions == [error]


def test_run_after_a_run_that_raised_goes_on_when_the_caller_caught_it(model):
    hook = RecordingHook()
    with rh.MonitoredSession(hooks=[hook]) as sess:
        model.faults.fail(ValueError("a bad batch"))
        with pytest.raises(ValueError, match="a bad batch"):
            sess.run(model.train_op)
        sess.run(model.train_op)
        assert sess.global_step == 1
    assert hook.methods[-3:] == ["before_run", "after_run", "end"]


@pytest.mark.every_engine
def test_run_that_raises_leaves_the_variables(model):
    with rh.MonitoredSession() as sess:
        sess.run(model.train_op)
        model.faults.fail(ValueError("a bad batch"))
        with pytest.raises(ValueError, match="a bad batch"):
            sess.run(model.train_op)
        assert sess.run(model.loss) == 2.0
        assert sess.global_step == 1


# a hook raises


class Broken(RecordingHook):
    """Raises ``errors``, one at each call of ``phase``, until there are no more."""

    def __init__(self, phase, *errors):
        super().__init__("broken")
        self.phase, self.errors = phase, list(errors)

    def record(self, method):
        super().record(method)
        if method == self.phase and self.errors:
            raise self.errors.pop(0)


PHASES = ["begin", "after_create_session", "before_run", "after_run", "end"]


@pytest.mark.parametrize("phase", PHASES)
def test_exception_out_of_a_hook_propagates_with_a_note_naming_hook_and_phase(phase, model):
    error = ValueError("the hook is broken")
    hooks = [Broken(phase, error)]
    with pytest.raises(ValueError, match="the hook is broken") as caught:
        with rh.MonitoredSession(hooks=hooks) as sess:
            sess.run(model.train_op)
    assert caught.value is error
    assert any("Broken" in note and phase in note for note in error.__notes__)


def test_hook_that_raises_before_the_run_keeps_it_from_happening(model):
    with rh.MonitoredSession(hooks=[Broken("before_run", ValueError("broken"))]) as sess:
        with pytest.raises(ValueError, match="broken"):
            sess.run(model.train_op)
    assert model.faults.drawn == 0


def test_hook_that_raises_after_the_run_leaves_the_step_done(model):
    with rh.MonitoredSession(hooks=[Broken("after_run", ValueError("broken"))]) as sess:
        with pytest.raises(ValueError, match="broken"):
            sess.run(model.train_op)
        assert sess.global_step == 1


@pytest.mark.parametrize("phase", ["before_run", "after_run"])
@pytest.mark.parametrize("error", CLEAN_ENDS, ids=name_of)
def test_hook_may_end_the_loop_well_by_raising(error, phase, model):
    broken, hook = Broken(phase, error), RecordingHook()
    with rh.MonitoredSession(hooks=[broken, hook]) as sess:
        sess.run(model.train_op)
    assert broken.methods[-1] == hook.methods[-1] == "end"


def test_every_hook_hears_of_a_failure_in_the_order_given(model):
    calls = []
    hooks = [RecordingHook("a", calls), RecordingHook("b", calls)]
    with pytest.raises(ZeroDivisionError), rh.MonitoredSession(hooks=hooks):
        calls.clear()
        raise ZeroDivisionError
    assert calls == [("a", "on_exception"), ("b", "on_exception")]


@pytest.mark.parametrize("phase", ["begin", "after_create_session"])
def test_hooks_hear_of_a_session_that_could_not_be_created(phase, model):
    error = ValueError("the hook is broken")
    hook = RecordingHook()
    with pytest.raises(ValueError, match="the hook is broken"):
        rh.MonitoredSession(hooks=[hook, Broken(phase, error)])
    assert hook.exceptions == [error]


def test_failing_on_exception_hides_neither_the_first_error_nor_the_other_hooks(model):
    first = ValueError("the first error")
    hook = RecordingHook()
    hooks = [Broken("on_exception", OSError("while reporting")), hook]
    with pytest.raises(ValueError, match="the first error") as caught:
        with rh.MonitoredSession(hooks=hooks):
            raise first
    assert caught.value is first
    assert hook.exceptions == [first]


def test_hook_that_fails_in_end_does_not_keep_the_others_from_theirs(model):
    hook = RecordingHook()
    with pytest.raises(ValueError, match="broken"):
        with rh.MonitoredSession(hooks=[Broken("end", ValueError("broken")), hook]):
            pass
    assert hook.methods[-1] == "end"


def test_session_is_closed_after_a_failure_at_the_end(model):
    sess = rh.MonitoredSession(hooks=[Broken("end", ValueError("broken"))])
    with pytest.raises(ValueError, match="broken"):
        sess.close()
    assert sess.should_stop()
    with pytest.raises(RuntimeError, match="closed"):
        sess.run(model.train_op)


# a thread of the coordinator fails


class StartsThread(RecordingHook):
    """Starts a thread that raises ``error`` once ``go`` is set."""

    def __init__(self, error):
        super().__init__()
        self.error = error
        self.go = threading.Event()

    def after_create_session(self, session, coord):
        super().after_create_session(session, coord)
        self.thread = threading.Thread(target=self.work, args=(coord,))
        coord.register_thread(self.thread)
        self.thread.start()

    def work(self, coord):
        with coord.stop_on_exception():
            self.go.wait()
            raise self.error


def test_failed_thread_is_a_failure_and_not_a_clean_stop(model):
    hook = StartsThread(ValueError("the thread failed"))
    with pytest.raises(ValueError, match="the thread failed"):
        with rh.MonitoredSession(hooks=[hook]) as sess:
            sess.run(model.train_op)
            hook.go.set()
            hook.thread.join()
            assert sess.should_stop()
    assert "end" not in hook.methods
    assert hook.exceptions == [hook.error]


def test_run_raises_what_a_thread_has_failed_with(model):
    hook = StartsThread(ValueError("the thread failed"))
    with pytest.raises(ValueError, match="the thread failed"):
        with rh.MonitoredSession(hooks=[hook]) as sess:
            hook.go.set()
            hook.thread.join()
            sess.run(model.train_op)
    assert model.faults.drawn == 0


def test_thread_that_asks_to_stop_without_an_error_ends_the_loop_well(model):
    class Stops(StartsThread):
        def work(self, coord):
            self.go.wait()
            coord.request_stop()

    hook = Stops(None)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        hook.go.set()
        hook.thread.join()
        assert sess.should_stop()
    assert hook.methods[-1] == "end"


def test_thread_that_does_not_stop_is_named_when_the_session_closes(model, caplog):
    class Deaf(StartsThread):
        def work(self, coord):
            self.go.wait()

    hook = Deaf(None)
    with rh.MonitoredSession(hooks=[hook], stop_grace_period_secs=0) as sess:
        hook.thread.name = "the prefetcher"
        sess.run(model.train_op)
    hook.go.set()
    hook.thread.join()
    assert hook.methods[-1] == "end"
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "still running 0 seconds after they were asked to stop: the prefetcher" in warning


def test_failure_of_a_thread_counts_more_than_what_it_made_of_the_run(model):
    error = OSError("the disk of the data is gone")
    hook = StartsThread(error)

    def feeding(_):
        hook.go.set()
        hook.thread.join()
        raise rh.errors.OutOfRangeError("the queue was closed")

    empty = rh.inputs(feeding)
    with pytest.raises(OSError, match="the disk of the data") as caught:
        with rh.MonitoredSession(hooks=[hook]) as sess:
            sess.run(empty)
    assert caught.value is error
    assert isinstance(error.__cause__, rh.errors.OutOfRangeError)


# the session is lost


LOST = [rh.errors.AbortedError("lost"), rh.errors.UnavailableError("gone")]


@pytest.mark.every_engine
@pytest.mark.parametrize("error", LOST, ids=name_of)
def test_lost_session_is_replaced_and_the_run_repeated(error, model):
    hook = RecordingHook()
    with rh.MonitoredSession(hooks=[hook]) as sess:
        model.faults.fail(error)
        sess.run(model.train_op)
        assert sess.recoveries == 1
        assert sess.global_step == 1
    assert hook.methods.count("begin") == 1
    assert hook.methods.count("after_create_session") == 2
    assert hook.methods.count("after_run") == 1


@pytest.mark.every_engine
def test_recovered_session_has_the_state_of_the_latest_checkpoint(model, tmp_path):
    hook = RecordingHook(fetches=model.weights)
    with rh.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, save_checkpoint_steps=2, hooks=[hook], log_step_count_steps=None
    ) as sess:
        train_until(sess, model, 3)
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
    # The step after the checkpoint of step 2 is done twice.
    np.testing.assert_array_equal(np.stack(hook.results)[:, 0], [0, 1, 2, 2])


@pytest.mark.every_engine
def test_recovered_session_without_a_checkpoint_starts_again(model):
    with rh.MonitoredSession() as sess:
        train_until(sess, model, 3)
        model.faults.fail(rh.errors.AbortedError("lost"))
        sess.run(model.train_op)
        assert sess.global_step == 1


def test_recovery_is_logged_once_with_its_cause_and_the_lost_steps(model, tmp_path, caplog):
    with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, save_checkpoint_steps=2) as sess:
        train_until(sess, model, 3)
        model.faults.fail(rh.errors.AbortedError("the power went"))
        sess.run(model.train_op)
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    # Another is of the data, an iterator that cannot go back.
    warnings = [it for it in warnings if not it.startswith("the input 'batch'")]
    assert len(warnings) == 1
    assert "the power went" in warnings[0]
    assert "2" in warnings[0]
    assert "3" in warnings[0]


@pytest.mark.parametrize("phase", ["after_create_session", "before_run", "after_run"])
def test_hook_that_finds_the_session_lost_gets_a_new_one(phase, model):
    broken = Broken(phase, rh.errors.AbortedError("lost"))
    with rh.MonitoredSession(hooks=[broken]) as sess:
        sess.run(model.train_op)
    assert broken.methods.count("after_create_session") == 2
    assert broken.methods[-3:] == ["before_run", "after_run", "end"]


def test_singular_session_does_not_recover(model):
    hook = RecordingHook()
    with pytest.raises(rh.errors.AbortedError):
        with rh.SingularMonitoredSession(hooks=[hook]) as sess:
            model.faults.fail(rh.errors.AbortedError("lost"))
            sess.run(model.train_op)
    assert hook.methods.count("after_create_session") == 1
    assert "end" not in hook.methods


# an engine of the user's own


class Cluster(PythonEngine):
    """Computes elsewhere: every run may raise ``next_error``."""

    name = "cluster"
    next_error = None

    def bind(self, body, structures, shared):
        run = super().bind(body, structures, shared).step

        def run_there(*args):
            if self.next_error is not None:
                error, self.next_error = self.next_error, None
                raise error
            return run(*args)

        return BoundBody(run_there)


class NodeError(RuntimeError):
    pass


class ClusterOfItsOwnErrors(Cluster):
    def is_lost(self, error):
        return isinstance(error, NodeError)


@pytest.fixture
def train_on(build_model, tmp_path):
    """Makes three steps on ``engine``, which raises ``error`` in the third; the session then."""

    def train(engine, error):
        hook = RecordingHook(fetches="weights:0")
        with rh.Graph(engine=engine).as_default():
            model = build_model()
            with rh.MonitoredTrainingSession(
                checkpoint_dir=tmp_path, save_checkpoint_steps=1, hooks=[hook]
            ) as sess:
                train_until(sess, model, 2)
                engine.next_error = error
                sess.run(model.train_op)
        np.testing.assert_array_equal(np.stack(hook.results)[:, 0], [0, 1, 2])
        return sess

    return train


@pytest.mark.parametrize("error", LOST, ids=name_of)
def test_engine_of_the_user_may_lose_its_session(error, train_on):
    assert train_on(Cluster(), error).recoveries == 1


def test_engine_of_the_user_says_which_errors_mean_a_lost_session(train_on):
    assert train_on(ClusterOfItsOwnErrors(), NodeError("node 7")).recoveries == 1


def test_what_the_engine_of_the_user_takes_for_a_fault_is_one(train_on):
    with pytest.raises(NodeError, match="node 7"):
        train_on(Cluster(), NodeError("node 7"))
    with pytest.raises(rh.errors.AbortedError):
        train_on(ClusterOfItsOwnErrors(), LOST[0])


@pytest.mark.parametrize("engine", [None, 5, PythonEngine])
def test_what_is_no_engine_is_refused(engine):
    with pytest.raises(TypeError, match="engine must be"):
        rh.Graph(engine=engine)
