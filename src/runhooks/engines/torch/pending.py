"""``PendingGradients``: the gradients that no optimizer has applied yet, an object of checkpoints.

Between two updates, an accumulation over several runs has its state in the ``grad`` of parameters.
Most steps end otherwise: what an optimizer has applied stays there until the next step clears it,
and is not worth the space in a checkpoint. Torch's hook of all optimizers tells the two apart.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


class PendingGradients:
    """The gradients of ``modules`` that the next step may add to.

    Those that an optimizer has applied are left out, until a step computes others. Parameters that
    no optimizer of torch is known to update may be updated by hand, which nothing shows: theirs are
    pending after a step that does not count.

    Args:
        modules: The modules by name.
        optimizers: The optimizers of the graph. Others become known when they make a step.
    """

    def __init__(self, modules: Mapping[str, nn.Module], optimizers: Iterable[Optimizer]) -> None:
        self._modules = modules
        self._known = weakref.WeakSet(optimizers)
        self._latest = _Step()
        self._left: dict[int, _Applied] = {}  # what was applied before the latest step
        self._counted = True
        hook = register_optimizer_step_post_hook(_noting_in(self._latest))
        weakref.finalize(self, hook.remove)

    def know(self, optimizer: Optimizer) -> bool:
        """Return whether ``optimizer`` has become known, and updates parameters of the modules.

        Of parameters that a known one updates, it may be the inner one of that.
        """
        if optimizer in self._known:
            return False
        others = _parameters_of(self._known)
        self._known.add(optimizer)
        ours = {id(p) for _, p in self._parameters()} - others
        return not ours.isdisjoint(_parameters_of([optimizer]))

    def begin(self, *, counts: bool) -> None:
        """Note from now on which optimizers make a step, until ``end``."""
        self._counted = counts
        self._left = dict(self._latest.applied)
        self._latest.applied.clear()
        self._latest.runs = True

    def end(self) -> list[Optimizer]:
        """End what ``begin`` has begun; return the optimizers that made a step in it."""
        latest = self._latest
        latest.runs = False
        stepped = [it.optimizer for it in latest.applied.values()]
        for key, it in list(latest.applied.items()):
            if it.gradient is not None and it.gradient.is_followed():
                del latest.applied[key]
        for key, it in self._left.items():
            if it.optimizer not in stepped and it.gradient is not None and it.gradient.is_left():
                latest.applied[key] = it
        self._left = {}
        return stepped

    def state_dict(self) -> dict[str, Any]:
        applied = _parameters_of(it.optimizer for it in self._latest.applied.values())
        maybe = _parameters_of(self._known) if self._counted else None
        return {
            name: _dense(p.grad)
            for name, p in self._parameters()
            if p.grad is not None and id(p) not in applied and (maybe is None or id(p) in maybe)
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, parameter in self._parameters():
            saved = state.get(name)
            parameter.grad = None if saved is None else _restored(saved, parameter)
        self._latest.applied.clear()  # what is loaded was not applied
        self._counted = not state

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        seen: set[int] = set()
        for name, module in self._modules.items():
            for path, parameter in module.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{name}/{path}", parameter


class _Gradient(NamedTuple):
    """One gradient as an optimizer has applied it."""

    parameter: weakref.ref[torch.Tensor]
    gradient: weakref.ref[torch.Tensor]
    version: int

    def is_left(self) -> bool:
        """Whether the parameter still has it, as it was."""
        now = self._now()
        return now is not None and now is self.gradient() and now._version == self.version

    def is_followed(self) -> bool:
        """Whether the parameter has another one, or this was cleared and computed anew.

        One change alone is the clearing; or it is what another loss adds and the next step clears,
        as that of a generator does in the discriminator of a GAN.
        """
        now = self._now()
        if now is None:
            return False
        return now is not self.gradient() or now._version > self.version + 1

    def _now(self) -> torch.Tensor | None:
        parameter = self.parameter()
        return None if parameter is None else parameter.grad


class _Applied(NamedTuple):
    optimizer: Optimizer
    gradient: _Gradient | None


class _Step:
    """What optimizers have done in the latest step, by their ids."""

    def __init__(self) -> None:
        self.runs = False
        self.applied: dict[int, _Applied] = {}


def _noting_in(step: _Step) -> Callable[[Optimizer, Any, Any], None]:
    def note(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if step.runs:  # and it is not an optimizer of another loop
            # What is compiled cannot be looked at.
            found = None if torch.compiler.is_compiling() else _first_gradient(optimizer)
            step.applied[id(optimizer)] = _Applied(optimizer, found)

    return note


def _first_gradient(optimizer: Optimizer) -> _Gradient | None:
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                # Weakly: what the step clears must not keep its memory.
                return _Gradient(weakref.ref(p), weakref.ref(p.grad), p.grad._version)
    return None


def _parameters_of(optimizers: Iterable[Optimizer]) -> set[int]:
    return {id(p) for it in optimizers for group in it.param_groups for p in group["params"]}


def _dense(gradient: torch.Tensor) -> Any:
    if not gradient.is_sparse:
        return gradient
    whole = gradient.coalesce()
    return {"indices": whole.indices(), "values": whole.values()}


def _restored(saved: Any, parameter: nn.Parameter) -> torch.Tensor:
    if isinstance(saved, torch.Tensor):
        return saved.to(parameter.device)
    whole = torch.sparse_coo_tensor(
        saved["indices"], saved["values"], parameter.shape, check_invariants=True
    )
    return whole.to(parameter.device)
