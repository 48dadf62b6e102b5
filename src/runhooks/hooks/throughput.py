"""``ThroughputHook``: measures examples, tokens and steps per second, and waiting for input."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.hooks.helpers.named_tensors import NamedTensors
from runhooks.hooks.helpers.session import required_global_step, step_of
from runhooks.hooks.helpers.summary_output import SummaryOutput, SummaryWriter
from runhooks.hooks.helpers.training_time import EVERY_N_STEPS, Window, Windows
from runhooks.ranks import current_group
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, Trigger, timer_of

_log = logging.getLogger("runhooks")

_MOST_UNREAD = 1000

AnyElement = TypeVar("AnyElement")


class ThroughputHook(SessionRunHook):
    """Logs and writes examples, tokens and steps per second, and the share of time spent on input.

    The tags are ``throughput/steps_per_sec``, ``throughput/examples_per_sec``,
    ``throughput/tokens_per_sec`` and ``throughput/input_wait``. The last one, from 0 to 1, is the
    share of time spent drawing from the graph's inputs and in the iterators of ``timed``; it is
    written if there was any.

    Each figure covers the time since the previous one, in this session. The first run, which
    compiles, does not count, and neither do evaluations and synchronous saving. When the hook is
    due, it waits for the device, so it measures finished work, not queued work.

    With several PyTorch ranks, the chief measures, and multiplies its examples and tokens by the
    number of ranks. With ``jax.distributed``, one run is one program on all ranks, so the numbers
    already cover all of them.

        hooks = [rh.ThroughputHook(examples=32, every_n_steps=100, output_dir="runs/a")]

    Args:
        examples: The number of examples in a step; or a tensor or its name that gives the number
            for each run. A tensor is fetched in every run, and read when the hook is due; with a
            plain number, the hook is not called in between.
        tokens: The same for tokens.
        every_n_steps: Measure at the multiples of this number.
        every_n_secs: Seconds from one measurement to the next.
        output_dir: The directory to write to if ``summary_writer`` is None.
        summary_writer: The writer to write with.
        trigger: Says when to measure.

    Raises:
        ValueError: If more than one of ``every_n_steps``, ``every_n_secs`` and ``trigger`` is
            given, or for a number that is not above zero.
    """

    runs_on = "chief"

    def __init__(
        self,
        examples: Any = None,
        tokens: Any = None,
        every_n_steps: int | None = EVERY_N_STEPS,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        given = {"examples": examples, "tokens": tokens}
        self._per_step = {k: v for k, v in given.items() if isinstance(v, int | float)}
        arguments.positive(**self._per_step)
        tensors = {k: v for k, v in given.items() if v is not None and k not in self._per_step}
        self._tensors = NamedTensors(tensors)
        self._totals = {label: _Total() for label in tensors}
        self._fetches: dict[str, Any] = {}
        self._windows = Windows(
            timer_of(trigger, every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        )
        self._output = SummaryOutput(output_dir, summary_writer)
        self._timed_secs = 0.0
        self._waited_before = 0.0

    def timed(self, source: Iterable[AnyElement]) -> Iterator[AnyElement]:
        """Yield the elements of ``source``; time spent waiting for them counts as input."""
        iterator = iter(source)
        while True:
            start = clock.monotonic()
            try:
                element = next(iterator)
            except StopIteration:
                return
            finally:
                self._timed_secs += clock.monotonic() - start
            yield element

    def begin(self) -> None:
        required_global_step(self)
        self._fetches = self._tensors.fetches()
        group = current_group()
        self._ranks = 1 if group.runs_one_program else group.size
        self._output.open(on_each_rank=self.runs_on == "all")

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        session_of(session).time_inputs()
        self._windows.start(session)
        self._output.start(session)

    def next_due(self) -> Due | None:
        return None if self._fetches else self._windows.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return SessionRunArgs(self._fetches) if self._fetches else None

    def warm_up(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return SessionRunArgs(self._fetches) if self._fetches else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        for label, value in (run_values.results or {}).items():
            self._totals[label].add(value)
        if self._windows.is_due(run_context.session):
            self._measure(run_context.session)

    def end(self, session: RawSession) -> None:
        if self._windows.is_due_at_end(session):
            self._measure(session)
        self._output.flush()

    def _measure(self, session: RawSession) -> None:
        raw = session_of(session)
        raw.wait()
        window = self._windows.turn(session)
        made = {label: total.take() for label, total in self._totals.items()}
        waited = self._timed_secs + raw.input_secs
        waited, self._waited_before = waited - self._waited_before, waited
        if window is not None:
            made |= {label: number * window.steps for label, number in self._per_step.items()}
            made = {label: number * self._ranks for label, number in made.items()}
            self._record(step_of(session), window, made, waited)

    def _record(self, step: int, window: Window, made: dict[str, float], waited: float) -> None:
        speeds = {"steps": window.steps_per_sec}
        speeds |= {label: window.per_sec(made[label]) for label in sorted(made)}
        values = [scalar_value(f"throughput/{k}_per_sec", v) for k, v in speeds.items()]
        parts = [f"{value:.4g} {label}/sec" for label, value in speeds.items()]
        if self._waited_before > 0:
            share = window.per_sec(waited)
            values.append(scalar_value("throughput/input_wait", share))
            parts.append(f"{share:.1%} of the time waiting for input")
        self._output.add_summary(Summary(values), step)
        _log.info("step %d: %s", step, ", ".join(parts))


class _Total:
    """The sum of values that stay on their device until there are too many of them."""

    def __init__(self) -> None:
        self._unread: list[Any] = []
        self._read = 0.0

    def add(self, value: Any) -> None:
        self._unread.append(value)
        if len(self._unread) > _MOST_UNREAD:
            self._read_first(_MOST_UNREAD // 2)  # computed long ago: reading them does not wait

    def take(self) -> float:
        """Return the sum, and start over at 0."""
        self._read_first(len(self._unread))
        total, self._read = self._read, 0.0
        return total

    def _read_first(self, count: int) -> None:
        self._read += sum(float(np.sum(value)) for value in self._unread[:count])
        del self._unread[:count]
