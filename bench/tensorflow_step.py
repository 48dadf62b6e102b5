"""A trivial step of TensorFlow: bare, under its own MonitoredSession, under ours, with hooks.

The hooks are the same, none of them due for the whole measurement. TensorFlow's
``CheckpointSaverHook(save_steps=...)`` reads the global step once more when it is due; its
``SummarySaverHook`` and ``StepCounterHook`` fetch it in every run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from bench.measure import NEVER, Contender, Effort, Loop, Role
from bench.sessions import running
from bench.table import Table, measured
from runhooks.tensorflow import train

v1 = tf.compat.v1
HOOKS = {0: "MonitoredSession, no hooks", 3: "three hooks, none due", 5: "five hooks, none due"}
tf.get_logger().setLevel("ERROR")


def build() -> Any:
    """As trivial a step as that of the jax engine: two assignments and the global step."""
    weights = v1.get_variable("weights", initializer=tf.zeros(8), use_resource=True)
    moments = v1.get_variable("moments", initializer=tf.zeros(8), use_resource=True)
    v1.summary.scalar("first", weights[0])
    count = v1.train.get_or_create_global_step().assign_add(1)
    return tf.group(weights.assign_add(tf.ones(8)), moments.assign(moments * 0.9), count)


def hooks_of(names: Any, count: int) -> list[Any]:
    """The first ``count`` of five, of ``names``: TensorFlow's or ours."""
    run_dir, weights = tempfile.mkdtemp(), v1.global_variables()[0]
    return [
        names.StopAtStepHook(last_step=NEVER),
        names.StepCounterHook(every_n_steps=NEVER, output_dir=run_dir),
        names.LoggingTensorHook({"weights": weights}, every_n_iter=NEVER),
        names.SummarySaverHook(
            save_steps=NEVER, output_dir=run_dir, summary_op=v1.summary.merge_all()
        ),
        names.CheckpointSaverHook(run_dir, save_steps=NEVER),
    ][:count]


def bare() -> Loop:
    with tf.Graph().as_default() as graph:
        train_op = build()
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
    return running(session, train_op)


def monitored_session(names: Any, hooks: int) -> Loop:
    with tf.Graph().as_default():
        train_op = build()
        session = names.MonitoredSession(hooks=hooks_of(names, hooks))
    return running(session, train_op)


def contenders() -> list[Contender]:
    """``Session.run`` first: the others are multiples of it."""
    made = [Contender("TensorFlow: Session.run, bare", bare(), role="limit")]
    whose: list[tuple[str, Any, Role]] = [
        ("runhooks", train, "ours"),
        ("TensorFlow", v1.train, "peer"),
    ]
    for who, names, role in whose:
        for hooks, what in HOOKS.items():
            loop = monitored_session(names, hooks)
            beside = f"runhooks: {what}" if role == "peer" else None
            made.append(Contender(f"{who}: {what}", loop, role=role, beside=beside))
    return made


def tables(effort: Effort) -> Iterator[Table]:
    yield measured("TensorFlow, a trivial step", contenders(), effort, 51, 300)
