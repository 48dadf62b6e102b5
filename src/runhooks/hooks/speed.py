"""Hooks that measure: steps and examples per second, the cost of hooks, memory."""

from __future__ import annotations

import logging
import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from runhooks import arguments, clock
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.graph.base import StepPart
from runhooks.hooks.base import (
    NamedTensors,
    PeriodicHook,
    StepReadingHook,
    SummaryOutput,
    SummaryWriter,
    SummaryWritingHook,
    log_of,
    step_of,
)
from runhooks.ranks import current_group
from runhooks.summary import Summary, scalar_value
from runhooks.trigger import DefaultSteps, Due, Timer, Trigger, tensorflow_timer_of, timer_of

_log = logging.getLogger("runhooks")

_EVERY_N_STEPS = DefaultSteps(100)

AnyElement = TypeVar("AnyElement")


class MeasuringHook(PeriodicHook):
    """Measures when due, and writes on the chief."""

    runs_on = "chief"
    asks_on_all: ClassVar[bool] = True

    def __init__(
        self,
        timer: Timer,
        output_dir: str | os.PathLike[str] | None,
        summary_writer: SummaryWriter | None,
    ) -> None:
        super().__init__(timer)
        self._output = SummaryOutput(output_dir, summary_writer)

    def begin(self) -> None:
        super().begin()
        self._output.open(on_each_rank=self.runs_on == "all")

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        self._output.start(session)

    def end(self, session: RawSession) -> None:
        super().end(session)
        self._output.flush()


class Window(NamedTuple):
    """Steps, the seconds that they took, and those of these spent on training."""

    steps: int
    secs: float
    training_secs: float

    def per_sec(self, amount: float) -> float:
        return amount / self.training_secs if self.training_secs > 0 else float("inf")


class WindowHook(MeasuringHook):
    """Measures from one due step to the next, beginning after the first run, which compiles."""

    _opened: tuple[int, float, float] | None = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._opened = None
        super().after_create_session(session, coord)

    def next_due(self) -> Due | None:
        return Due(runs=1) if self._opened is None else self._timer.due()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        if self._opened is None or self._timer.should_trigger_for_step(step_of(session)):
            self._act(session)

    def _act(self, session: RawSession) -> None:
        super()._act(session)
        step, now = step_of(session), clock.monotonic()
        excluded = session_of(session).non_training_secs
        opened, self._opened = self._opened, (step, now, excluded)
        if opened is not None:
            secs = now - opened[1]
            self._record(session, Window(step - opened[0], secs, secs - (excluded - opened[2])))

    @abstractmethod
    def _record(self, session: RawSession, window: Window) -> None:
        """Write what ``window`` has measured."""


