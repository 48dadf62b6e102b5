"""``Capture``: gradients and activations of one run."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from runhooks.arrays.torch import cloned, stored, whole
from runhooks.engines.torch.objects import (
    GLOBAL_NORM,
    RATE,
    TorchObjects,
    one_rate,
    rate_groups,
    rate_in,
    tensors_in,
)
from runhooks.engines.torch.pending import updated_by
from runhooks.graph import nest
from runhooks.graph.graph import Graph
from runhooks.graph.named_values import NamedValues, to_feed
from runhooks.graph.nodes import CAPTURES, Effect, Operation, Tensor
from runhooks.near_names import did_you_mean, nearest

_log = logging.getLogger("runhooks")

CAPTURED = cast(Tensor, "captured")  # a key among the values of a run

GRADIENTS, ACTIVATIONS = "gradients", "activations"

_NEEDS_STEP = 'fetch it together with a step, such as "train_op"'


class Capture:
    """What ``operations`` of a run ask for, by kind and name."""

    def __init__(self, objects: TorchObjects, operations: Sequence[Operation]) -> None:
        self._objects = objects
        self._steps = [objects.steps[op.name] for op in operations if op.effect is Effect.STEP]
        asked = [op.args for op in operations if op.effect in CAPTURES]
        self._names = {
            kind: [name for its_kind, name in asked if its_kind == kind]
            for kind in (GRADIENTS, ACTIVATIONS, GLOBAL_NORM)
        }

    def check_without_step(self) -> None:
        names = [f"{GRADIENTS}/{name}" for name in self._names[GRADIENTS]]
        if names or self._names[GLOBAL_NORM]:
            name = [*names, GLOBAL_NORM][0]
            raise ValueError(f"{name!r} exists only in a run that makes a step: {_NEEDS_STEP}")

    @contextmanager
    def install(self) -> Iterator[Captured]:
        """Capture inside the ``with`` block; ValueError for a frozen parameter."""
        targets = {name: self._parameters(name) for name in self._names[GRADIENTS]}
        captured = Captured(self._objects, targets, norm=bool(self._names[GLOBAL_NORM]))
        with ExitStack() as installed:
            if "torch._dynamo" in sys.modules:
                installed.enter_context(torch.compiler.set_stance(self._stance()))
            if targets or self._names[GLOBAL_NORM]:
                # A closure computes what the optimizer applies.
                before = register_optimizer_step_pre_hook(captured.gradient_taker(False))
                after = register_optimizer_step_post_hook(captured.gradient_taker(True))
                installed.callback(before.remove)
                installed.callback(after.remove)
            for name in self._names[ACTIVATIONS]:
                module = self._objects.find(name)
                handle = module.register_forward_hook(captured.activation_taker(name))
                installed.callback(handle.remove)
            yield captured

    def _stance(self) -> str:
        """How compiled code calls hooks without being recompiled."""
        if self._names[ACTIVATIONS] or any(_is_compiled(step) for step in self._steps):
            self._log_eager()
            return "force_eager"
        # What would be recompiled contains the optimizer, except in the first step.
        return "eager_on_recompile" if self._objects.begun else "default"

    def _log_eager(self) -> None:
        utils = sys.modules.get("torch._dynamo.utils")
        if self._objects.has_logged_eager or utils is None or not utils.counters.get("stats"):
            return
        self._objects.has_logged_eager = True
        _log.info(
            "in runs that ask for activations, or for gradients of a compiled step, what "
            "torch.compile made runs eagerly: numbers may differ by rounding or in dropout"
        )

    def _parameters(self, name: str) -> dict[str, nn.Parameter]:
        found = self._objects.find(name)
        if not isinstance(found, nn.Module):
            if not found.requires_grad:
                raise ValueError(
                    f"{GRADIENTS + '/' + name!r}: the parameter is frozen, requires_grad is False"
                )
            return {"": found}
        return dict(found.named_parameters(remove_duplicate=False))


class Captured:
    """What a run captures, such as gradients of ``targets``, by name and path."""

    def __init__(
        self, objects: TorchObjects, targets: dict[str, dict[str, nn.Parameter]], *, norm: bool
    ) -> None:
        self._objects = objects
        self._targets = targets
        self._norm = norm
        self._gradients: dict[int, torch.Tensor] = {}
        self._norms: dict[int, torch.Tensor] = {}
        self._has_stepped = False
        self._activations: dict[str, Any] = {}

    def gradient_taker(self, with_closure: bool) -> Any:
        """Return a hook that copies what an optimizer applies, with a closure or without."""

        def take(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if (len(args) > 1 or kwargs.get("closure") is not None) is with_closure:
                self._take_gradients(optimizer)

        return take

    def _take_gradients(self, optimizer: Optimizer) -> None:
        self._has_stepped = True
        own = {id(p): p for p in updated_by([optimizer])}
        # Optimizers that unscale gradients themselves are given the scale.
        scale = getattr(optimizer, "grad_scale", None)
        for parameters in self._targets.values():
            for p in parameters.values():
                if id(p) in own and p.grad is not None:
                    self._gradients[id(p)] = cloned(p.grad) if scale is None else p.grad / scale
        if self._norm:
            for key, p in own.items():
                if p.grad is not None:  # of wrapped optimizers, the latest counts
                    norm = _norm_of(p.grad)
                    self._norms[key] = norm if scale is None else norm / scale

    def activation_taker(self, name: str) -> Any:
        def take(module: nn.Module, args: Any, output: Any) -> None:
            self._activations[name] = nest.map_leaves(cloned, output)

        return take

    def read(self, kind: str, name: str) -> Any:
        """Return what was captured, of a module by name; ValueError if nothing was."""
        if kind == GLOBAL_NORM:
            return self._global_norm()
        if kind == GRADIENTS:
            return self._gradients_of(name)
        if name not in self._activations:
            raise ValueError(
                f"{f'{kind}/{name}'!r}: the module was not called in this run: {_NEEDS_STEP}, or "
                "with what calls it"
            )
        return self._activations[name]

    def _gradients_of(self, name: str) -> Any:
        parameters = self._targets[name]
        found = {path: self._gradient(p) for path, p in parameters.items()}
        missing = [path for path, p in parameters.items() if found[path] is None]
        if missing and self._are_cleared():
            found |= {
                path: torch.full_like(parameters[path].detach(), math.nan)
                for path in missing
                if parameters[path].requires_grad
            }
        found = {path: it for path, it in found.items() if it is not None}
        if "" not in parameters:
            return found
        if not found:
            raise ValueError(
                f"{f'{GRADIENTS}/{name}'!r}: the parameter has no gradient after this run: the "
                "loss did not depend on it, or the step has set it to None"
            )
        return found[""]

    def _gradient(self, parameter: nn.Parameter) -> torch.Tensor | None:
        taken = self._gradients.get(id(parameter))
        if taken is None and parameter.grad is not None:
            taken = self._gradients[id(parameter)] = cloned(parameter.grad)
        return taken

    def _global_norm(self) -> Any:
        if self._has_stepped:
            return _norm_of_all(list(self._norms.values()))
        parameters = self._parameters()
        if self._are_cleared() and (trained := [p for p in parameters if p.requires_grad]):
            like = trained[0]
            return _norm_of(torch.full((), math.nan, dtype=like.dtype, device=like.device))
        return _norm_of_all([_norm_of(p.grad) for p in parameters if p.grad is not None])

    def _parameters(self) -> list[nn.Parameter]:
        modules = self._objects.modules().values()
        return list({id(p): p for module in modules for p in module.parameters()}.values())

    def _are_cleared(self) -> bool:
        """Whether gradients were cleared unapplied, as a GradScaler may."""
        if self._has_stepped:
            return False
        held = updated_by(self._objects.optimizers().values())
        return all(p.grad is None for p in held or self._parameters())


def _is_compiled(step: Any) -> bool:
    while hasattr(step, "func"):
        step = step.func
    marks = ("_torchdynamo_orig_callable", "_orig_mod", "_compiled_call_impl")
    return any(getattr(step, mark, None) is not None for mark in marks)


def _norm_of_all(norms: list[torch.Tensor]) -> Any:
    if not norms:
        return torch.zeros(())
    near = [norm.to(norms[0].device, non_blocking=True) for norm in norms]
    return torch.linalg.vector_norm(torch.stack(near))


def _norm_of(tensor: torch.Tensor) -> Any:
    dense = stored(tensor)
    is_wide = dense.dtype in (torch.float64, torch.complex128)
    magnitudes = dense.abs() if dense.is_complex() else dense
    wide = magnitudes.to(torch.float64 if is_wide else torch.float32)
    return whole(torch.linalg.vector_norm(wide))


class ObjectTensors(NamedValues):
    """Values of ``objects`` as tensors of ``graph``, made when asked for."""

    def __init__(self, graph: Graph, objects: TorchObjects) -> None:
        super().__init__(graph)
        self._objects = objects
        self._carried: dict[str, frozenset[str]] = {}  # the paths in each

    def carry(self, name: str, tensor: Tensor, paths: frozenset[str]) -> None:
        """Let ``name`` mean ``tensor``, and ``"<name>/<path>"`` its parts at ``paths``."""
        self.add(name, tensor)
        self._carried[name] = paths

    def given(self, name: str) -> Tensor | None:
        return self._given.get(name)

    def has(self, name: str) -> bool:
        return self._make(name) is not None

    def comes_first(self, name: str) -> bool:
        return name in self._given or name in self._made or self.has(name)

    def make(self, name: str) -> Operation:
        return self._make(name) or self._unknown(name)

    def _make(self, name: str) -> Operation | None:
        kind, _, target = name.partition("/")
        if target in self._carried.get(kind, ()):
            lost = f"{kind!r} has lost {target!r}"
            return self.part(name, target, self._given[kind], lambda _: ValueError(lost))
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
        if rest == "scale" and callable(scale):
            return self._operation(name, Effect.READ, scale)
        if rate_groups(self._objects.optimizers(), name):
            return self._operation(name, Effect.READ, partial(_rate, self._objects, name))
        return None

    def _capture(self, name: str, kind: str, target: str) -> Operation:
        return self._operation(
            name,
            Effect.CAPTURE if kind == ACTIVATIONS else Effect.STEP_CAPTURE,
            lambda captured: captured.read(kind, target),
            (kind, target),
            lambda values: (values[CAPTURED],),
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
            read_args=read_args,
            effect=effect,
        )

    def _unknown(self, name: str) -> Operation:
        optimizers = sorted(self._objects.optimizers())
        if (found := self._objects.find(name)) is not None:
            kind = "an optimizer" if name in optimizers else f"a {type(found).__name__}"
            there_is = [it for it in (f"{name}/{RATE}", f"{name}/scale") if self.has(it)]
            near = f"; there is {there_is[0]!r}" if there_is else ""
            raise ValueError(f"{name!r} is {kind}, without a value to fetch{near}")
        if name in self.defaulted:
            near = to_feed(name)
        elif name == RATE and len(optimizers) > 1:
            near = f": there are several, {[f'{it}/{RATE}' for it in optimizers]}"
        else:
            near = did_you_mean([RATE] if name == "lr" else nearest(name, self._known(name))) or (
                f": if the step returns it, name it as in rh.torch.graph(step, [{name!r}], ...)"
            )
        raise ValueError(f"nothing is named {name!r} in the graph ({self._objects}){near}")

    def _known(self, name: str) -> Iterator[str]:
        yield from self.operation_names()
        yield from self._given
        yield from (f"{it}/{path}" for it, paths in self._carried.items() for path in paths)
        yield from (f"{it}/{RATE}" for it in self._objects.optimizers())
        yield from (GLOBAL_NORM, RATE)
        kind = name.partition("/")[0]
        for owner, module in self._objects.modules().items():
            if kind == ACTIVATIONS:
                yield from (f"{kind}/{owner}/{path}" for path, _ in module.named_modules() if path)
            elif kind == GRADIENTS:
                parameters = module.named_parameters(remove_duplicate=False)
                yield from (f"{kind}/{owner}/{path}" for path, _ in parameters)
            else:
                yield from self._objects.tensors(owner)


def _read(objects: TorchObjects, name: str) -> Any:
    found = objects.find(name)
    if isinstance(found, nn.Module):
        return nest.map_leaves(cloned, tensors_in(found))
    return cloned(found)


def _rate(objects: TorchObjects, name: str) -> Any:
    groups = rate_groups(objects.optimizers(), name)  # a loaded state has others
    return one_rate([rate_in(group) for group in groups.values()])
