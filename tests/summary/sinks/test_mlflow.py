"""Summaries into a run of MLflow, in its local store."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient
from PIL import Image

from runhooks import summary
from runhooks.summary import MlflowWriter
from runhooks.testing import FakeClock, read_events


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A client of a store in files, which MLflow still has, but asks about."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return MlflowClient((tmp_path / "mlruns").as_uri())


@pytest.fixture
def run(store):
    return store.create_run(store.create_experiment("an experiment"))


@pytest.fixture
def writer(run, store):
    with MlflowWriter(run, store.tracking_uri) as writer:
        yield writer


@pytest.fixture
def history(run, store):
    """The points of a metric, as ``(step, value)``."""

    def history(key):
        return [(m.step, m.value) for m in store.get_metric_history(run.info.run_id, key)]

    return history


@pytest.fixture
def artifacts(run, tmp_path):
    """The files of the run, by path."""

    def artifacts():
        root = Path(run.info.artifact_uri.removeprefix("file://"))
        return {str(f.relative_to(root)): f for f in root.rglob("*") if f.is_file()}

    return artifacts


def test_scalars_are_metrics(writer, history, run, store):
    with FakeClock(wall_start=1_700_000_000.25):
        for step in (1, 2):
            writer.scalars({"loss": 0.1 * step, "train/accuracy": float("nan")}, step)
        writer.flush()
    assert history("loss") == [(1, 0.1), (2, 0.2)]
    assert [step for step, value in history("train/accuracy") if np.isnan(value)] == [1, 2]
    [first, _] = store.get_metric_history(run.info.run_id, "loss")
    assert first.timestamp == 1_700_000_000_250


def test_more_than_a_server_takes_at_once(writer, history):
    for step in range(2_500):
        writer.scalar("loss", step, step)
    writer.flush()
    assert history("loss") == [(step, step) for step in range(2_500)]


def test_a_tag_becomes_a_name_that_mlflow_has(writer, history):
    keys = {
        "loss (train)": "loss _train_",
        "top-1: a.b/c_d é": "top-1: a.b/c_d é",
        "/../a//./b": "a/b",
        "..": "_",
    }
    writer.scalars(dict.fromkeys(keys, 0.5), 1)
    writer.flush()
    assert [history(key) for key in keys.values()] == [[(1, 0.5)]] * 4


def test_hyperparameters_are_parameters(writer, run, store):
    more = {f"p{i}": i for i in range(150)}
    writer.hparams({"rate": 0.1, "name": "adam", **more}, {"best": 0.9}, 3)
    writer.flush()
    data = store.get_run(run.info.run_id).data
    assert (data.params["rate"], data.params["name"]) == ("0.1", "adam")
    assert len(data.params) == 152
    assert data.metrics == {"best": 0.9}


def test_images_are_images_over_steps(writer, artifacts):
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    writer.image("digits: a", pixels, 7)
    writer.image("batch", np.stack([pixels, pixels]), 7)
    writer.flush()
    files = {path: file for path, file in artifacts().items() if path.endswith(".png")}
    first, second, single = sorted(files)
    assert first.startswith("images/batch~0+step+7+")
    assert second.startswith("images/batch~1+step+7+")
    assert single.startswith("images/digits_ a+step+7+")
    with Image.open(files[single]) as image:
        assert np.array_equal(np.asarray(image), pixels)


def test_the_rest_are_artifacts(writer, artifacts):
    writer.text("note", "# hello", 3)
    writer.histogram("layer/weights", np.arange(5.0), 3)
    writer.tensor("array", np.array([1.0, np.nan]), 3)
    writer.text("table", ["a", "b"], 3)
    writer.add_session_log(summary.SessionLog(summary.SessionStatus.START), 3)
    writer.flush()
    files = artifacts()
    assert sorted(files) == [
        "histogram/layer/weights/3.json",
        "tensor/array/3.json",
        "text/note/3.md",
        "text/table/3.json",
    ]
    assert files["text/note/3.md"].read_text() == "# hello"
    histogram = json.loads(files["histogram/layer/weights/3.json"].read_text())
    assert (histogram["tag"], histogram["value"]["sum"]) == ("layer/weights", 10.0)
    assert json.loads(files["tensor/array/3.json"].read_text())["value"] == [1.0, "NaN"]


def test_what_mlflow_refuses_is_raised_and_the_rest_is_logged(writer, history):
    writer.scalar("loss", 0.5, 1)
    writer.hparams({"rate": 0.1})
    writer.hparams({"rate": 0.2})  # a parameter may not change
    with pytest.raises(mlflow.MlflowException, match="rate") as failure:
        writer.flush()
    assert any("of MLflow are lost" in note for note in failure.value.__notes__)
    assert history("loss") == [(1, 0.5)]


def test_the_run_of_start_run_is_left_running(store, tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(store.tracking_uri)
    try:
        mlflow.set_experiment("another")
        with mlflow.start_run() as run:
            with MlflowWriter(run) as writer, MlflowWriter(run.info.run_id) as by_its_id:
                writer.scalar("loss", 0.5, 1)
                by_its_id.scalar("loss", 0.5, 2)
            assert store.get_run(run.info.run_id).info.status == "RUNNING"
            assert store.get_run(run.info.run_id).data.metrics == {"loss": 0.5}
    finally:
        mlflow.set_tracking_uri(before)
    for no_run in (None, 3, ""):
        with pytest.raises(TypeError, match="mlflow.start_run"):
            MlflowWriter(no_run)


def test_a_server_that_does_not_answer_keeps_no_file_waiting(writer, tmp_path, monkeypatch):
    called, answered = threading.Event(), threading.Event()

    def log_batch(*arguments, **keywords):
        called.set()
        assert answered.wait(60), "nobody has let it answer"

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    writer.scalar("loss", 0.5, 1)
    assert called.wait(60)
    with summary.FileWriter(tmp_path / "events") as file_writer:  # closes: all is written
        file_writer.scalar("loss", 0.5, 1)
    [value] = read_events(tmp_path / "events")
    assert value.tag == "loss"
    answered.set()
