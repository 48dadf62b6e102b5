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
from bench.sessions import (
    Asks,
    State,
    Work,
    bare,
    five_hooks,
    monitored_session,
    no_hooks,
    raw_session,
    running,
)
from bench.table import Table, measured

BARE, RAW, MONITORED = "jitted call, bare", "raw session", "monitored session, no hooks"
FIVE = "monitored session, five hooks, none due"
ASKS = (
    "A hook may keep its context and its values, so each run creates new ones: eight Python "
    "calls for the first hook, half a microsecond for each further one."
)
CALLS = (
    "Three Python calls and two locks: each run is checked for signals, lost sessions and failed "
    "threads, counted, and its values are assigned all at once."
)
LATE = "It is called with the value of the run before, which JAX has computed by then."
COUNTS = (
    "CLU only counts steps. A session also keeps the state unchanged if a step raises, and "
    "checks for signals, lost sessions and failed threads."
)
FETCHED = "loss fetched by the loop"
ELEMENT = (
    "What the step returns is taken out of its result; what has to be computed from that, as an "
    "element of an array, is an executable of its own. Return the number from the step."
)


def initial() -> State:
    return {"weights": jnp.zeros(8), "moments": jnp.zeros(8)}


def step(state: State) -> State:
    return {"weights": state["weights"] + 1, "moments": state["moments"] * 0.9}


def compiled() -> Any:
    return jax.jit(step, donate_argnums=0)


def step_with_metrics(state: State) -> tuple[State, dict[str, Any]]:
    new_state = step(state)
    return new_state, {"loss": new_state["weights"][0], "first": new_state["weights"]}


def fetching_session(
    hooks_of: Callable[[rh.Tensor], list[rh.SessionRunHook]], *, of_array: bool = False
) -> Loop:
    """A loop that fetches the loss of each step, as those that print it do, with hooks of it.

    ``of_array``: the loss is an element of an array, which a second executable takes out.
    """
    graph = rh.jax.graph(step_with_metrics, state=initial)
    with graph.as_default():
        loss = graph["first"][0] if of_array else graph["loss"]
        return running(rh.MonitoredSession(hooks=hooks_of(loss)), ("train_op", loss))


def clu(call: Any, state: State, actions: list[Any]) -> Loop:
    """Actions after each bare jitted call."""
    step = 0

    def loop(times: int) -> None:
        nonlocal state, step
        for _ in range(times):
            state = call(state)
            step += 1
            for action in actions:
                action(step)

    return loop


def three_actions() -> list[Any]:
    """None of them due."""
    return [
        periodic_actions.PeriodicCallback(every_steps=NEVER, callback_fn=print),
        periodic_actions.ReportProgress(every_steps=NEVER, every_secs=None),
        periodic_actions.Profile(logdir=tempfile.mkdtemp(), every_secs=None, first_profile=NEVER),
    ]


def contenders() -> list[Contender]:
    """The bare jitted call first: the others are multiples of it."""
    work = Work("jax", initial, step)
    peer = clu(compiled(), initial(), three_actions())
    return [
        Contender(BARE, bare(compiled(), initial()), role="limit"),
        Contender(RAW, raw_session(work), BARE),
        Contender(MONITORED, monitored_session(work, no_hooks), RAW),
        Contender(FIVE, monitored_session(work, five_hooks), BARE, 1.5, why=CALLS),
        Contender("CLU: three actions, none due", peer, BARE, role="peer", beside=FIVE, why=COUNTS),
    ]


def that_ask() -> list[Contender]:
    """Hooks that are due in every run, in a loop that fetches the same."""

    def five(loss: rh.Tensor) -> list[rh.SessionRunHook]:
        return [Asks(loss) for _ in range(5)]

    def late(loss: rh.Tensor) -> list[rh.SessionRunHook]:
        return [rh.NanTensorHook(loss, late=True)]

    return [
        Contender(FETCHED, fetching_session(lambda loss: [])),
        Contender(
            "a hook asks for it",
            fetching_session(lambda loss: [Asks(loss)]),
            FETCHED,
            budget=1.0,
            why=ASKS,
        ),
        Contender("five do", fetching_session(five), FETCHED, 5.0),
        Contender("NanTensorHook(late=True)", fetching_session(late), FETCHED, 1.5, why=LATE),
        Contender(
            "an element of an array fetched by the loop",
            fetching_session(lambda loss: [], of_array=True),
            FETCHED,
            why=ELEMENT,
        ),
    ]


def tables(effort: Effort) -> Iterator[Table]:
    yield measured("a trivial jitted step", contenders(), effort, 51, 300)
    yield measured("hooks that ask in every run, JAX", that_ask(), effort, 51, 300)
