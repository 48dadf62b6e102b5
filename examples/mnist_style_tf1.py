"""Handwritten digits in the style of 2017: placeholders, ``merge_all``, hooks, feeds.

Only one line has changed since then; it is marked. Ctrl-C stops the program cleanly, and the same
command resumes it. docs/migrating.md says what else that line changes. The same program without
TensorFlow is in examples/mnist_style_jax.py.
"""

import argparse
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from runhooks.tensorflow import train  # the changed line; it was: train = tf.train

BATCH = 64


def weight_variable(name: str, shape: list[int]) -> Any:
    return tf.get_variable(name, shape, initializer=tf.truncated_normal_initializer(stddev=0.1))


def bias_variable(name: str, size: int) -> Any:
    return tf.get_variable(name, [size], initializer=tf.constant_initializer(0.1))


def network(images: Any, keep_prob: Any) -> Any:
    """Scores [N, 10] of images [N, 64]."""
    x = tf.reshape(images, [-1, 8, 8, 1])
    for layer, (inputs, outputs) in {"conv1": (1, 16), "conv2": (16, 32)}.items():
        with tf.variable_scope(layer):
            kernel = weight_variable("kernel", [3, 3, inputs, outputs])
            x = tf.nn.conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME")
            x = tf.nn.relu(x + bias_variable("bias", outputs))
            tf.summary.histogram("weights", kernel)
    x = tf.nn.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    x = tf.nn.dropout(tf.reshape(x, [-1, 4 * 4 * 32]), rate=1 - keep_prob)
    with tf.variable_scope("dense"):
        return tf.matmul(x, weight_variable("kernel", [4 * 4 * 32, 10])) + bias_variable("bias", 10)


def load() -> Any:
    """Images [N, 64] in 0..1 for training, for the test, and labels [N] for each."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    return train_test_split(images, labels, test_size=360, stratify=labels, random_state=0)


def batches(images: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    while True:
        order = np.random.permutation(len(labels))
        for begin in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[begin : begin + BATCH]
            yield images[chosen], labels[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits.")
    parser.add_argument("--dir", default="runs/tf1", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="the last step (%(default)s)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train_images, test_images, train_labels, test_labels = load()

    with tf.Graph().as_default():
        images = tf.placeholder(tf.float32, [None, 64], name="images")
        labels = tf.placeholder(tf.int64, [None], name="labels")
        keep_prob = tf.placeholder_with_default(1.0, [], name="keep_prob")
        scores = network(images, keep_prob)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, scores)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1), labels), tf.float32))
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("accuracy", accuracy)
        tf.summary.image("digits", tf.reshape(images, [-1, 8, 8, 1]), max_outputs=3)
        summaries = tf.summary.merge_all()

        global_step = train.get_or_create_global_step()
        rate = train.exponential_decay(3e-3, global_step, decay_steps=500, decay_rate=0.5)
        train_op = train.AdamOptimizer(rate).minimize(loss, global_step=global_step)

        test = {images: test_images, labels: test_labels}
        at_end = train.FinalOpsHook({"accuracy": accuracy, "step": global_step}, test)
        hooks = [
            train.StopAtStepHook(last_step=args.steps),
            train.NanTensorHook(loss),
            train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_iter=100),
            train.SummarySaverHook(save_steps=50, output_dir=args.dir, summary_op=summaries),
            at_end,
        ]
        with train.MonitoredTrainingSession(
            checkpoint_dir=args.dir,
            hooks=hooks,
            save_checkpoint_steps=200,
            save_summaries_steps=None,
        ) as session:
            digits = batches(train_images, train_labels)
            while not session.should_stop():
                x, y = next(digits)
                session.run(train_op, feed_dict={images: x, labels: y, keep_prob: 0.8})
    reached = at_end.final_ops_values
    print(f"step {reached['step']}: {reached['accuracy']:.1%} of the test digits read")


if __name__ == "__main__":
    main()
