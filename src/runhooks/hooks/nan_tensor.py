"""``NanTensorHook``: watches a loss for NaN."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from runhooks import arguments
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
from runhooks.hooks.base import next_step_of, step_or_none
from runhooks.hooks.named_tensors import check_no_summary
from runhooks.trigger import Due, Timer, Trigger

_NESTED = (Mapping, list, tuple)
_CANNOT_READ = (BufferError, TypeError, ValueError, struct.error)

#: TensorFlow's line, for which logs are searched.
_DIVERGED = "Model diverged with loss = NaN."


class NanTensorHook(SessionRunHook):
    """Raises ``NanLossDuringTrainingError``, or asks to stop, when a loss is NaN.

    As in ``tf.compat.v1.train``, it reads the loss in the run that computes it, and so waits for
    the device.

        hooks = [rh.NanTensorHook("loss"), rh.NanTensorHook("state", late=True)]

    Args:
        loss_tensor: The tensor to watch, or its name: an array of any shape, or any pytree of
            arrays, such as all gradients. For a state or a part of one, it checks the new value
            that the run has assigned, before any checkpoint contains it.
        fail_on_nan_loss: Whether to raise the error; False: log it and ask to stop. Either way,
            ``CheckpointSaverHook`` saves no checkpoint after it.
        late: Read the loss one run later, when it is already computed. It is still read at once at
            the end, and when other hooks are due, such as one that saves a checkpoint. A state is
            always read at once.
        trigger: Says when to read it; None: in every run.

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
        self._has_looked = False  # for a way to read them
        self._step: int | None = None
        self._value: Any = None
        self._found: Exception | None = None  # in this session

    def begin(self) -> None:
        graph = get_default_graph()
        loss = graph.as_graph_element(self._loss_tensor)
        check_no_summary("loss_tensor", loss)
        # In every engine an operation has outputs, and a tensor has not.
        outputs: tuple[Any, ...] = getattr(loss, "outputs", (loss,))
        if not outputs:
            raise ValueError(
                f"loss_tensor must be a tensor, got {loss!r}, an operation without a value"
            )
        self._loss: Any = outputs[0]
        self._is_state = reads_state(self._loss)
        self._request = SessionRunArgs(None if self._is_state else self._loss)
        self._leaves: Callable[[Any], Mapping[str, Any]] = graph.engine.leaves
        self._log = graph.engine.log
        # TensorFlow's programs catch TensorFlow's class.
        self._error = graph.engine.nan_loss_error

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._step = self._value = self._found = None
        if self._timer is not None:
            self._timer.start(step_or_none(session) or 0, session_of(session).epochs)

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
        step = step_or_none(run_context.session)
        if self._timer is not None:
            self._timer.update_last_triggered_step(step or 0)
        # In the run itself a state is as it was before.
        value = run_context.session.run(self._loss) if self._is_state else run_values.results
        self._found = None  # a loop may catch the error and repair the state
        if self.watch(step, value) or self._look_at_the_last():
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
        return self._any_nan(last_value) and self._report(last_step, last_value)

    def end(self, session: RawSession) -> None:
        try:
            self._look_at_the_last()
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

    def _look_at_the_last(self) -> bool:
        return self.watch(None, None)

    def _any_nan(self, value: Any) -> bool:
        return next(self._nan_paths(value), None) is not None

    def _nan_paths(self, value: Any) -> Iterator[str]:
        """Yield the places of NaN in ``value``, which may be a pytree."""
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


def _reader_of_scalars(value: Any) -> Callable[[Any], tuple[float]] | None:
    """Return a function that reads scalars like ``value`` quickly, if it is on the host."""
    if isinstance(value, _NESTED) or np.shape(value) != ():
        return None
    letter = {"float32": "f", "float64": "d"}.get(str(getattr(value, "dtype", "")))
    if letter is not None:
        unpack: Callable[[Any], Any] = struct.Struct(letter).unpack
        if _can_read(unpack, value):
            return unpack
    number = library_of(value).number

    def read(value: Any) -> tuple[float]:
        found = number(value)
        if not isinstance(found, float):
            raise TypeError(f"{value!r} cannot be read at once")
        return (found,)

    return read if _can_read(read, value) else None


def _can_read(read: Callable[[Any], tuple[float]], value: Any) -> bool:
    try:
        read(value)
    except _CANNOT_READ:
        return False
    return True
