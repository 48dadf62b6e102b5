"""One process of jax.distributed that trains on an array which spans all of them.

``jax_program.py FOLDER PORT EVENT RANK``: to what happens to rank 1 alone: a SIGTERM, and then on
to step 30; a SIGKILL; or its data end.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import runhooks as rh
from runhooks.ranks import current_group

faulthandler.dump_traceback_later(100, exit=True)
logging.basicConfig(level=logging.INFO, format="%(message)s")
folder, port, event, rank = Path(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4])
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)

mesh = jax.make_mesh((jax.device_count(),), ("data",))
rows = NamedSharding(mesh, PartitionSpec("data"))


class Signals(rh.SessionRunHook):
    """Sends this process a SIGTERM after a step."""

    def __init__(self, at):
        self.at = at

    def after_run(self, run_context, run_values):
        if run_context.session.global_step in self.at:
            os.kill(os.getpid(), signal.Signals[event])


def spread(values):
    return jax.make_array_from_process_local_data(rows, values)


def elements(step):
    data = np.arange(2 * jax.local_device_count()) + rank + step
    return spread(data.astype(np.float32))


def batches(step):
    return map(elements, range(step, 8 if rank else 100))


def train(last_step, signals_at):
    graph = rh.Graph(engine="jax")
    with graph.as_default():
        weights = rh.Variable(spread(np.ones(2 * jax.local_device_count())), name="weights")
        batch = rh.placeholder("batch")

        def step(weights, batch):
            loss = jnp.mean(weights * batch)  # of all processes: a collective
            return weights - 1e-4 * loss * batch, loss

        if event == "data end":
            batch = rh.inputs(batches)
        new, loss = rh.call(step, weights, batch, num_outputs=2, name="step")
        rh.summary.scalar("loss", loss)
        op = rh.group(
            weights.assign(new), rh.train.get_or_create_global_step().assign_add(1), name="train_op"
        )
        hooks = [
            rh.StopAtStepHook(last_step=last_step),
            rh.LoggingTensorHook({"loss": loss}, every_n_iter=7),
            Signals(signals_at if rank else ()),
        ]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=folder / "run" if event == "SIGTERM" else None,
            save_checkpoint_secs=0.2,
            save_summaries_steps=5,
            log_step_count_steps=10,
            hooks=hooks,
        ) as session:
            while not session.should_stop():
                session.run(
                    op, {} if event == "data end" else {batch: elements(session.global_step)}
                )
            raw = session._sess
            mine = [np.asarray(it.data).tolist() for it in raw.run(weights).addressable_shards]
        return session.global_step, session.stop_reason, mine


if event != "SIGTERM":
    current_group().grace_secs = 5.0
    try:
        train(30, [5] if event == "SIGKILL" else [])
    except Exception as error:
        (folder / f"{rank}.json").write_text(json.dumps([type(error).__name__, str(error)]))
        raise
found = [train(30, [5]), train(30, [])]
(folder / f"{rank}.json").write_text(json.dumps(found))
jax.distributed.shutdown()
