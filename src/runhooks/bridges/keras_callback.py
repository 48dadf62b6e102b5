"""``CallbackHook``: a callback of Keras in a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runhooks import arguments
from runhooks.bridges.requirement import require
from runhooks.contract import (
    RawSession,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StopSignal,
)
from runhooks.hooks.helpers.evaluation_results import number
from runhooks.hooks.helpers.named_tensors import NamedTensors
from runhooks.hooks.helpers.session import required_global_step, step_of
from runhooks.trigger import Due

require("keras", "keras>=3")

import keras  # noqa: E402

_OF_BATCHES = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


class CallbackHook(SessionRunHook):
    """Calls a Keras callback in a session in which your own steps train ``model``.

    A global step is a batch, and ``steps_per_epoch`` steps are an epoch. If the callback sets
    ``model.stop_training``, the session is asked to stop. Differences from ``model.fit``:

    - ``logs`` are the values of one run, not means over the epoch;
    - there is no validation, but ``logs`` may contain a metric of one;
    - checkpoints do not contain the state of the callback;
    - the step must train the model in place, as an ``rh.torch`` step or an eager TensorFlow step
      does.

    A callback that does nothing in batches is called, and its logs are fetched, only at the end of
    epochs.

    Args:
        callback: The callback.
        model: The model it is given.
        logs: Tensors, or their names, of single numbers: a dict by the name in ``logs``, or a list.
        steps_per_epoch: The global steps of an epoch.

    Raises:
        TypeError: If ``callback`` is not a Keras callback.
        ValueError: If ``steps_per_epoch`` is below 1.
    """

    def __init__(
        self,
        callback: keras.callbacks.Callback,
        model: keras.Model,
        logs: Mapping[str, Any] | Iterable[Any],
        steps_per_epoch: int,
    ) -> None:
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(f"callback must be a callback of Keras, got {callback!r}")
        arguments.whole(steps_per_epoch=steps_per_epoch)
        self._callback = callback
        self._model = model
        self._tensors = NamedTensors(logs)
        self._steps_per_epoch = steps_per_epoch
        self._acts_in_batches = any(_overrides(callback, name) for name in _OF_BATCHES)
        self._has_begun = False
        self._epoch: int | None = None  # that was begun, and has not ended
        self._epoch_end = 0
        self._logs: dict[str, float] = {}

    def begin(self) -> None:
        required_global_step(self)
        self._request = SessionRunArgs(self._tensors.fetches())
        self._callback.set_params({"epochs": None, "steps": self._steps_per_epoch, "verbose": 0})
        self._callback.set_model(self._model)
        self._has_begun = False
        self._epoch = None

    def after_create_session(self, session: RawSession, coord: StopSignal) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._model.stop_training = False
            self._callback.on_train_begin()
        self._begin_epoch(step_of(session))

    def next_due(self) -> Due | None:
        return None if self._acts_in_batches else Due(step=self._epoch_end)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        step = step_of(run_context.session)
        if self._epoch is None:
            self._begin_epoch(step)
        self._callback.on_train_batch_begin(step % self._steps_per_epoch)
        return self._request

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_of(run_context.session)
        if run_values.results is not None:
            labelled = self._tensors.labelled(run_values.results)
            self._logs = {name: number(name, value) for name, value in labelled}
            self._callback.on_train_batch_end((step - 1) % self._steps_per_epoch, dict(self._logs))
        if step >= self._epoch_end and self._epoch is not None:
            epoch, self._epoch = self._epoch, None
            self._callback.on_epoch_end(epoch, dict(self._logs))
            if not self._model.stop_training:
                self._begin_epoch(step)
        if self._model.stop_training:
            run_context.request_stop(f"{type(self._callback).__name__} has set stop_training")

    def end(self, session: RawSession) -> None:
        self._callback.on_train_end(dict(self._logs))

    def _begin_epoch(self, step: int) -> None:
        epoch = step // self._steps_per_epoch
        self._epoch_end = (epoch + 1) * self._steps_per_epoch
        if epoch != self._epoch:
            self._epoch = epoch
            self._callback.on_epoch_begin(epoch)


def _overrides(callback: keras.callbacks.Callback, method: str) -> bool:
    own = getattr(keras.callbacks.Callback, method)
    return getattr(getattr(callback, method), "__func__", None) is not own
