"""The handwritten digits on several processes or machines, with ``jax.distributed``.

    for i in 0 1; do python examples/multihost_jax.py --size 2 --rank $i --dir runs/hosts & done; wait

On Slurm or cloud TPUs, leave out ``--size`` and ``--rank``: JAX finds them. Each process reads its
share of every batch. All processes run one program on all devices, so hooks ask for the same values
on each of them; rank 0 writes event files and logs. SIGTERM to any process stops all of them after
the same step.
"""  # noqa: E501

import argparse
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

import runhooks as rh

BATCH = 64  # of all processes together

optimizer = optax.adam(3e-3)


def create_state() -> Any:
    keys = jax.random.split(jax.random.key(0))
    shapes = {"hidden": (64, 64), "out": (64, 10)}
    params = {
        layer: 0.1 * jax.random.normal(key, shape)
        for key, (layer, shape) in zip(keys, shapes.items(), strict=True)
    }
    return {"params": params, "opt_state": optimizer.init(params)}


def train_step(state: Any, images: Any, labels: Any) -> Any:
    def loss_of(params: Any) -> Any:
        scores = jax.nn.relu(images @ params["hidden"]) @ params["out"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    updates, opt_state = optimizer.update(grads, state["opt_state"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt_state": opt_state}, {"loss": loss}


def batches(rows: Any, step: int) -> Iterator[tuple[Any, Any]]:
    """Batches from ``step`` on, of which this process holds its share; a new order each epoch."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    for now in itertools.count(step):
        epoch, batch = divmod(now, len(labels) // BATCH)
        order = np.random.default_rng(epoch).permutation(len(labels))
        chosen = order[batch * BATCH :][:BATCH]
        mine = np.split(chosen, jax.process_count())[jax.process_index()]
        yield tuple(
            jax.make_array_from_process_local_data(rows, part[mine]) for part in (images, labels)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits on several hosts.")
    parser.add_argument("--dir", default="runs/hosts", help="run directory (%(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="the last step (%(default)s)")
    parser.add_argument("--save-secs", type=float, default=60, help="seconds between checkpoints")
    parser.add_argument("--coordinator", default="127.0.0.1:12355", help="the address of rank 0")
    parser.add_argument("--size", type=int, help="the number of processes")
    parser.add_argument("--rank", type=int, help="the number of this one, from 0")
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("runhooks").setLevel(logging.INFO)

    if args.size is None:
        jax.distributed.initialize()
    else:
        jax.distributed.initialize(args.coordinator, args.size, args.rank)
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    rows, everywhere = (
        NamedSharding(mesh, spec) for spec in (PartitionSpec("data"), PartitionSpec())
    )

    graph = rh.Graph(engine="jax")
    with graph.as_default():
        state = rh.Variable(jax.jit(create_state, out_shardings=everywhere)(), name="state")
        images, labels = rh.inputs(lambda at: batches(rows, at), 2)
        new_state, outputs = rh.call(train_step, state, images, labels, num_outputs=2)
        global_step = rh.train.get_or_create_global_step()
        train_op = rh.group(state.assign(new_state), global_step.assign_add(1), name="train_op")
        rh.summary.scalar("loss", outputs["loss"])
        hooks = [
            rh.StopAtStepHook(last_step=args.steps),
            rh.LoggingTensorHook({"loss": outputs["loss"]}, every_n_iter=100),
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=args.dir, hooks=hooks, save_checkpoint_secs=args.save_secs
        ) as session:
            while not session.should_stop():
                session.run(train_op)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
