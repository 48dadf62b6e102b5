"""Weights on a ``tf.Graph``, and in TensorFlow's own tensors."""

import logging

import numpy as np
import pytest
import tensorflow as tf

import runhooks as rh

v1 = tf.compat.v1


def train(directory, init_from, resource, steps=1, **scaffold):
    """Train on a ``tf.Graph``; return the values of its variables before the first step."""
    with tf.Graph().as_default():
        with v1.variable_scope("net", use_resource=resource):
            v1.get_variable("kernel", initializer=np.zeros((2, 2), np.float32))
            v1.get_variable("head", initializer=np.full(3, 5, np.float32))
        variables = {it.op.name: it for it in v1.global_variables()}
        step = v1.train.get_or_create_global_step()
        op = v1.assign_add(step, 1)
        with rh.MonitoredTrainingSession(
            checkpoint_dir=str(directory), scaffold=rh.Scaffold(init_from=init_from, **scaffold)
        ) as session:
            assert session.global_step == session.run(step)
            values = session.run(variables)
            session.run(op)
    return values


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_variables_start_from_a_file_and_resume_from_their_checkpoint(resource, tmp_path, caplog):
    np.savez(tmp_path / "a.npz", kernel=np.ones((2, 2)), step=np.array(5))
    init = rh.InitFrom(tmp_path / "a.npz", "kernel", rename={"kernel": "net/kernel"})
    seen = []

    def init_fn(scaffold, session):
        kernel, *_ = v1.global_variables()
        seen.append(session.run(kernel).tolist())

    with caplog.at_level(logging.INFO, "runhooks"):
        values = train(tmp_path / "run", init, resource, init_fn=init_fn)
    assert values["net/kernel"].tolist() == seen[0] == [[1, 1], [1, 1]]
    assert values["net/head"].tolist() == [5, 5, 5]
    assert "a.npz: net/kernel; not from there: net/head" in caplog.text
    values = train(tmp_path / "run", rh.InitFrom(tmp_path / "gone"), resource)
    assert values["net/kernel"].tolist() == [[1, 1], [1, 1]]


def test_what_does_not_fit_is_an_error_before_training(tmp_path):
    np.savez(tmp_path / "a.npz", **{"net/kernel": np.ones((2, 3))})
    with pytest.raises(ValueError, match=r"'net/kernel' is float32\[2, 2\].*float64\[2, 3\]"):
        train(tmp_path / "run", rh.InitFrom(tmp_path / "a.npz", missing="keep"), True)


def test_like_may_be_a_tensor_or_a_variable(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.arange(3.0), b=np.ones(2))
    like = {"w": tf.zeros(3, tf.bfloat16), "b": tf.Variable([0.0, 0.0])}
    found = rh.load(tmp_path / "a.npz", like=like)
    assert isinstance(found["w"], tf.Tensor)
    assert found["w"].dtype == tf.bfloat16
    like["b"].assign(found["b"])
    assert like["b"].numpy().tolist() == [1, 1]
