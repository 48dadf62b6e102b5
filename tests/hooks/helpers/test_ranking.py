"""A saver that ranks checkpoints by a metric which its evaluation does not have."""

import pytest

import runhooks as rh


def test_unknown_metric_of_an_evaluation_is_told_before_the_first_step(model, tmp_path):
    evaluation = rh.EvaluationHook({"accuracy": model.loss}, every_n_steps=2)
    saver = rh.Saver(keep=[rh.KeepBest("acuracy")], metrics=evaluation.metrics_at)
    hooks = [evaluation, rh.CheckpointSaverHook(tmp_path, save_steps=2, saver=saver)]
    message = r"KeepBest\('acuracy'\) of the saver: there is no metric .*did you mean 'accuracy'"
    with pytest.raises(ValueError, match=message):
        rh.MonitoredSession(hooks=hooks)
    assert not list(tmp_path.glob("model.ckpt*"))
