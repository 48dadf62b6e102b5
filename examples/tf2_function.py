"""Keras and ``tf.function``: the step stays in TensorFlow, and a runhooks graph calls it.

The python engine calls the step once in each run. Curves, checkpoints and resuming work as with any
other graph. Ctrl-C stops the program cleanly, and the same command resumes it.
"""

import argparse
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import runhooks as rh

BATCH = 64

pixels, digits = load_digits(return_X_y=True)
TRAIN_IMAGES, TEST_IMAGES, TRAIN_LABELS, TEST_LABELS = train_test_split(
    (pixels / 16).astype(np.float32), digits, test_size=360, stratify=digits, random_state=0
)

model = keras.Sequential(
    [keras.Input([64]), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)]
)
optimizer = keras.optimizers.Adam(3e-3)
optimizer.build(model.trainable_variables)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function  # type: ignore[untyped-decorator]
def train_step(images: Any, labels: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@tf.function  # type: ignore[untyped-decorator]
def evaluate() -> Any:
    right = tf.argmax(model(TEST_IMAGES), 1) == TEST_LABELS
    return tf.reduce_mean(tf.cast(right, tf.float32))


class KerasVariables:
    """Those of a model or an optimizer, for the checkpoints."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def state_dict(self) -> dict[str, Any]:
        return {"variables": [np.asarray(variable) for variable in self.owner.variables]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for variable, value in zip(self.owner.variables, state["variables"], strict=True):
            variable.assign(value)


def batches(step: int) -> Iterator[tuple[Any, Any]]:
    """The batches from ``step`` on."""
    for now in itertools.count(step):
        chosen = np.random.default_rng(now).choice(len(TRAIN_LABELS), BATCH, replace=False)
        yield TRAIN_IMAGES[chosen], TRAIN_LABELS[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits.")
    parser.add_argument("--dir", default="runs/tf2", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="the last step (%(default)s)")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("runhooks").setLevel(logging.INFO)

    with rh.Graph().as_default():
        images, labels = rh.inputs(batches, num_outputs=2)
        made = rh.call(train_step, images, labels)
        loss = rh.call(float, made, name="loss")  # waits for the device, in runs that ask for it
        step = rh.train.get_or_create_global_step()
        train_op = rh.group(made, step.assign_add(1))
        rh.summary.scalar("loss", loss)
        accuracy = rh.call(evaluate)
        at_end = rh.FinalOpsHook({"accuracy": accuracy, "step": step})
        hooks = [
            rh.StopAtStepHook(last_step=args.steps),
            rh.SavedStateHook(model=KerasVariables(model), optimizer=KerasVariables(optimizer)),
            rh.ProgressHook(args.steps, {"loss": loss}),
            rh.EvaluationHook({"test/accuracy": accuracy}, every_n_steps=100, output_dir=args.dir),
            at_end,
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=args.dir, hooks=hooks, save_checkpoint_steps=100
        ) as session:
            while not session.should_stop():
                session.run(train_op)
    reached = at_end.final_ops_values
    print(f"step {reached['step']}: {float(reached['accuracy']):.1%} of the test digits read")


if __name__ == "__main__":
    main()
