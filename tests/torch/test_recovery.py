"""Lost sessions: objects are restored from a checkpoint, and nothing is pretended without one."""

import pytest
import torch

import runhooks as rh


class Loses(rh.SessionRunHook):
    """Loses the session once, after the step ``step``."""

    def __init__(self, step):
        self.step = step

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == self.step:
            self.step = None
            raise rh.errors.AbortedError("lost")


def train(training, *hooks, steps, **arguments):
    hooks = [*hooks, rh.StopAtStepHook(last_step=steps)]
    with (
        training.graph().as_default(),
        rh.MonitoredTrainingSession(hooks=hooks, **arguments) as sess,
    ):
        while not sess.should_stop():
            sess.run("train_op", training.batch)
    return sess


def test_parts_go_back_to_the_checkpoint(make_training, tmp_path):
    undisturbed, disturbed = make_training(), make_training()
    torch.manual_seed(1)
    train(undisturbed, steps=7, checkpoint_dir=tmp_path / "one")
    torch.manual_seed(1)
    arguments = {"checkpoint_dir": tmp_path / "two", "save_checkpoint_steps": 3}
    sess = train(disturbed, Loses(5), steps=7, **arguments)
    assert sess.recoveries == 1
    assert disturbed.losses[:5] == undisturbed.losses[:5]
    assert disturbed.losses[5:] == undisturbed.losses[3:]
    for one, other in zip(
        disturbed.model.parameters(), undisturbed.model.parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_without_a_checkpoint_the_loss_is_an_error(training):
    with pytest.raises(rh.errors.FailedPreconditionError) as caught:
        train(training, Loses(2), steps=5)
    assert "no checkpoint" in str(caught.value)
    assert "model, optimizer, scheduler" in str(caught.value)
    assert "give checkpoint_dir" in str(caught.value)
    assert any("AbortedError('lost')" in note for note in caught.value.__notes__)
    assert len(training.losses) == 2


def test_session_lost_before_its_first_step_begins_again(training):
    class LosesAtOnce(rh.SessionRunHook):
        lost = False

        def after_create_session(self, session, coord):
            if not self.lost:
                self.lost = True
                raise rh.errors.AbortedError("lost")

    sess = train(training, LosesAtOnce(), steps=2)
    assert sess.recoveries == 1
    assert len(training.losses) == 2


def test_next_monitored_session_says_with_what_it_begins(training, caplog, tmp_path):
    graph = training.graph()
    for expected in (0, 1, 2):
        with graph.as_default(), rh.MonitoredSession() as sess:
            sess.run("train_op", training.batch)
        assert len(caplog.messages) == expected
    assert "step 0 with model, optimizer, scheduler" in caplog.messages[0]
    for _ in range(2):  # one that is restored has nothing to say
        with graph.as_default(), rh.MonitoredTrainingSession(checkpoint_dir=tmp_path) as sess:
            sess.run("train_op", training.batch)
    assert len([it for it in caplog.records if it.levelname == "WARNING"]) == 3
