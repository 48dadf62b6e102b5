"""A hook that watches one tensor is handed its value in every run, without the way of a request."""

import pytest

import runhooks as rh
from runhooks.testing import RecordingHook
from runhooks.trigger import Due


class Watcher(RecordingHook):
    """Watches the loss; records ``(step, loss)``, and in ``due`` those of runs it took part in."""

    def __init__(self, loss, stop_at=None):
        super().__init__()
        self.loss, self.stop_at = loss, stop_at
        self.seen, self.due = [], []

    def watched(self):
        return self.loss

    def watch(self, step, value):
        self.seen.append((step, float(value)))
        return step == self.stop_at

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.due.append((run_context.session.global_step, float(run_values.results)))


class EveryThirdRun(RecordingHook):
    def next_due(self):
        return Due(runs=3)


@pytest.mark.every_engine
def test_it_gets_the_value_of_every_run_in_one_of_two_ways(model):
    watcher, sleeper = Watcher(model.loss), EveryThirdRun()
    with rh.MonitoredSession(hooks=[watcher, sleeper]) as sess:
        for _ in range(6):
            assert sess.run(model.train_op) is None
    # The loss is that of the weights as they were when the run began.
    assert watcher.seen == [(1, 0), (2, 2), (4, 6), (5, 8)]
    assert watcher.due == [(3, 4), (6, 10)]


def test_the_caller_gets_what_it_asked_for_whatever_the_shape(model):
    with rh.MonitoredSession(hooks=[Watcher(model.loss), Watcher(model.loss)]) as sess:
        assert sess.run([model.train_op, "loss:0"]) == [None, 0]
        assert sess.run({"loss": model.loss}) == {"loss": 2}
        assert sess.run((model.loss, (model.loss,))) == (2, (2,))
        fetches = [model.loss]
        assert sess.run(fetches) == [2]
        fetches.append(model.train_op)
        assert sess.run(fetches) == [2, None]
        assert sess.run(model.global_step) == 2


def test_it_may_ask_to_stop(model):
    with rh.MonitoredSession(hooks=[Watcher(model.loss, stop_at=2)]) as sess:
        while not sess.should_stop():
            sess.run(model.train_op)
        assert (sess.global_step, sess.stop_reason) == (2, "Watcher")


def test_its_errors_say_whose_they_are(model):
    class Broken(Watcher):
        def watch(self, step, value):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        with rh.MonitoredSession(hooks=[Broken(model.loss)]) as sess:
            sess.run(model.train_op)
    assert "in watch of the hook Broken" in caught.value.__notes__


def test_subclass_that_adds_to_a_run_is_called_in_every_run(model):
    class Adds(Watcher):
        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)

    hook = Adds(model.loss)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        for _ in range(3):
            sess.run(model.train_op)
    assert [step for step, _ in hook.due] == [1, 2, 3]
    assert hook.seen == []


class AtStepTen(RecordingHook):
    def next_due(self):
        return Due(step=10)


def test_a_run_that_goes_further_than_expected_is_watched_once(model):
    step = rh.train.get_or_create_global_step()
    jump = rh.group(model.train_op, step.assign_add(10))
    watcher, sleeper = Watcher(model.loss), AtStepTen()
    with rh.MonitoredSession(hooks=[watcher, sleeper]) as sess:
        sess.run(model.train_op)
        sess.run(jump)
        assert sess.global_step > 10
    assert len(watcher.seen) + len(watcher.due) == 2
    assert "after_run" in str(sleeper.calls)
