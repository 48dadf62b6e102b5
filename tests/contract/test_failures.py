"""The contract of a hook when something is raised: who is called and who is not."""

import threading

import numpy as np
import pytest

import runhooks as rh
from runhooks.engines.numpy.engine import PythonEngine
from runhooks.graph.engine import BoundBody
from runhooks.testing import RecordingHook

CLEAN_ENDS = [rh.errors.OutOfRangeError("end of input"), StopIteration()]


def name_of(value):
    return type(value).__name__


def train_until(sess, model, steps):
    for _ in range(steps):
        sess.run(model.train_op)


# the run raises


@pytest.mark.every_engine
def test_run_that_raises_leaves_the_variables(model):
    with rh.MonitoredSession() as sess:
        sess.run(model.train_op)
        model.faults.fail(ValueError("a bad batch"))
        with pytest.raises(ValueError, match="a bad batch"):
            sess.run(model.train_op)
        assert sess.run(model.loss) == 2.0
        assert sess.global_step == 1


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


def test_hook_that_fails_in_end_does_not_keep_the_others_from_theirs(model):
    hook = RecordingHook()
    with pytest.raises(ValueError, match="broken"):
        with rh.MonitoredSession(hooks=[Broken("end", ValueError("broken")), hook]):
            pass
    assert hook.methods[-1] == "end"


def test_failing_on_exception_hides_neither_the_first_error_nor_the_other_hooks(model):
    first = ValueError("the first error")
    hook = RecordingHook()
    hooks = [Broken("on_exception", OSError("while reporting")), hook]
    with pytest.raises(ValueError, match="the first error") as caught:
        with rh.MonitoredSession(hooks=hooks):
            raise first
    assert caught.value is first
    assert hook.exceptions == [first]


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


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (Cluster, rh.errors.AbortedError("lost")),
        (Cluster, rh.errors.UnavailableError("gone")),
        (ClusterOfItsOwnErrors, NodeError("node 7")),
    ],
)
def test_engine_of_the_user_may_lose_its_session_and_says_by_which_errors(kind, error, train_on):
    assert train_on(kind(), error).recoveries == 1


def test_what_the_engine_of_the_user_takes_for_a_fault_is_one(train_on):
    with pytest.raises(NodeError, match="node 7"):
        train_on(Cluster(), NodeError("node 7"))
    with pytest.raises(rh.errors.AbortedError):
        train_on(ClusterOfItsOwnErrors(), rh.errors.AbortedError("lost"))


@pytest.mark.parametrize("engine", [None, 5, PythonEngine])
def test_what_is_no_engine_is_refused(engine):
    with pytest.raises(TypeError, match="engine must be"):
        rh.Graph(engine=engine)
