"""A trivial jitted step: called bare, in sessions, with five hooks, and with CLU's actions."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from clu import periodic_actions

import runhooks as rh
from bench.measure import NEVER, Contender, Effort, Loop
from bench.table import Table, measured

BARE, FIVE = "jitted call, bare", "monitored session, five hooks, none due"

State = dict[str, jax.Array]


def initial() -> State:
    return {"weights": jnp.zeros(8), "moments": jnp.zeros(8)}


def step(state: State) -> State:
    return {"weights": state["weights"] + 1, "moments": state["moments"] * 0.9}


def compiled() -> Callable[[State], State]:
    return jax.jit(step, donate_argnums=0)


def bare() -> Loop:
    call, state = compiled(), initial()

    def loop(times: int) -> None:
        nonlocal state
        for _ in range(times):
            state = call(state)

    return loop


def build() -> rh.Operation:
    state = rh.Variable(initial, name="state")
    new_state = rh.call(step, state)
    rh.summary.scalar("first", new_state["weights"][0])
    count = rh.train.get_or_create_global_step().assign_add(1)
    return rh.group(state.assign(new_state), count)


def five_hooks(run_dir: str) -> list[rh.SessionRunHook]:
    """The five of most programs, none of them due for the whole measurement."""
    return [
        rh.StepCounterHook(every_n_steps=NEVER, output_dir=run_dir),
        rh.SummarySaverHook(
            save_steps=NEVER, output_dir=run_dir, summary_op=rh.summary.merge_all()
        ),
        rh.CheckpointSaverHook(run_dir, save_steps=NEVER),
        rh.StopAtStepHook(last_step=NEVER),
        rh.LoggingTensorHook(["state:0"], every_n_iter=NEVER),
    ]


def running(session: Any, fetches: Any) -> Loop:
    def loop(times: int) -> None:
        run = session.run
        for _ in range(times):
            run(fetches)

    return loop


def raw_session() -> Loop:
    with rh.Graph(engine="jax").as_default() as graph:
        train_op = build()
    return running(rh.Session(graph), train_op)


def monitored_session(with_hooks: bool) -> Loop:
    with rh.Graph(engine="jax").as_default():
        train_op = build()
        hooks = five_hooks(tempfile.mkdtemp()) if with_hooks else []
        return running(rh.MonitoredSession(hooks=hooks), train_op)


def watched_session(with_hook: bool) -> Loop:
    """A loop that fetches the loss of each step, as those that print it do; NaN is looked for."""
    with rh.Graph(engine="jax").as_default():
        state = rh.Variable(initial, name="state")
        new_state = rh.call(step, state)
        loss = new_state["weights"][0]
        count = rh.train.get_or_create_global_step().assign_add(1)
        train_op = rh.group(state.assign(new_state), count)
        hooks = [rh.NanTensorHook(loss, late=True)] if with_hook else []
        return running(rh.MonitoredSession(hooks=hooks), (train_op, loss))


def contenders() -> list[Contender]:
    """The bare jitted call first: the others are multiples of it."""
    return [
        Contender(BARE, bare(), role="limit"),
        Contender("raw session", raw_session(), BARE, 3.0),
        Contender("monitored session, no hooks", monitored_session(False), "raw session", 1.5),
        Contender(
            FIVE,
            monitored_session(True),
            "monitored session, no hooks",
            1.5,
        ),
        Contender("loss fetched by the loop", watched_session(False)),
        Contender("and watched for NaN", watched_session(True), "loss fetched by the loop", 2.0),
        Contender("CLU: three actions, none due", clu(), BARE, role="peer", beside=FIVE),
    ]


def clu() -> Loop:
    """Three actions, none due, after each bare jitted call."""
    call, state, step = compiled(), initial(), 0
    actions = [
        periodic_actions.PeriodicCallback(every_steps=NEVER, callback_fn=print),
        periodic_actions.ReportProgress(every_steps=NEVER, every_secs=None),
        periodic_actions.Profile(logdir=tempfile.mkdtemp(), every_secs=None, first_profile=NEVER),
    ]

    def loop(times: int) -> None:
        nonlocal state, step
        for _ in range(times):
            state = call(state)
            step += 1
            for action in actions:
                action(step)

    return loop


def tables(effort: Effort) -> Iterator[Table]:
    yield measured("a trivial jitted step", contenders(), effort, 51, 300)
