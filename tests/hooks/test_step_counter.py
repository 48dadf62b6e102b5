import pytest

import runhooks as rh
from runhooks.testing import read_events


@pytest.fixture
def timed_train(model, fake_clock):
    """Makes ``steps`` steps of ``secs`` seconds each under a hook."""

    def train(hook, steps, secs=0.5, run=None):
        with rh.MonitoredSession(hooks=[hook]) as sess:
            for _ in range(steps):
                fake_clock.advance(secs)
                sess.run(model.train_op if run is None else run)

    return train


def test_writes_steps_per_second(timed_train, tmp_path):
    timed_train(rh.StepCounterHook(every_n_steps=10, output_dir=tmp_path), steps=35)
    assert [(s.step, s.tag, s.value) for s in read_events(tmp_path)] == [
        (step, "global_step/sec", 2.0) for step in (11, 21, 31)
    ]


def test_the_tag_is_the_name_of_the_global_step(graph, fake_clock, tmp_path):
    with rh.name_scope("model"):
        step = rh.train.create_global_step()
    add = step.assign_add(1)
    with rh.MonitoredSession(hooks=[rh.StepCounterHook(1, output_dir=tmp_path)]) as sess:
        for _ in range(2):
            fake_clock.advance(1)
            sess.run(add)
    assert [s.tag for s in read_events(tmp_path)] == [f"{step.op.name}/sec"]


def test_several_steps_a_run_are_all_counted(timed_train, model, tmp_path):
    jump = model.global_step.assign_add(4)
    timed_train(rh.StepCounterHook(10, output_dir=tmp_path), steps=8, run=jump)
    assert [(s.step, s.value) for s in read_events(tmp_path)] == [(16, 8.0), (28, 8.0)]


def test_a_step_that_is_never_increased_is_told_once(timed_train, model, caplog):
    timed_train(rh.StepCounterHook(every_n_steps=5), steps=30, run=model.loss)
    (warning,) = caplog.records
    assert "has not been increased" in warning.message
    assert "it has stayed at 0" in warning.message
    assert "global_step.assign_add(1)" in warning.message


def test_time_lost_in_a_recovery_is_not_counted(model, fake_clock, tmp_path):
    hook = rh.StepCounterHook(every_n_steps=2, output_dir=tmp_path)
    with rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run(model.train_op)
        fake_clock.advance(1000)
        model.faults.fail(rh.errors.AbortedError("lost"))
        for _ in range(3):
            sess.run(model.train_op)
            fake_clock.advance(1)
    assert [(s.step, s.value) for s in read_events(tmp_path)] == [(3, 1.0)]
