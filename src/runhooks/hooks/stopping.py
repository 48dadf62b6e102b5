"""Hooks that stop the loop: at a step, after a given time, and by a loss that is NaN."""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from runhooks import arguments, clock
from runhooks.arrays import library_of, to_numpy
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.engines.foreign import session_of
from runhooks.graph.base import get_default_graph
from runhooks.graph.nodes import Tensor, reads_state
from runhooks.hooks.base import (
    StepReadingHook,
    log_of,
    next_step_of,
    outputs_of,
    step_of,
)
from runhooks.trigger import Due, Timer, Trigger

_log = logging.getLogger("runhooks")

#: So many runs without a step are a loop that never ends, not the preparation of a training.
_MANY_RUNS = 200


class StopAtStepHook(StepReadingHook):
    """Asks to stop when the global step has reached ``last_step``.

    As in ``tf.compat.v1.train``, except that a run resumed at or after its last step makes no
    further step.

        hooks = [rh.StopAtStepHook(last_step=2000)]

    Args:
        num_steps: Stop this many steps after the step at which the session starts.
        last_step: Stop at this global step.

    Raises:
        ValueError: Unless exactly one of the two is given, or if it is negative.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        arguments.exactly_one(num_steps=num_steps, last_step=last_step)
        arguments.steps(0, num_steps=num_steps, last_step=last_step)
        # As what is due, which ranks compare.
        self._stops_after = None if num_steps is None else Due(step=num_steps)
        self._stops_at = None if last_step is None else Due(step=last_step)
        self._last_step: float | None = last_step
        self._start: int | None = None  # where the session starts, until the step has moved
        self._runs = 0

    def begin(self) -> None:
        super().begin()
        self._last_step = None if self._stops_at is None else self._stops_at.step
        self._start = None

    def after_create_session(self, session: RawSession, coord: StopSignal | None) -> None:
        step = step_of(session)
        self._start, self._runs = step, 0
        if self._last_step is None:
            assert self._stops_after is not None
            self._last_step = step + self._stops_after.step
        if step >= self._last_step and coord is not None:
            log = log_of(session)
            log.info("nothing to train: at step %d, last_step is %d", step, self._last_step)
            coord.request_stop()

    def next_due(self) -> Due | None:
        if self._last_step is None:
            return None
        return Due(step=self._last_step, runs=math.inf if self._start is None else 1)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        assert self._last_step is not None
        step = step_of(run_context.session)
        if step >= self._last_step:
            run_context.request_stop()
        if self._start is not None:
            self._runs += 1
            if step == self._start and self._runs == _MANY_RUNS:
                log_of(run_context.session).warning(
                    "the global step is still %d after %d runs, and StopAtStepHook waits for %d: "
                    "run the train operation, as in session.run('train_op'), and add "
                    "global_step.assign_add(1) to it if it does not count",
                    *(step, self._runs, self._last_step),
                )
            if step > self._start or self._runs == _MANY_RUNS:
                self._start = None


class TimeLimitHook(SessionRunHook):
    """Asks to stop when the monitored session has been open for ``secs`` seconds.

    The first run that starts after that time is the last one: leave time for it and for the final
    checkpoint. A resumed run has ``secs`` seconds again; a recovery does not restart the clock.
    ValueError unless ``secs`` is above zero.

        hooks = [rh.TimeLimitHook(secs=23.5 * 3600)]
    """

    def __init__(self, secs: float) -> None:
        arguments.given(secs=secs)
        arguments.positive(secs=secs)
        self._limit = Due(time=secs)  # from the start on; ranks compare what is due
        self._start = 0.0

    def begin(self) -> None:
        self._start, _ = clock.hook_times()

    def next_due(self) -> Due | None:
        return Due(time=self._start + self._limit.time)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        now, _ = clock.hook_times()
        passed = now - self._start
        if passed >= self._limit.time:
            _log.info(
                "asking to stop at step %s: the session has been open for %g seconds, its time "
                "limit is %g",
                *(session_of(run_context.session).global_step, round(passed, 2), self._limit.time),
            )
            run_context.request_stop()


class NanTensorHook(SessionRunHook):
    """Raises ``NanLossDuringTrainingError``, or asks to stop, when a loss is NaN.

    As in ``tf.compat.v1.train``, it waits for the device in the run that computes the loss.

        hooks = [rh.NanTensorHook("loss"), rh.NanTensorHook("state", late=True)]

    Args:
        loss_tensor: The tensor to watch, or its name: an array, or any pytree of arrays, such as
            all gradients. Of a state or a part of one, it checks the new value that the run has
            assigned, before any checkpoint contains it.
        fail_on_nan_loss: Whether to raise the error; False: log it and ask to stop. Either way,
            ``CheckpointSaverHook`` saves no checkpoint after it.
        late: Read the loss one run later; at once at the end, and when other hooks are due. A state
            is always read at once.
        trigger: When to read it; None: in every run.

    Raises:
        NanLossDuringTrainingError: When the loss is NaN; on a TensorFlow graph, it is also a
            subclass of TensorFlow's class of that name.
    """

    def __init__(
        self,
        loss_tensor: Any,
        fail_on_nan_loss: bool = True,
        *,
        late: bool = False,
        trigger: Trigger | None = None,
    ) -> None:
        arguments.instance(Trigger, trigger=trigger)
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss
        self._late = late
        self._timer = None if trigger is None else Timer(trigger)
        self._read: Callable[[Any], tuple[float]] | None = None  # of scalars on the host
        self._has_looked = False
        self._step: int | None = None
        self._value: Any = None
        self._found: Exception | None = None

    def begin(self) -> None:
        graph = get_default_graph()
        self._loss, *_ = outputs_of("loss_tensor", graph.as_graph_element(self._loss_tensor))
        self._is_state = reads_state(self._loss)
        self._request = SessionRunArgs(None if self._is_state else self._loss)
        self._leaves: Callable[[Any], Mapping[str, Any]] = graph.engine.leaves
        self._log = graph.engine.log
        self._error = graph.engine.nan_loss_error

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._step = self._value = self._found = None
        if self._timer is not None:
            self._timer.start(session_of(session).global_step or 0, session_of(session).epochs)

    def next_due(self) -> Due | None:
        return None if self._timer is None else self._timer.due()

    def watched(self) -> Tensor | None:
        is_late = self._late and self._timer is None and not self._is_state
        return self._loss if is_late else None

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if self._timer is None or self._timer.should_trigger_for_step(next_step_of(run_context)):
            return self._request
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = session_of(run_context.session).global_step
        if self._timer is not None:
            self._timer.update_last_triggered_step(step or 0)
        # In the run itself a state is as it was before.
        value = run_context.session.run(self._loss) if self._is_state else run_values.results
        self._found = None  # a loop may catch the error and repair the state
        if self.watch(step, value) or self.watch(None, None):
            session_of(run_context.session).state_error = self._found  # a saver may be due, too
            run_context.request_stop()

    def watch(self, step: int | None, value: Any) -> bool:
        # Called in every run: it must be cheap.
        last_step, last_value = self._step, self._value
        self._step, self._value = step, value
        if last_value is None:
            return False
        if self._read is not None:
            try:
                (number,) = self._read(last_value)
            except _CANNOT_READ:  # it has changed, or moved
                self._read = None
            else:
                return number != number and self._report(last_step, last_value)
        elif not self._has_looked:
            self._has_looked, self._read = True, _reader_of_scalars(last_value)
        has_nan = next(self._nan_paths(last_value), None) is not None
        return has_nan and self._report(last_step, last_value)

    def end(self, session: RawSession) -> None:
        try:
            self.watch(None, None)
        except Exception as error:
            self._found = error
            raise
        finally:  # whoever saves at the end does so after this
            session_of(session).state_error = self._found or session_of(session).state_error

    def state_dict(self) -> dict[str, Any]:
        return {} if self._timer is None else self._timer.state_dict()

    def load_state_dict(self, state: Any) -> None:
        if self._timer is not None:
            self._timer.load_state_dict(state)

    def _nan_paths(self, value: Any) -> Iterator[str]:
        """Yield the places of NaN in ``value``."""
        for path, leaf in self._leaves(value).items():
            if leaf is not None and library_of(leaf).has_nan(leaf):
                yield path

    def _text(self, value: Any) -> str:
        if list(self._leaves(value)) != [""]:
            return f"a {type(value).__name__} with NaN in {next(self._nan_paths(value), '')!r}"
        shape = np.shape(value)
        if shape == ():
            return str(to_numpy(value))
        return f"an array of shape {list(shape)} with NaN in it"

    def _report(self, step: int | None, value: Any) -> bool:
        error: Exception = self._error(self._loss.name, step, value, self._text(value))
        self._found = error
        if self._fail_on_nan_loss:
            self._log.error(_DIVERGED)
            raise error
        self._log.warning("%s %s; asking to stop", _DIVERGED, error)
        return True


#: TensorFlow's line, for which logs are searched.
_DIVERGED = "Model diverged with loss = NaN."

_CANNOT_READ = (BufferError, TypeError, ValueError, struct.error)


def _reader_of_scalars(value: Any) -> Callable[[Any], tuple[float]] | None:
    """Return what reads scalars like ``value`` quickly, if it is on the host."""
    if isinstance(value, Mapping | list | tuple) or np.shape(value) != ():
        return None
    number = library_of(value).number

    def read(value: Any) -> tuple[float]:
        found = number(value)
        if not isinstance(found, float):
            raise TypeError(f"{value!r} cannot be read at once")
        return (found,)

    readers: list[Callable[[Any], Any]] = [read]
    if letter := {"float32": "f", "float64": "d"}.get(str(getattr(value, "dtype", ""))):
        readers.insert(0, struct.Struct(letter).unpack)
    for reader in readers:
        with suppress(*_CANNOT_READ):
            reader(value)
            return reader
    return None