class StepCounterHook(WindowHook, StepReadingHook, SummaryWritingHook):
    """Logs and writes steps per second, under the tag ``<name of the global step>/sec``.

    As in ``tf.compat.v1.train``. The first run, which compiles, does not count, nor do evaluations
    and synchronous saving.

        hooks = [rh.StepCounterHook(every_n_steps=100, output_dir="runs/a")]

    Args:
        every_n_steps: Steps from one measurement to the next.
        every_n_secs: Seconds from one measurement to the next.
        output_dir: Where to write, without a ``summary_writer``; with neither, it only logs.
        summary_writer: The writer.
        trigger: When to measure.

    Raises:
        ValueError: If more than one cadence is given.
    """

    _last_global_step: int | None = None  # for subclasses
    _warned = False

    def __init__(
        self,
        every_n_steps: int | None = _EVERY_N_STEPS,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        cadence = {"every_n_steps": every_n_steps, "every_n_secs": every_n_secs}
        super().__init__(tensorflow_timer_of(trigger, **cadence), output_dir, summary_writer)

    def begin(self) -> None:
        super().begin()
        self._summary_tag = f"{self._global_step_tensor.op.name}/sec"

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        self._warned = False

    def next_due(self) -> Due | None:
        due = super().next_due()
        # After so many runs it is due, or the loop does not increase the step.
        most_runs = self._timer.trigger.every_steps or math.inf
        return due and due._replace(runs=min(due.runs, most_runs))

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step, opened = step_of(run_context.session), self._opened
        super().after_run(run_context, run_values)
        stays = opened is not None and opened is self._opened and step == opened[0]
        if not stays or self._warned:
            return
        asked = run_context.original_args
        part = session_of(run_context.session).step_part(asked.fetches, asked.feed_dict or ())
        if part is not StepPart.PART:  # a part may accumulate gradients
            self._warned = True
            log_of(run_context.session).warning(
                "the global step has not been increased since it was last looked at: it has stayed "
                "at %d; put global_step.assign_add(1) into what the loop runs",
                step,
            )

    def _record(self, session: RawSession, window: Window) -> None:
        self._log = log_of(session)
        self._log_and_record(window.steps, window.training_secs, step_of(session))

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        """Log and write the speed; subclasses override it."""
        steps_per_sec = elapsed_steps / elapsed_time if elapsed_time > 0 else math.inf
        value = scalar_value(self._summary_tag, steps_per_sec)
        self._output.add_summary(Summary([value]), global_step)
        self._log.info("%s: %g", self._summary_tag, steps_per_sec)


class ThroughputHook(WindowHook):
    """Logs and writes examples, tokens and steps per second, and the share of time on input.

    The tags are ``throughput/steps_per_sec``, ``throughput/examples_per_sec``,
    ``throughput/tokens_per_sec`` and, if the loop has waited, ``throughput/input_wait``: the share,
    from 0 to 1, of time in the graph's inputs and the iterators of ``timed``. The first run, which
    compiles, does not count, nor do evaluations and synchronous saving. When the hook is due, it
    waits for the device.

    Of several PyTorch ranks, the chief multiplies its examples and tokens by the number of ranks.
    With ``jax.distributed``, a run already has those of all.

        hooks = [rh.ThroughputHook(examples=32, every_n_steps=100, output_dir="runs/a")]

    Args:
        examples: The number of examples in a step; or a tensor that gives it, or its name, fetched
            in every run, and read when the hook is due.
        tokens: The same for tokens.
        every_n_steps: Measure at the multiples of this number.
        output_dir: Where to write, without a ``summary_writer``.
        summary_writer: The writer.
        trigger: When to measure.

    Raises:
        ValueError: If two cadences are given; for a number not above 0.
    """

    def __init__(
        self,
        examples: Any = None,
        tokens: Any = None,
        every_n_steps: int | None = _EVERY_N_STEPS,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        timer = timer_of(trigger, every_n_steps=every_n_steps)
        super().__init__(timer, output_dir, summary_writer)
        given = {"examples": examples, "tokens": tokens}
        self._per_step = {k: v for k, v in given.items() if isinstance(v, int | float)}
        arguments.positive(**self._per_step)
        tensors = {k: v for k, v in given.items() if v is not None and k not in self._per_step}
        self._tensors = NamedTensors(tensors)
        self._totals = {label: _Total() for label in tensors}
        self._fetches: dict[str, Any] = {}
        self._timed_secs = 0.0
        self._waited_before = 0.0

    def timed(self, source: Iterable[AnyElement]) -> Iterator[AnyElement]:
        """Yield the elements of ``source``; waiting for them counts as input."""
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
        super().begin()
        self._fetches = self._tensors.fetches()
        group = current_group()
        self._ranks = 1 if group.runs_one_program else group.size

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        session_of(session).time_inputs()
        super().after_create_session(session, coord)

    def next_due(self) -> Due | None:
        return None if self._fetches else super().next_due()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return SessionRunArgs(self._fetches) if self._fetches else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        for label, value in (run_values.results or {}).items():
            self._totals[label].add(value)
        super().after_run(run_context, run_values)

    def _act(self, session: RawSession) -> None:
        session_of(session).wait()
        super()._act(session)
        for total in self._totals.values():
            total.take()
        self._waited_before = self._waited(session)

    def _waited(self, session: RawSession) -> float:
        return self._timed_secs + session_of(session).input_secs

    def _record(self, session: RawSession, window: Window) -> None:
        step, waited = step_of(session), self._waited(session)
        made = {label: number * window.steps for label, number in self._per_step.items()}
        made |= {label: total.take() for label, total in self._totals.items()}
        speeds = {"steps": window.per_sec(window.steps)}
        speeds |= {label: window.per_sec(made[label] * self._ranks) for label in sorted(made)}
        values = [scalar_value(f"throughput/{k}_per_sec", v) for k, v in speeds.items()]
        parts = [f"{value:.4g} {label}/sec" for label, value in speeds.items()]
        if waited > 0:
            share = window.per_sec(waited - self._waited_before)
            values.append(scalar_value("throughput/input_wait", share))
            parts.append(f"{share:.1%} of the time waiting for input")
        self._output.add_summary(Summary(values), step)
        _log.info("step %d: %s", step, ", ".join(parts))


class _Total:
    def __init__(self) -> None:
        self._unread: list[Any] = []
        self._read = 0.0

    def add(self, value: Any) -> None:
        self._unread.append(value)
        if len(self._unread) > 1000:
            self._read_first(500)  # computed long ago

    def take(self) -> float:
        self._read_first(len(self._unread))
        total, self._read = self._read, 0.0
        return total

    def _read_first(self, count: int) -> None:
        self._read += sum(float(np.sum(value)) for value in self._unread[:count])
        del self._unread[:count]


class HookTime(NamedTuple):
    """The cost of a hook: microseconds per step, and percent of all time."""

    us_per_step: float
    percent: float


class HookTimesHook(WindowHook):
    """Measures ``before_run`` and ``after_run`` of every hook in the session, including itself.

    It logs a table of the times since the last one, and writes
    ``hook_times/<name of the hook>_us_per_step`` for each hook that was called. The first run does
    not count, nor does computing what a hook fetches.

        hooks = [rh.HookTimesHook(every_n_steps=100, output_dir="runs/a")]

    Args:
        every_n_steps: Log a table at the multiples of this number.
        output_dir: Where to write, without a ``summary_writer``.
        summary_writer: The writer.
        trigger: When a table is due.

    Attributes:
        times: The last table: each cost by the hook's name, the highest first.

    Raises:
        ValueError: If two cadences are given.
    """

    times: Mapping[str, HookTime] = MappingProxyType({})

    def __init__(
        self,
        every_n_steps: int | None = _EVERY_N_STEPS,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        timer = timer_of(trigger, every_n_steps=every_n_steps)
        super().__init__(timer, output_dir, summary_writer)

    def begin(self) -> None:
        super().begin()
        self._secs: dict[str, float] = {}
        self.hook_secs = self._secs
        self.times = {}

    def _act(self, session: RawSession) -> None:
        super()._act(session)
        self._secs.clear()

    def _record(self, session: RawSession, window: Window) -> None:
        step = step_of(session)
        self.times = {
            name: HookTime(1e6 * taken / max(window.steps, 1), 100 * taken / max(window.secs, 1e-9))
            for name, taken in sorted(self._secs.items(), key=lambda item: -item[1])
        }
        values = [
            scalar_value(f"hook_times/{name}_us_per_step", time.us_per_step)
            for name, time in self.times.items()
        ]
        self._output.add_summary(Summary(values), step)
        width = max(map(len, self.times), default=0)
        rows = [
            f"  {name:{width}}  {time.us_per_step:10.1f} us/step  {time.percent:5.1f} %"
            for name, time in self.times.items()
        ]
        _log.info("%s", "\n".join([f"the cost of each hook, at step {step}:", *rows]))


class MemoryHook(MeasuringHook):
    """Writes the memory statistics of the devices: ``memory/cuda:0/allocated_bytes`` and others.

    It does not wait for a device. If none has statistics, as on a CPU, it logs so once.

        hooks = [rh.MemoryHook(every_n_steps=100, output_dir="runs/a")]

    Args:
        every_n_steps: Write at the multiples of this number.
        output_dir: Where to write, without a ``summary_writer``.
        summary_writer: The writer.
        trigger: When to write.

    Raises:
        ValueError: If two cadences are given, or neither ``output_dir`` nor ``summary_writer`` is.
    """

    def __init__(
        self,
        every_n_steps: int | None = _EVERY_N_STEPS,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        *,
        trigger: Trigger | None = None,
    ) -> None:
        arguments.at_least_one(output_dir=output_dir, summary_writer=summary_writer)
        timer = timer_of(trigger, every_n_steps=every_n_steps)
        super().__init__(timer, output_dir, summary_writer)
        self._has_statistics = False

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        super().after_create_session(session, coord)
        self._has_statistics = bool(session_of(session).engine.memory())
        if not self._has_statistics:
            _log.info("MemoryHook writes nothing: no device of this session has memory statistics")

    def next_due(self) -> Due | None:
        return self._timer.due() if self._has_statistics else Due()

    def _act(self, session: RawSession) -> None:
        super()._act(session)
        numbers = session_of(session).engine.memory().items()
        if numbers:
            values = [scalar_value(f"memory/{name}", number) for name, number in numbers]
            self._output.add_summary(Summary(values), step_of(session))
