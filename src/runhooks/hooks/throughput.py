"""``ThroughputHook``: how much a second of training gets done, and how much of it is waiting."""

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
from runhooks.hooks.global_step import required_global_step, step_of
from runhooks.hooks.named_tensors import NamedTensors
from runhooks.hooks.summary_output import SummaryOutput, SummaryWriter
from runhooks.hooks.windows import EVERY_N_STEPS, Window, Windows
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import Due, Trigger

_log = logging.getLogger("runhooks")

_MOST_UNREAD = 1000

AnyElement = TypeVar("AnyElement")


class ThroughputHook(SessionRunHook):
    """Logs and writes examples, tokens and steps per second, and the share of waiting for input.

    ``examples``, ``tokens``: how many there are in a step; or a tensor, or its name, whose value
    says how many there were in a run. A tensor is fetched in every run and read when the hook is
    due; with numbers the hook sleeps in between. ``every_n_steps``, or ``every_n_secs`` with
    ``every_n_steps=None``, or ``trigger``, to which the default gives way: how often.
    ``output_dir``: the directory to write to if no ``summary_writer`` is given.

    Each figure is of the time since the one before, and never of an earlier session; the first
    run, in which things are compiled, evaluations and synchronous saving are left out. When it is
    due it waits for the device, so that it measures work and not what is queued. The tags are
    ``throughput/steps_per_sec``, ``throughput/examples_per_sec``, ``throughput/tokens_per_sec``
    and, from 0 to 1, ``throughput/input_wait``: time spent in drawing from the graph's inputs, and
    in the iterators of ``timed``; it is written if there was any.

    Raises ValueError unless exactly one of ``every_n_steps``, ``every_n_secs`` and ``trigger`` is
    given, and for a number not above zero.
    """

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
        self._windows = Windows(every_n_steps, every_n_secs, trigger)
        self._output = SummaryOutput(output_dir, summary_writer)
        self._timed_secs = 0.0
        self._waited_before = 0.0

    def timed(self, source: Iterable[AnyElement]) -> Iterator[AnyElement]:
        """The elements of ``source``; what the loop waits for them counts as waiting for input."""
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
        self._output.open()

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        # A session that is not ours has neither this nor `input_secs` nor `wait`.
        time_inputs = getattr(session, "time_inputs", None)
        if time_inputs is not None:
            time_inputs()
        self._windows.start(session)
        self._output.start(session)

    def next_due(self) -> Due | None:
        return None if self._fetches else self._windows.due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
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
        wait = getattr(session, "wait", None)
        if wait is not None:
            wait()
        window = self._windows.turn(session)
        made = {label: total.take() for label, total in self._totals.items()}
        waited = self._timed_secs + getattr(session, "input_secs", 0.0)
        waited, self._waited_before = waited - self._waited_before, waited
        if window is not None:
            made |= {label: number * window.steps for label, number in self._per_step.items()}
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
    """The sum of values that are left on their device as long as there are not too many."""

    def __init__(self) -> None:
        self._unread: list[Any] = []
        self._read = 0.0

    def add(self, value: Any) -> None:
        self._unread.append(value)
        if len(self._unread) > _MOST_UNREAD:
            self._read_first(_MOST_UNREAD // 2)  # computed long ago: that waits for nothing

    def take(self) -> float:
        """The sum; begins anew."""
        self._read_first(len(self._unread))
        total, self._read = self._read, 0.0
        return total

    def _read_first(self, count: int) -> None:
        self._read += sum(float(np.sum(value)) for value in self._unread[:count])
        del self._unread[:count]
