"""RecoveryCounterHook: a curve of recoveries, and no curve that folds back at one."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import runhooks as rh
from runhooks.testing import FakeClock, read_events

LOST = rh.errors.AbortedError("lost")


@pytest.fixture
def train(model):
    """Makes ``steps`` runs, losing the session before those in ``lost``; returns the session."""

    def train(steps, lost, **arguments):
        with rh.MonitoredTrainingSession(**arguments) as sess:
            for run in range(steps):
                if run in lost:
                    model.faults.fail(LOST)
                sess.run(model.train_op)
        return sess

    return train


def curve(directory, tag):
    """What TensorBoard shows: pairs of step and value."""
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    return [(e.step, e.value) for e in accumulator.Scalars(tag)] if tag in tags else None


def test_each_recovery_is_a_point_at_the_step_made_after_it(train, tmp_path):
    # The session is restored at step 4, then at step 6.
    sess = train(9, lost=[5, 8], checkpoint_dir=tmp_path, save_checkpoint_steps=2)
    assert sess.recoveries == 2
    assert curve(tmp_path, "recoveries") == [(5, 1), (7, 2)]


def test_run_that_is_never_lost_has_no_such_curve(train, tmp_path):
    train(3, lost=[], checkpoint_dir=tmp_path)
    assert [event for event in read_events(tmp_path) if event.tag == "recoveries"] == []


def test_recovery_at_the_start_counts_as_it_does_in_the_session(train, tmp_path):
    class Lost(rh.SessionRunHook):
        errors = (LOST,)

        def after_create_session(self, session, coord):
            errors, self.errors = self.errors, ()
            for error in errors:
                raise error

    sess = train(1, lost=[], checkpoint_dir=tmp_path, hooks=[Lost()])
    assert sess.recoveries == 1
    assert curve(tmp_path, "recoveries") == [(1, 1)]


def test_no_curve_folds_back_at_a_recovery(model, train, tmp_path):
    rh.summary.scalar("loss", model.loss)
    with FakeClock() as clock:
        hooks = [OnRun(lambda: clock.advance(0.5))]
        train(
            9,
            lost=[5, 8],
            checkpoint_dir=tmp_path / "model",
            summary_dir=tmp_path / "board",
            save_checkpoint_steps=2,
            save_summaries_steps=1,
            log_step_count_steps=1,
            hooks=hooks,
        )
    # Steps 5 and 7 are made twice; the curve holds what came of them last.
    assert curve(tmp_path / "board", "loss") == [(step + 1, 2.0 * step) for step in range(7)]
    assert [step for step, _ in curve(tmp_path / "board", "recoveries")] == [5, 7]
    rates = [step for step, _ in curve(tmp_path / "board", "global_step/sec")]
    assert rates == sorted(set(rates))


class OnRun(rh.SessionRunHook):
    def __init__(self, act):
        self.act = act

    def after_run(self, run_context, run_values):
        self.act()


@pytest.mark.parametrize(
    "make",
    [
        lambda writer: rh.RecoveryCounterHook(summary_writer=writer),
        lambda writer: rh.StepCounterHook(summary_writer=writer),
        lambda writer: rh.SummarySaverHook(
            save_steps=1, summary_writer=writer, summary_op=rh.summary.merge_all()
        ),
    ],
    ids=["recovery_counter", "step_counter", "summary_saver"],
)
def test_every_writer_is_told_where_a_session_starts(make, model):
    class Writer:
        def add_summary(self, summary, global_step=None): ...

        def add_session_log(self, log, global_step=None):
            starts.append((log.status, global_step))

    starts = []
    rh.summary.scalar("loss", model.loss)
    with rh.MonitoredSession(hooks=[make(Writer())]) as sess:
        sess.run(model.train_op)
        model.faults.fail(LOST)
        sess.run(model.train_op)
    assert starts == [(rh.summary.SessionStatus.START, 1)] * 2


def test_it_needs_a_place_to_write_to():
    with pytest.raises(ValueError, match="output_dir or summary_writer must be given, got neither"):
        rh.RecoveryCounterHook()
