import pytest

import runhooks as rh
from runhooks.hooks.time_apart import spent_apart, time_apart
from runhooks.testing import read_events


def test_blocks_add_up_and_those_in_one_another_count_once(model, fake_clock):
    with rh.Session() as sess:
        assert time_apart(sess) == 0
        with spent_apart(sess):
            fake_clock.advance(1)
            with spent_apart(sess):
                fake_clock.advance(2)
        with spent_apart(sess):
            fake_clock.advance(4)
        assert time_apart(sess) == 7


def test_a_block_that_raises_counts_too(model, fake_clock):
    with rh.Session() as sess:
        with pytest.raises(KeyError), spent_apart(sess):
            fake_clock.advance(3)
            raise KeyError
        assert time_apart(sess) == 3


def test_a_session_of_another_kind_counts_if_it_can(fake_clock):
    class Foreign:
        pass

    session = Foreign()
    with spent_apart(session):
        fake_clock.advance(2)
    assert time_apart(session) == 2


@pytest.mark.parametrize("session", [object(), None])
def test_one_that_takes_no_attribute_counts_nothing(session, fake_clock):
    with spent_apart(session):
        fake_clock.advance(2)
    assert time_apart(session) == 0


class Evaluation(rh.SessionRunHook):
    """Takes 100 seconds at every fourth step."""

    def __init__(self, clock):
        self.clock = clock

    def after_run(self, run_context, run_values):
        if run_context.session.global_step % 4 == 0:
            with spent_apart(run_context.session):
                self.clock.advance(100)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("make", [rh.StepCounterHook, rh.ThroughputHook])
def test_it_is_kept_out_of_the_speed(model, fake_clock, tmp_path, first, make):
    hook, evaluation = make(every_n_steps=6, output_dir=tmp_path), Evaluation(fake_clock)
    with rh.MonitoredSession(hooks=[evaluation, hook] if first else [hook, evaluation]) as sess:
        for _ in range(20):
            fake_clock.advance(0.5)
            sess.run(model.train_op)
    speeds = [
        (scalar.step, scalar.value)
        for scalar in read_events(tmp_path)
        if scalar.tag in ("global_step/sec", "throughput/steps_per_sec")
    ]
    assert speeds == [(7, 2.0), (13, 2.0), (19, 2.0)]
