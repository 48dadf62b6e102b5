"""The classifier in flax, with CLU's writer and periodic actions and orbax's CheckpointManager."""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from clu import metric_writers, periodic_actions
from flax.training.train_state import TrainState
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from gallery.classifier_flax import create_state, load, report, test_step, train_step


def train(args: argparse.Namespace) -> None:
    train_data, test_data = load(args.batch_size)
    state, rng, step = create_state(args.lr), jax.random.key(1), 0
    best = BestN(get_metric_fn=lambda metrics: metrics["accuracy"], n=1)
    options = ocp.CheckpointManagerOptions(
        preservation_policy=AnyPreservationPolicy([LatestN(2), best])
    )
    writer = metric_writers.create_default_writer(args.dir)
    curves = periodic_actions.PeriodicCallback(
        every_steps=10, callback_fn=lambda step, t, outputs: writer.write_scalars(step, outputs)
    )
    speed = periodic_actions.ReportProgress(every_steps=100, every_secs=None, writer=writer)
    with (
        metric_writers.ensure_flushes(writer),
        ocp.CheckpointManager(args.dir.absolute() / "checkpoints", options=options) as manager,
    ):
        if (last := manager.latest_step()) is not None:
            like = {"state": state, "rng": jax.random.key_data(rng)}
            saved = manager.restore(last, args=ocp.args.StandardRestore(like))
            state, rng, step = saved["state"], jax.random.wrap_key_data(saved["rng"]), last
        for epoch in range(step // len(train_data) + 1, args.epochs + 1):
            losses, accuracies = [], []
            for images, labels in train_data:
                rng, key = jax.random.split(rng)
                state, outputs = train_step(state, key, images, labels)
                losses.append(outputs["loss"])
                accuracies.append(outputs["accuracy"])
                step += 1
                curves(step, outputs=outputs)
                speed(step)
            report(epoch, np.mean(losses), np.mean(accuracies))
            metrics = evaluate(state, test_data)
            writer.write_scalars(step, {f"test_{name}": it for name, it in metrics.items()})
            kept = {"state": state, "rng": jax.random.key_data(rng)}
            manager.save(step, args=ocp.args.StandardSave(kept), metrics=metrics)


def evaluate(state: TrainState, test_data: Any) -> dict[str, float]:
    tested = [test_step(state, images, labels) for images, labels in test_data]
    sizes = [len(labels) for _, labels in test_data]
    return {
        name: float(np.average([it[name] for it in tested], weights=sizes))
        for name in ("loss", "accuracy")
    }
