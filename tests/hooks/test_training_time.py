import pytest

import runhooks as rh
from runhooks.hooks.base import not_training
from runhooks.testing import read_events


def test_blocks_add_up_and_those_in_one_another_count_once(model, fake_clock):
    with rh.Session() as sess:
        assert sess.non_training_secs == 0
        with not_training(sess):
            fake_clock.advance(1)
            with not_training(sess):
                fake_clock.advance(2)
        with not_training(sess):
            fake_clock.advance(4)
        assert sess.non_training_secs == 7


def test_a_block_that_raises_counts_too(model, fake_clock):
    with rh.Session() as sess:
        with pytest.raises(KeyError), not_training(sess):
            fake_clock.advance(3)
            raise KeyError
        assert sess.non_training_secs == 3


def test_a_session_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="session"), not_training(object()):
        pass


class Evaluation(rh.SessionRunHook):
    """Takes 100 seconds at every fourth step."""

    def __init__(self, clock):
        self.clock = clock

    def after_run(self, run_context, run_values):
        if run_context.session.global_step % 4 == 0:
            with not_training(run_context.session):
                self.clock.advance(100)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("make", "steps"),
    [(rh.StepCounterHook, [7, 13, 19]), (rh.ThroughputHook, [6, 12, 18])],
)
def test_it_is_kept_out_of_the_speed(model, fake_clock, tmp_path, first, make, steps):
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
    assert speeds == [(step, 2.0) for step in steps]
