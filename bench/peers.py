"""The same for the peers: TensorFlow's MonitoredSession and hooks, CLU's periodic actions."""

from __future__ import annotations

import tempfile
from typing import Any

import tensorflow as tf
from clu import periodic_actions

from bench import ours
from bench.measure import Contender, Loop

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")


def clu() -> Loop:
    """Three actions, none due, after each bare jitted call."""
    call, state, step = ours.compiled(), ours.initial(), 0
    actions = [
        periodic_actions.PeriodicCallback(every_steps=ours.NEVER, callback_fn=print),
        periodic_actions.ReportProgress(every_steps=ours.NEVER, every_secs=None),
        periodic_actions.Profile(
            logdir=tempfile.mkdtemp(), every_secs=None, first_profile=ours.NEVER
        ),
    ]

    def loop(times: int) -> None:
        nonlocal state, step
        for _ in range(times):
            state = call(state)
            step += 1
            for action in actions:
                action(step)

    return loop


def build() -> Any:
    """As trivial a step as ours: two assignments and the global step."""
    weights = v1.get_variable("weights", initializer=tf.zeros(8), use_resource=True)
    moments = v1.get_variable("moments", initializer=tf.zeros(8), use_resource=True)
    v1.summary.scalar("first", weights[0])
    count = v1.train.get_or_create_global_step().assign_add(1)
    return tf.group(weights.assign_add(tf.ones(8)), moments.assign(moments * 0.9), count)


def five_hooks(run_dir: str) -> list[Any]:
    never = ours.NEVER
    return [
        v1.train.StepCounterHook(every_n_steps=never, output_dir=run_dir),
        v1.train.SummarySaverHook(
            save_steps=never, output_dir=run_dir, summary_op=v1.summary.merge_all()
        ),
        v1.train.CheckpointSaverHook(run_dir, save_steps=never),
        v1.train.StopAtStepHook(last_step=never),
        v1.train.LoggingTensorHook({"weights": v1.global_variables()[0]}, every_n_iter=never),
    ]


def session() -> Loop:
    with tf.Graph().as_default() as graph:
        train_op = build()
        raw = v1.Session(graph=graph)
        raw.run(v1.global_variables_initializer())
    return ours.running(raw, train_op)


def monitored_session(with_hooks: bool) -> Loop:
    with tf.Graph().as_default():
        train_op = build()
        hooks = five_hooks(tempfile.mkdtemp()) if with_hooks else []
        return ours.running(v1.train.MonitoredSession(hooks=hooks), train_op)


def contenders() -> list[Contender]:
    """CLU's, over the bare jitted call of ours; then TensorFlow's, over its own session."""
    bare, alone = "TensorFlow: Session.run, bare", "TensorFlow: MonitoredSession, no hooks"
    return [
        Contender("CLU: three actions, none due", clu(), "jitted call, bare"),
        Contender(bare, session()),
        Contender(alone, monitored_session(False), bare),
        Contender("TensorFlow: five hooks, none due", monitored_session(True), alone),
    ]
