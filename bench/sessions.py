"""A step over a dict of arrays: called bare, and in sessions of ours, on any engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import runhooks as rh
from bench.measure import NEVER, Loop

State = dict[str, Any]


def first_number(state: State) -> Any:
    return next(iter(state.values()))[0]


class Work(NamedTuple):
    """What is trained: the step of an engine, the state it begins with, and a number of it."""

    engine: str
    initial: Callable[[], Any]
    step: Callable[[Any], Any]
    number: Callable[[Any], Any] = first_number


def bare(call: Callable[[Any], Any], state: Any) -> Loop:
    """Call a step, compiled by whoever wants it so, with what it returned."""

    def loop(times: int) -> None:
        nonlocal state
        for _ in range(times):
            state = call(state)

    return loop


def build(work: Work) -> rh.Operation:
    state = rh.Variable(work.initial, name="state")
    new_state = rh.call(work.step, state)
    rh.summary.scalar("first", rh.call(work.number, new_state))
    count = rh.train.get_or_create_global_step().assign_add(1)
    return rh.group(state.assign(new_state), count)


def no_hooks(run_dir: str) -> list[rh.SessionRunHook]:
    return []


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


def loggers(count: int) -> Callable[[str], list[rh.SessionRunHook]]:
    return lambda _: [rh.LoggingTensorHook(["state:0"], every_n_iter=NEVER) for _ in range(count)]


class Asks(rh.SessionRunHook):
    """Asks for a tensor in every run."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def before_run(self, run_context: rh.SessionRunContext) -> rh.SessionRunArgs:
        return rh.SessionRunArgs(self._tensor)


def running(session: Any, fetches: Any) -> Loop:
    def loop(times: int) -> None:
        run = session.run
        for _ in range(times):
            run(fetches)

    return loop


def raw_session(work: Work) -> Loop:
    with rh.Graph(engine=work.engine).as_default() as graph:
        train_op = build(work)
    return running(rh.Session(graph), train_op)


def monitored_session(work: Work, hooks: Callable[[str], Sequence[rh.SessionRunHook]]) -> Loop:
    with rh.Graph(engine=work.engine).as_default():
        train_op = build(work)
        return running(rh.MonitoredSession(hooks=hooks(tempfile.mkdtemp())), train_op)
