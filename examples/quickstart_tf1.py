"""Fit a line as TensorFlow 1 programs do: only the import of ``train`` has changed."""

import numpy as np
import tensorflow.compat.v1 as tf

from runhooks.tensorflow import train

tf.logging.set_verbosity(tf.logging.INFO)  # show what hooks log

with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.placeholder(tf.float32, [None])
    weights = tf.get_variable("weights", [2])
    loss = tf.reduce_mean((tf.linalg.matvec(x, weights) - y) ** 2)
    step = train.get_or_create_global_step()
    train_op = train.AdamOptimizer(0.05).minimize(loss, global_step=step)
    tf.summary.scalar("loss", loss)
    hooks = [
        train.StopAtStepHook(last_step=500),
        train.LoggingTensorHook({"step": step, "loss": loss}, every_n_iter=100),
    ]
    with train.MonitoredTrainingSession(
        checkpoint_dir="runs/tf1-line", hooks=hooks, save_summaries_steps=10
    ) as session:
        while not session.should_stop():
            batch = np.random.normal(size=(32, 2))
            session.run(train_op, {x: batch, y: batch @ [2.0, -3.0]})
