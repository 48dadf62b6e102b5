"""``NanTensorHook``: watches a loss for NaN."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from runhooks import arguments
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.errors import NanLossDuringTrainingError
from runhooks.graph.graph import get_default_graph
from runhooks.graph.tensor import Tensor
from runhooks.hooks.global_step import next_step_of, step_or_none
from runhooks.hooks.log import log_of
from runhooks.summary.kinds.real_array import read_array
from runhooks.trigger import Due, Timer, Trigger

_NESTED = (Mapping, list, tuple)


class NanTensorHook(SessionRunHook):
    """Raises ``NanLossDuringTrainingError``, or asks to stop, when a loss is NaN.

    ``loss_tensor``: the tensor to watch, or its name; any of its elements counts, and any value in
    it if it is a dict, list or tuple.
    ``fail_on_nan_loss``: raise; False: log it and ask to stop. As in ``tf.compat.v1.train``, it
    looks at the value in the run that made it, which waits for the device.

    ``late``: look at it one run later, when it has long been computed. Where other hooks are due,
    as one that saves a checkpoint, and at the end, it looks at once all the same. ``trigger``:
    look only when this is due, instead of in every run.
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
        self._is_nan: Callable[[Any], bool] = self._first_test
        self._step: int | None = None
        self._value: Any = None

    def begin(self) -> None:
        graph = get_default_graph()
        loss = graph.as_graph_element(self._loss_tensor)
        # Of whatever engine: an operation has outputs, a tensor has not.
        outputs: tuple[Any, ...] = getattr(loss, "outputs", (loss,))
        if not outputs:
            raise ValueError(f"loss_tensor must be a tensor, got {loss!r}, which has no value")
        self._loss: Any = outputs[0]
        self._request = SessionRunArgs(self._loss)
        self._log = log_of(graph)
        # Of TensorFlow, the class is one of its own as well, which its programs catch.
        self._error = getattr(graph.engine, "nan_loss_error", NanLossDuringTrainingError)

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        self._step = self._value = None
        if self._timer is not None:
            self._timer.start(step_or_none(session) or 0)

    def next_due(self) -> Due | None:
        return None if self._timer is None else self._timer.due()

    def watched(self) -> Tensor | None:
        return self._loss if self._late and self._timer is None else None

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if self._timer is None or self._timer.should_trigger_for_step(next_step_of(run_context)):
            return self._request
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_or_none(run_context.session)
        if self._timer is not None:
            self._timer.update_last_triggered_step(step or 0)
        if self.watch(step, run_values.results) or self._look_at_the_last():
            run_context.request_stop()

    def watch(self, step: int | None, value: Any) -> bool:
        # Called in every run: nothing but what must be.
        last_step, last_value = self._step, self._value
        self._step, self._value = step, value
        if last_value is None or not self._is_nan(last_value):
            return False
        return self._report(last_step, last_value)

    def end(self, session: RawSession) -> None:
        self._look_at_the_last()

    def state_dict(self) -> dict[str, Any]:
        return {} if self._timer is None else self._timer.state_dict()

    def load_state_dict(self, state: Any) -> None:
        if self._timer is not None:
            self._timer.load_state_dict(state)

    def _look_at_the_last(self) -> bool:
        return self.watch(None, None)

    def _first_test(self, value: Any) -> bool:
        self._is_nan = _test_for(value)
        return self._is_nan(value)

    def _report(self, step: int | None, value: Any) -> bool:
        error: Exception = self._error(self._loss.name, step, value, _text(value))
        if self._fail_on_nan_loss:
            raise error
        self._log.warning("%s; asking to stop", error)
        return True


def _any_nan(value: Any) -> bool:
    return next(_nan_paths("", value), None) is not None


def _nan_paths(path: str, value: Any) -> Iterator[str]:
    """Where in ``value``, which may be nested, a NaN is."""
    if isinstance(value, _NESTED):
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in parts:
            yield from _nan_paths(f"{path}/{key}" if path else str(key), part)
    elif value is not None and _has_nan(value):
        yield path


def _has_nan(value: Any) -> bool:
    if getattr(value, "is_sparse", False):  # of torch
        value = read_array(value)
    try:
        array = np.asarray(value)
    except (TypeError, RuntimeError):  # a tensor of torch on its device, or of a type NumPy lacks
        return bool((value != value).any())
    return array.dtype.kind in "fcV" and bool(np.isnan(array).any())


def _test_for(value: Any) -> Callable[[Any], bool]:
    """What looks at values like ``value``, in every run: for a scalar without NumPy's detour."""
    if (
        not isinstance(value, _NESTED)
        and np.shape(value) == ()
        and str(getattr(value, "dtype", "")) in ("float32", "float64")
    ):
        unpack = struct.Struct("f" if value.dtype.itemsize == 4 else "d").unpack

        def test(value: Any) -> bool:
            try:
                (number,) = unpack(value)
            except (TypeError, ValueError, struct.error):  # not in this process's memory
                return _any_nan(value)
            return number != number  # type: ignore[no-any-return]

        return test
    return _any_nan


def _text(value: Any) -> str:
    if isinstance(value, _NESTED):
        return f"a {type(value).__name__} with NaN in {next(_nan_paths('', value), '')!r}"
    shape = np.shape(value)
    return (
        str(read_array(value)) if shape == () else f"an array of shape {list(shape)} with NaN in it"
    )
