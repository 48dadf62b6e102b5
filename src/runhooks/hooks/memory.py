"""``MemoryHook``: how much memory of its devices a training takes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.global_step import engine_of, required_global_step, step_of
from runhooks.hooks.summary_output import SummaryOutput, SummaryWriter
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, Timer, Trigger

_log = logging.getLogger("runhooks")

_EVERY_N_STEPS = 100


class MemoryHook(SessionRunHook):
    """Writes what the devices say of their memory: ``memory/cuda:0/allocated_bytes`` and others.

    ``every_n_steps`` or ``trigger``: when, the first step included. ``output_dir``: the directory
    to write to if no ``summary_writer`` is given. Nothing waits for a device. Where no device
    tells, as on a CPU, one line in the log says so, and the hook sleeps.

    Raises ValueError unless exactly one of ``every_n_steps`` and ``trigger`` is given.
    """

    def __init__(
        self,
        every_n_steps: int | None = _EVERY_N_STEPS,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        if trigger is not None and every_n_steps == _EVERY_N_STEPS:
            every_n_steps = None
        arguments.exactly_one(every_n_steps=every_n_steps, trigger=trigger)
        self._timer = Timer(trigger or Trigger(every_steps=every_n_steps))
        self._output = SummaryOutput(output_dir, summary_writer)
        self._tells = False

    def begin(self) -> None:
        required_global_step(self)
        self._timer.reset()
        self._output.open()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._timer.start(step_of(session))
        self._output.start(session)
        self._tells = bool(_memory(session))
        if not self._tells:
            _log.info(
                "no memory is written: no device of this session tells how much it has in use"
            )

    def next_due(self) -> Due | None:
        return self._timer.due() if self._tells else Due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if self._tells and self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._write(run_context.session, step)

    def end(self, session: RawSession) -> None:
        step = step_of(session)
        if self._tells and self._timer.should_trigger_at_end(step):
            self._write(session, step)
        self._output.flush()

    def state_dict(self) -> Mapping[str, Any]:
        return self._timer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._timer.load_state_dict(state)

    def _write(self, session: RawSession, step: int) -> None:
        numbers = _memory(session).items()
        values = [scalar_value(f"memory/{name}", number) for name, number in numbers]
        self._output.add_summary(Summary(values), step)


def _memory(session: RawSession) -> Mapping[str, int]:
    memory = getattr(engine_of(session), "memory", None)
    return {} if memory is None else memory()
