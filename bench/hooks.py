"""How the cost of a step grows with hooks that are not due, 1 to 1,000, and in other libraries.

TensorFlow's hooks are ``LoggingTensorHook``; with CLU, ignite and Lightning, each callback counts
steps itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import tensorflow as tf
import torch
from clu import periodic_actions

import runhooks as rh
from bench import ours, tensorflow_step, torch_peers, torch_step
from bench.measure import NEVER, Contender, Effort, Loop
from bench.sessions import Work, bare, loggers, monitored_session, running
from bench.table import Growth, grown
from runhooks.tensorflow import train

SIZES = (1, 10, 100, 1000)


def of_jax(count: int) -> list[Contender]:
    work = Work("jax", ours.initial, ours.step)
    action = partial(periodic_actions.PeriodicCallback, every_steps=NEVER, callback_fn=print)
    peer = ours.clu(ours.compiled(), ours.initial(), [action() for _ in range(count)])
    return [
        Contender(ours.BARE, bare(ours.compiled(), ours.initial()), role="limit"),
        Contender("runhooks", monitored_session(work, loggers(count)), ours.BARE),
        Contender("CLU", peer, ours.BARE, role="peer", why=ours.COUNTS),
    ]


def of_tensorflow(count: int) -> list[Contender]:
    def session(names: Any) -> Loop:
        with tf.Graph().as_default():
            train_op = tensorflow_step.build()
            weights = tf.compat.v1.global_variables()[0]
            hooks = [
                names.LoggingTensorHook({"weights": weights}, every_n_iter=NEVER)
                for _ in range(count)
            ]
            return running(names.MonitoredSession(hooks=hooks), train_op)

    alone = "Session.run, bare"
    return [
        Contender(alone, tensorflow_step.bare(), role="limit"),
        Contender("runhooks", session(train), alone),
        Contender("TensorFlow", session(tf.compat.v1.train), alone, role="peer"),
    ]


def of_torch(count: int) -> list[Contender]:
    torch.set_num_threads(1)
    alone, works = "PyTorch, bare loop", [torch_step.trivial() for _ in range(4)]
    batch = tuple(works[0].batch.values())
    graph = rh.torch.graph(works[1].step, outputs=["loss"], model=works[1].model)
    with graph.as_default():
        hooks = [rh.LoggingTensorHook(["loss"], every_n_iter=NEVER) for _ in range(count)]
        session = rh.MonitoredSession(hooks=hooks)
    parts = {"model": works[2].model}
    ignite = torch_peers.ignite(works[2].step, batch, parts, count)
    lightning = torch_peers.lightning(works[3].step, batch, works[3].optimizer, count)
    return [
        Contender(alone, torch_step.bare(works[0]), role="limit"),
        Contender("runhooks", torch_step.feeding(session, works[1].batch), alone),
        Contender("ignite", ignite, alone, role="peer"),
        Contender("Lightning", lightning, alone, role="peer"),
    ]


def tables(effort: Effort) -> Iterator[Growth]:
    sizes = effort.sizes(*SIZES)
    yield grown("a step of JAX", "sleeping hooks", sizes, of_jax, effort, 31, 100)
    yield grown("a step of TensorFlow", "sleeping hooks", sizes, of_tensorflow, effort, 15, 20)
    yield grown("a step of PyTorch", "sleeping hooks", sizes, of_torch, effort, 15, 20)
