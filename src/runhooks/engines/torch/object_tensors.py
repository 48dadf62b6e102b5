"""``ObjectTensors``: parameters, gradients and the like as tensors of a graph, made on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from runhooks.engines.torch.capture import ACTIVATIONS, CAPTURED, GLOBAL_NORM, GRADIENTS
from runhooks.engines.torch.objects import TorchObjects
from runhooks.graph.graph import Graph
from runhooks.graph.named_values import NamedValues
from runhooks.graph.tensor import Effect, Operation, Placement, Tensor
from runhooks.near_names import did_you_mean, nearest

_RATE = "learning_rate"


class ObjectTensors(NamedValues):
    """The values of ``objects`` as tensors of ``graph``, one for each name that is asked for."""

    def __init__(self, graph: Graph, objects: TorchObjects) -> None:
        self._graph = graph
        self._objects = objects
        self._made: dict[str, Operation] = {}
        self._given: dict[str, Tensor] = {}
        #: Parameters of steps that are not placeholders because they have a default.
        self.defaulted: set[str] = set()

    @property
    def operations(self) -> list[Operation]:
        return list(self._made.values())

    def add(self, name: str, tensor: Tensor) -> None:
        """Let ``name`` mean ``tensor``, which steps are given."""
        self._given[name] = tensor

    def given(self, name: str) -> Tensor | None:
        """Return the tensor that steps are given by this name; None: there is none."""
        return self._given.get(name)

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of that name."""
        return self._make(name) is not None

    def comes_first(self, name: str) -> bool:
        return name in self._given or name in self._made or self.has(name)

    def find(self, name: str) -> Tensor:
        key = name.removesuffix(":0")
        if key in self._given:
            return self._given[key]
        if key not in self._made:
            self._made[key] = self._make(key) or self._unknown(name)
        return self._made[key].outputs[0]

    def _make(self, name: str) -> Operation | None:
        kind, _, target = name.partition("/")
        if name == GLOBAL_NORM and self._objects.modules():
            return self._capture(name, GLOBAL_NORM, "")
        found = self._objects.find(target)
        if kind == GRADIENTS and isinstance(found, nn.Module | nn.Parameter):
            return self._capture(name, GRADIENTS, target)
        if kind == ACTIVATIONS and isinstance(found, nn.Module):
            return self._capture(name, ACTIVATIONS, target)
        if isinstance(self._objects.find(name), nn.Module | torch.Tensor):
            return self._operation(name, Effect.READ, partial(_read, self._objects, name))
        owner, _, rest = name.partition("/")
        scale = getattr(self._objects.find(owner), "get_scale", None)
        if rest == "scale" and callable(scale):  # a GradScaler
            return self._operation(name, Effect.READ, scale)
        return self._rate(name)

    def _rate(self, name: str) -> Operation | None:
        owner, _, rest = name.partition("/")
        optimizers = self._objects.optimizers()
        if owner == _RATE and len(optimizers) == 1:
            (owner,), rest = optimizers, name
        rate, _, group = rest.partition("/")
        if owner not in optimizers or rate != _RATE:
            return None
        if not group:
            return self._operation(name, Effect.READ, partial(_rates, optimizers[owner]))
        if not group.isdecimal() or int(group) >= len(optimizers[owner].param_groups):
            return None
        return self._operation(name, Effect.READ, partial(_rate_of, optimizers[owner], int(group)))

    def _capture(self, name: str, kind: str, target: str) -> Operation:
        def read(captured: Any) -> Any:
            return captured.read(kind, target)

        effect = Effect.CAPTURE if kind == ACTIVATIONS else Effect.STEP_CAPTURE
        return self._operation(
            name, effect, read, (kind, target), lambda values: (values[CAPTURED],)
        )

    def _operation(
        self,
        name: str,
        effect: Effect,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        read_args: Callable[[Mapping[Tensor, Any]], tuple[Any, ...]] = lambda values: (),
    ) -> Operation:
        return Operation(
            self._graph,
            effect.name.title(),
            name,
            -1 - len(self._made),  # below those of all operations that take it
            fn=fn,
            args=args,
            inputs=(),
            read_args=read_args,
            control_inputs=(),
            num_outputs=1,
            placement=Placement.ENGINE,
            assigns=None,
            effect=effect,
        )

    def _unknown(self, name: str) -> Operation:
        optimizers = sorted(self._objects.optimizers())
        key = name.removesuffix(":0")
        if (found := self._objects.find(key)) is not None:
            kind = "an optimizer" if key in optimizers else f"a {type(found).__name__}"
            there_is = [it for it in (f"{key}/{_RATE}", f"{key}/scale") if self.has(it)]
            near = f"; there is {there_is[0]!r}" if there_is else ""
            raise ValueError(f"{key!r} is {kind} and has no value to fetch{near}")
        if key in self.defaulted:
            near = (
                ": a parameter of a step that has a default is not a placeholder; give the step "
                "args, the tensors to call it with"
            )
        elif key == _RATE and len(optimizers) > 1:
            near = f": there are several, {[f'{it}/{_RATE}' for it in optimizers]}"
        else:
            near = did_you_mean([_RATE] if key == "lr" else nearest(key, self._known(name))) or (
                f": if the step returns it, name it among its outputs, as in "
                f"rh.torch.graph(step, [{key!r}], ...)"
            )
        raise ValueError(f"nothing is named {name!r} in the graph ({self._objects}){near}")

    def _known(self, name: str) -> Iterator[str]:
        yield from (op.name for op in self._graph.get_operations())
        yield from self._given
        yield from (f"{it}/{_RATE}" for it in self._objects.optimizers())
        yield from (GLOBAL_NORM, _RATE)
        kind = name.partition("/")[0]
        for owner, module in self._objects.modules().items():
            parameters = [path for path, _ in module.named_parameters(remove_duplicate=False)]
            if kind == ACTIVATIONS:
                yield from (f"{kind}/{owner}/{path}" for path, _ in module.named_modules() if path)
            elif kind == GRADIENTS:
                yield from (f"{kind}/{owner}/{path}" for path in parameters)
            else:
                yield from (f"{owner}/{path}" for path in parameters)
                yield from (f"{owner}/{path}" for path, _ in module.named_buffers())


def _read(objects: TorchObjects, name: str) -> Any:
    found = objects.find(name)
    if not isinstance(found, nn.Module):
        return found.detach().clone()
    values: dict[str, torch.Tensor] = {}
    values.update(found.named_parameters(remove_duplicate=False))
    values.update(found.named_buffers(remove_duplicate=False))
    return {path: value.detach().clone() for path, value in values.items()}


def _rates(optimizer: torch.optim.Optimizer) -> Any:
    rates = [_rate_of(optimizer, group) for group in range(len(optimizer.param_groups))]
    # Comparing tensors would wait for their device.
    is_one = len(rates) == 1 or not any(isinstance(rate, torch.Tensor) for rate in rates)
    return rates[0] if is_one and all(rate == rates[0] for rate in rates[1:]) else rates


def _rate_of(optimizer: torch.optim.Optimizer, group: int) -> Any:
    rate = optimizer.param_groups[group]["lr"]
    return rate.detach().clone() if isinstance(rate, torch.Tensor) else rate
