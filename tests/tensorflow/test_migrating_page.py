"""The programs of docs/migrating.md, and its first one, run."""

import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import runhooks as rh
from runhooks.tensorflow import train

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart_tf1.py"
PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"


ESTIMATOR, PREDICTION, CONVERSION, JAX, TORCH, NUMPY = re.findall(
    r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL
)


def run(code, names=None):
    names = {} if names is None else names
    exec(compile(code, PAGE.name, "exec"), names)
    return names


def test_an_estimator_becomes_a_loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(ESTIMATOR)
    errors = rh.read_eval_metrics("runs/estimator/eval")
    assert list(errors) == [50, 100, 150, 160]
    assert errors[160]["error"] < errors[50]["error"] / 2
    assert rh.events.read("runs/estimator")["."].scalars["loss"].steps.tolist() == [1, 101]
    before = sorted(Path("runs/estimator").iterdir())
    predictions = run(PREDICTION, names)["predictions"]
    labels = [label for _, batch in names["input_fn"]().as_numpy_iterator() for label in batch]
    np.testing.assert_allclose(
        np.abs(np.subtract(predictions, labels)).mean(), errors[160]["error"], rtol=1e-4
    )
    assert sorted(Path("runs/estimator").iterdir()) == before


def test_a_warm_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(ESTIMATOR)
    with tf.Graph().as_default():
        train.get_or_create_global_step()
        features, labels = tf.data.make_one_shot_iterator(names["input_fn"]()).get_next()
        spec = names["model_fn"](features, labels, "train", {"rate": 0.0})
        weights = {it.op.name: it for it in tf.trainable_variables()}
        tf.train.init_from_checkpoint("runs/estimator", weights)
        with train.MonitoredTrainingSession() as session:
            assert session.run(spec.eval_metric_ops["error"])[1] < 0.5


def test_weights_move_to_jax_once(tmp_path, monkeypatch):
    pytest.importorskip("optax")
    monkeypatch.chdir(tmp_path)
    run(ESTIMATOR)
    run(CONVERSION)
    shutil.rmtree("runs/estimator")
    assert run(JAX)["session"].global_step == 200
    first = rh.load("runs/jax", step=160)  # saved before the first step
    with np.load("weights.npz") as moved:
        for name in moved:
            np.testing.assert_array_equal(rh.load("runs/jax", name, step=160), moved[name])
    assert np.abs(first["state"]["0"]["weights"] - [2, -3]).max() < 0.5
    assert all(np.any(first["state"]["1"]["0"][it]["weights"]) for it in ("mu", "nu"))
    Path("weights.npz").unlink()
    assert run(JAX.replace("last_step=200", "last_step=210"))["session"].global_step == 210


@pytest.mark.parametrize(
    ("code", "directory", "weights"),
    [(TORCH, "runs/torch", "model/weights"), (NUMPY, "runs/numpy", "weights")],
)
def test_weights_and_moments_move_to_pytorch_and_numpy(
    code, directory, weights, tmp_path, monkeypatch
):
    """They go on as TensorFlow's optimizer would, and as that of optax does."""
    for module in ("optax", "torch"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    run(ESTIMATOR)
    run(CONVERSION)
    run(JAX)
    run(code)
    assert rh.load(directory, "global_step") == 200
    with np.load("weights.npz") as moved:
        np.testing.assert_array_equal(
            rh.load(directory, weights, step=160), moved["state/0/weights"]
        )
    np.testing.assert_allclose(
        rh.load(directory, weights), rh.load("runs/jax", "state/0/weights"), rtol=1e-4
    )


def test_the_first_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verbosity = tf.logging.get_verbosity()
    runpy.run_path(str(EXAMPLE))
    tf.logging.set_verbosity(verbosity)
    losses = rh.events.read("runs").only.scalars["loss"]
    assert losses.steps.tolist() == list(range(1, 500, 10))
    assert losses.values[-1] < 1e-3 < losses.values[0]
