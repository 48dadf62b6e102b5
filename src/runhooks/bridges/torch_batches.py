"""``TorchBatchGraph``: what frameworks over PyTorch expose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from runhooks.bridges.batch_graph import (
    RATE,
    SUMMARIES,
    BatchEngine,
    BatchGraph,
    BatchTensors,
    BatchValues,
)
from runhooks.bridges.hooked_loop import LoopHooks
from runhooks.engines.eager import Evaluate
from runhooks.engines.torch.capture import CAPTURED, Capture, Captured, ObjectTensors
from runhooks.engines.torch.engine import ENGINE
from runhooks.engines.torch.objects import TorchObjects, one_rate, rate_groups, rate_in
from runhooks.engines.torch.step import preserving
from runhooks.graph import nest
from runhooks.graph.engine import Ready
from runhooks.graph.nodes import CAPTURES, Operation, Tensor, Variable


class TorchValues(BatchValues):
    """What a framework over PyTorch exposes of a batch, but for loss and metrics."""

    def __init__(self) -> None:
        self._optimizers: dict[str, Optimizer] = {}
        self._rates: dict[str, Any] = {}  # as the batch began

    def take(self, optimizers: Mapping[str, Optimizer]) -> None:
        self._optimizers, self._rates = dict(optimizers), {}

    def keep_rates(self) -> None:
        """Keep the rates of the batch: a scheduler may change them."""
        self._rates = self._rates_of_all()

    def rates(self) -> dict[str, Any]:
        kept = self._rates or self._rates_of_all()
        alone = len(self._optimizers) == 1
        return {
            RATE if alone else f"{name}/{RATE}": kept[f"{name}/{RATE}/0"]
            for name in self._optimizers
        }

    def other_names(self) -> list[str]:
        rates = [RATE] if len(self._optimizers) == 1 else []
        return [*rates, *(f"{it}/{RATE}" for it in self._optimizers)]

    def assign(self, name: str, value: Any) -> None:
        groups = rate_groups(self._optimizers, name)
        if not groups:
            super().assign(name, value)
        for group in groups.values():
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(float(value))
            else:
                group["lr"] = float(value)
        self._rates = {}

    def other(self, name: str) -> Callable[[], Any] | None:
        if not rate_groups(self._optimizers, name):
            return None

        def read() -> Any:
            kept, now = self._rates, rate_groups(self._optimizers, name)  # groups may be added
            return one_rate([kept.get(key, rate_in(group)) for key, group in now.items()])

        return read

    def _rates_of_all(self) -> dict[str, Any]:
        return {
            key: rate_in(group)
            for name in self._optimizers
            for key, group in rate_groups(self._optimizers, f"{name}/{RATE}").items()
        }


class TorchBatchGraph(BatchGraph):
    """A graph of ``values``, and of parameters, gradients and activations, named as by rh.torch.

    Gradients are as the optimizer was about to apply them, or as the batch has left them if it
    called none.
    """

    exposed: TorchValues
    values: _AllTensors

    def __init__(self, values: TorchValues) -> None:
        self._objects = TorchObjects({})
        self._capturing = _CapturingEngine(lambda: self._objects)
        super().__init__(values, self._capturing)
        self.values = _AllTensors(self, values)
        self._captures: dict[Any, tuple[Operation, ...]] = {}
        self._installed = ExitStack()

    def take(self, model: nn.Module | None, optimizers: Sequence[Optimizer]) -> None:
        """Expose these, as ``model``, and as ``optimizer``, ``optimizer_1``."""
        named = {f"optimizer_{i}" if i else "optimizer": it for i, it in enumerate(optimizers)}
        self._objects = TorchObjects({**({} if model is None else {"model": model}), **named})
        self.values.objects = ObjectTensors(self, self._objects)
        # They may belong to the objects of before.
        self._captures = {}
        self._checked.clear()
        self.planned_runs.clear()
        self.exposed.take(named)

    def preserved_objects(self) -> AbstractContextManager[None]:
        return self._objects.preserved()

    def prepare(self, fetches: Sequence[Any]) -> None:
        self.release()
        self.exposed.keep_rates()
        key = nest.structure_key(fetches)
        if key not in self._captures:
            effects = self.effects_of(list(fetches))
            self._captures[key] = tuple(sorted(effects.captures, key=lambda op: op.name))
        if captures := self._captures[key]:
            capture = Capture(self._objects, captures)
            self._capturing.captured = self._installed.enter_context(capture.install())

    def release(self) -> None:
        self._installed.close()
        self._capturing.captured = None


class TorchLoopHooks(LoopHooks):
    exposes: ClassVar[type[TorchValues]]

    _graph: TorchBatchGraph

    def _make_graph(self) -> TorchBatchGraph:
        self._values: Any = self.exposes()
        return TorchBatchGraph(self._values)


def listed(optimizer: Optimizer | Iterable[Optimizer]) -> list[Optimizer]:
    return [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)


class _AllTensors(BatchTensors):
    objects: ObjectTensors | None = None

    @property
    def operations(self) -> list[Operation]:
        return [*super().operations, *(self.objects.operations if self.objects else ())]

    def find(self, name: str) -> Tensor:
        key = name.removesuffix(":0")
        if self.objects is None or key == SUMMARIES or self._values.reader(key) is not None:
            return super().find(name)
        try:
            return self.objects.find(name)
        except ValueError as error:
            raise ValueError(f"{error}; {self._values.unknown(key)}") from None


class _CapturingEngine(BatchEngine):
    def __init__(self, objects: Callable[[], TorchObjects]) -> None:
        super().__init__(ENGINE)
        self._objects = objects
        self.captured: Captured | None = None

    def ready(self, operations: Sequence[Operation]) -> list[Ready]:
        return preserving(super().ready(operations), self._objects)

    def evaluator(self, operations: Sequence[Operation]) -> Evaluate:
        evaluate = super().evaluator(operations)
        captures = [op.name for op in operations if op.effect in CAPTURES]
        if not captures:
            return evaluate

        def capturing(
            values: dict[Tensor, Any], variables: Mapping[Variable, Any]
        ) -> dict[Variable, Any]:
            if self.captured is None:
                raise ValueError(f"{captures[0]!r} exists only while a batch is made")
            values[CAPTURED] = self.captured
            return evaluate(values, variables)

        return capturing

    def fetched(self, tensor: Tensor) -> Callable[[Any], Any]:
        return ENGINE.own  # the next batch may change it
