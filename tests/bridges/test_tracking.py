"""``TrackingHook`` with a function and with MLflow."""

import mlflow
import numpy as np
import pytest

import runhooks as rh


def train(*hooks, steps=6):
    graph = rh.Graph()
    with graph.as_default():
        step = rh.train.get_or_create_global_step()
        made = step.assign_add(1)
        rh.call(lambda made: np.float32(made) / 2, made, name="half")
        rh.call(lambda made: np.arange(3), made, name="array")
        with rh.MonitoredSession(hooks=hooks) as sess:
            for _ in range(steps):
                sess.run(made)


def test_numbers_go_to_the_client_with_the_step():
    logged = []

    def log(numbers, step):
        logged.append((step, numbers))

    train(rh.bridges.tracking.TrackingHook(log, {"loss": "half"}, every_n_steps=3))
    train(rh.bridges.tracking.TrackingHook(log, ["half"], trigger=rh.Trigger(on_steps=[5])))
    assert logged == [(3, {"loss": 1.5}), (6, {"loss": 3.0}), (5, {"half": 2.5})]


def test_mlflow_takes_them(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    try:
        with mlflow.start_run() as run:
            train(rh.bridges.tracking.TrackingHook(mlflow.log_metrics, {"loss": "half"}, 2))
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    finally:
        mlflow.set_tracking_uri(before)
    assert [(it.step, it.value) for it in history] == [(2, 1.0), (4, 2.0), (6, 3.0)]


def test_a_value_that_is_no_number_is_one_error():
    hook = rh.bridges.tracking.TrackingHook(print, ["array"], every_n_steps=1)
    with pytest.raises(ValueError, match="'array' must be a single number"):
        train(hook)
