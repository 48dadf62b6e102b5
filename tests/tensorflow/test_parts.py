"""Variables of a ``tf.Graph`` are read and assigned between runs, as a hook does it."""

import numpy as np
import pytest
import tensorflow as tf

import runhooks as rh
from runhooks.tensorflow import train

v1 = tf.compat.v1


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("sessions", [train, v1.train], ids=["ours", "tensorflow"])
def test_a_learning_rate_is_reduced(sessions, use_resource):
    with tf.Graph().as_default():
        rate = v1.get_variable(
            "rate", initializer=np.float32(0.5), trainable=False, use_resource=use_resource
        )
        step = v1.train.get_or_create_global_step()
        loss = tf.identity(1.0, name="loss")
        train_op = v1.assign_add(step, 1)
        plateau = rh.ReduceOnPlateauHook(loss, "rate", every_n_steps=1, patience=1, factor=0.5)
        rates = []
        with sessions.MonitoredSession(hooks=[plateau]) as sess:
            for _ in range(6):
                sess.run(train_op)
                rates.append(float(sess.run(rate)))
    assert rates[0] == 0.5
    assert sorted(set(rates), reverse=True) == [0.5, 0.25, 0.125]


def test_a_wrong_name_or_value():
    with tf.Graph().as_default():
        v1.get_variable("rate", initializer=np.float32(0.5))
        v1.train.get_or_create_global_step()
        with train.MonitoredSession() as sess:
            raw = sess.run_step_fn(lambda step_context: step_context.session)
            with pytest.raises(ValueError, match=r"named 'raet'; did you mean 'rate'"):
                raw.assign({"raet": 0.25})
            with pytest.raises(ValueError, match="named 'ret'"):
                raw.read("ret")
            with pytest.raises(ValueError, match="shape"):
                raw.assign({"rate": [1.0, 2.0]})
            assert raw.read("rate") == {"rate": 0.5}


def test_averages_are_tensorflows_own():
    with tf.Graph().as_default():
        v1.get_variable("w", initializer=np.float32(0.5))
        v1.train.get_or_create_global_step()
        with pytest.raises(TypeError, match="use tf.train.ExponentialMovingAverage there"):
            train.MonitoredSession(hooks=[rh.EmaHook("w")])
