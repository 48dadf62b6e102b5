"""``Hooks``: the hooks of a session as a callback of Keras 3."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, count
from typing import Any

import numpy as np

from runhooks.bridges import require
from runhooks.bridges.batch_graph import RATE, BatchEngine, BatchGraph, BatchValues
from runhooks.bridges.hooked_loop import LoopHooks
from runhooks.engines import load_engine
from runhooks.errors import good_ends

require("keras", "keras>=3")

import keras  # noqa: E402

_ATTRIBUTE = "runhooks_hooks"
_KEY, _STEP_KEY = "states", "global_step"


class Hooks(LoopHooks, keras.callbacks.Callback):
    """Calls the hooks of a session in ``model.fit``; each batch is a run.

    ``docs/reference/bridges.md`` says what hooks may fetch, and more of steps, stops, errors and
    checkpoints. Hooks may also fetch ``"epoch"``, counted from 0.

    Put this callback before the one that saves. Where Keras has not reported an error,
    ``on_exception`` is called with a RuntimeError when the next ``fit`` with hooks begins.
    Arguments and errors are those of ``LoopHooks``.
    """

    def _make_graph(self) -> BatchGraph:
        self._values = _KerasValues(self)
        self._step = 0
        return _KerasGraph(self._values)

    def set_model(self, model: Any) -> None:
        self._leave()
        held = getattr(model, _ATTRIBUTE, None)
        if held is not None and held.callback.model is model:
            held.callback._leave()
        super().set_model(model)
        self._saved = _SavedStates(self, held)
        setattr(model, _ATTRIBUTE, self._saved)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        # In on_train_begin a callback that comes later may restore the model.
        self._values.epoch = epoch
        if self._saved.step is None:
            self._saved.step = int(self.model.optimizer.iterations)
        self._step = self._saved.step
        if not self._loop.is_open and self._loop.open(self._step):
            self._loop.end()
            self._pass_over()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._loop.before_batch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._values.logs = logs
        self._saved.step = step = self._step + batch + 1
        if self._loop.after_batch(step):
            self._model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        found = {name: it for name, it in (logs or {}).items() if name.startswith("val_")}
        if self._loop.after_validation(found):
            self._model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        self._loop.end()

    def _pass_over(self) -> None:
        """Let Keras, which asks only after a batch whether to stop, make nothing of its first."""
        model = self.model
        model.stop_training = True
        self._step -= model.steps_per_execution
        train_function = model.train_function

        def passing(*args: Any) -> Any:
            model.train_function = train_function
            if not model.stop_training:  # another callback has raised, and fit is called again
                return train_function(*args)
            return ({}, args[0]) if len(args) == 2 else {}  # JAX's returns its state

        model.train_function = passing

    def _leave(self) -> None:
        self._loop.fail(RuntimeError("Keras has left its loop without an end"))

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        model = self.model
        mine = model.train_function = _Reporting(model.train_function, self._loop.fail)
        try:
            yield
        finally:
            holder = model  # of mine: another callback may have wrapped it
            while isinstance(holder.train_function, _Reporting):
                if holder.train_function is mine:
                    holder.train_function = mine.train_function
                    break
                holder = holder.train_function


class _Reporting:
    def __init__(
        self, train_function: Callable[..., Any], fail: Callable[[BaseException], None]
    ) -> None:
        self.train_function = train_function
        self._fail = fail
        self._ends = good_ends()

    def __call__(self, *args: Any) -> Any:
        try:
            return self.train_function(*args)
        except self._ends:  # of the data, which fit waits for
            raise
        except BaseException as error:
            self._fail(error)
            raise


class _KerasGraph(BatchGraph):
    def __init__(self, values: _KerasValues) -> None:
        super().__init__(values, _engine())
        self._callback = values.callback

    @contextmanager
    def in_use(self) -> Iterator[None]:
        with super().in_use(), self._callback._reporting():
            yield


class _KerasValues(BatchValues):
    title = "Keras"

    def __init__(self, callback: Hooks) -> None:
        self.callback = callback
        self.logs: Mapping[str, Any] = {}
        self.epoch = 0

    def loss(self) -> Any:
        return self.logs.get("loss")

    def metrics(self) -> dict[str, Any]:
        return {name: value for name, value in self.logs.items() if name != "loss"}

    def rates(self) -> dict[str, float]:
        return {RATE: float(_array(self.callback.model.optimizer.learning_rate))}

    def other(self, name: str) -> Callable[[], Any] | None:
        if name == RATE:
            return lambda: self.rates()[RATE]
        if name == "epoch":
            return lambda: self.epoch
        if name == "model":
            return lambda: {path: _array(it) for path, it in self._weights().items()}
        kind, _, path = name.partition("/")
        is_weight = kind == "model" and path in self._weights()
        return (lambda: _array(self._weights()[path])) if is_weight else None

    def other_names(self) -> list[str]:
        return [RATE, "epoch", *(f"model/{path}" for path in self._weights()), "model"]

    def unknown(self, name: str) -> str:
        if name.startswith(("gradients", "global_gradient_norm", "activations")):
            return "its train step keeps gradients and activations to itself"
        return super().unknown(name)

    def assign(self, name: str, value: Any) -> None:
        if name != RATE:
            super().assign(name, value)
        self.callback.model.optimizer.learning_rate = float(value)

    def _weights(self) -> dict[str, Any]:
        model = self.callback.model
        if model is None:
            return {}
        prefix, found = f"{model.name}/", {}
        for weight in model.weights:
            path = weight.path.removeprefix(prefix)
            # Layers of one name have weights of one path.
            paths = chain([path], (f"{path}_{number}" for number in count(1)))
            found[next(it for it in paths if it not in found)] = weight
        return found


class _SavedStates(keras.Operation):
    """The states of the hooks and the global step, as an attribute of a model.

    ``before`` is that of a training before, which has counted.
    """

    def __init__(self, callback: Hooks, before: _SavedStates | None) -> None:
        super().__init__()
        self.callback = callback
        # A model compiled anew begins anew. (A strong reference would be saved twice.)
        self._compiled = weakref.ref(getattr(callback.model, "optimizer", None) or callback.model)
        goes_on = before is not None and before._compiled() is self._compiled()
        #: The global step; None: nothing has counted yet.
        self.step: int | None = before.step if before is not None and goes_on else None

    def save_own_variables(self, store: Any) -> None:
        text = self.callback.state_dict()["hooks"]
        store[_KEY] = np.frombuffer(text.encode(), np.uint8)
        if self.step is not None:
            store[_STEP_KEY] = np.asarray(self.step)

    def load_own_variables(self, store: Any) -> None:
        keys = store.keys()
        # In an open loop, what was trained counts.
        if _STEP_KEY in keys and not self.callback._loop.is_open:
            self.step = int(np.asarray(store[_STEP_KEY]))
        if _KEY in keys:
            text = np.asarray(store[_KEY]).tobytes().decode()
            self.callback.load_state_dict({"hooks": text})


def _array(variable: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(variable))


def _engine() -> BatchEngine:
    with suppress(ValueError):
        return BatchEngine(load_engine(keras.backend.backend()))
    return BatchEngine()
