"""``PendingGradients``: the gradients that no optimizer has applied yet, an object of checkpoints.

Between two updates, an accumulation over several runs has its state in the ``grad`` of parameters.
Most steps end otherwise: what an optimizer has applied stays there until the next step clears it,
and is not worth the space in a checkpoint. Torch's hook of all optimizers tells the two apart.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
        self._steps = _Steps()
        self._counted = True
        _watch_optimizers()

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
        self._steps.run += 1
        _open.append(self._steps)

    def end(self) -> list[Optimizer]:
        """End what ``begin`` has begun; return the optimizers that made their first step in it."""
        steps = self._steps
        _open.remove(steps)
        new, steps.new = steps.new, []
        return new

    def state_dict(self) -> dict[str, Any]:
        applied = _parameters_of(self._steps.applied())
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
        self._steps.latest.clear()  # what is loaded was not applied
        self._counted = not state

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        seen: set[int] = set()
        for name, module in self._modules.items():
            for path, parameter in module.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{name}/{path}", parameter


class _Latest:
    """The latest step of one optimizer: in which run it was, and the first gradient it applied.

    Each step of a program comes here, so a save looks at what has become of the gradient.
    """

    __slots__ = ("gradient", "optimizer", "parameter", "run", "version")

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.run = 0
        self.parameter: torch.Tensor | None = None
        self.gradient: weakref.ref[torch.Tensor] | None = None
        self.version = 0

    def is_applied(self, run: int) -> bool:
        """Whether nothing was added to it since, as far as the latest run, ``run``, goes.

        In its own run, one change alone is the clearing; or it is what another loss adds and the
        next step clears, as that of a generator does in the discriminator of a GAN.
        """
        now = None if self.parameter is None else self.parameter.grad
        if now is None or self.gradient is None:  # there was none, or it was cleared
            return False
        changes = now._version - self.version
        return now is self.gradient() and changes <= (1 if self.run == run else 0)


class _Steps:
    """What optimizers have done, by their ids, in the runs of the steps of one graph.

    Attributes:
        run: The number of the latest run.
        latest: The latest step of each.
        new: Those that have made their first step.
    """

    def __init__(self) -> None:
        self.run = 0
        self.latest: dict[int, _Latest] = {}
        self.new: list[Optimizer] = []

    def applied(self) -> Iterator[Optimizer]:
        """Return the optimizers whose gradients nothing was added to since."""
        for it in self.latest.values():
            optimizer = it.optimizer()
            if optimizer is not None and it.is_applied(self.run):
                yield optimizer

    def note(self, optimizer: Optimizer, parameter: torch.Tensor | None) -> None:
        """Note a step of ``optimizer``, and ``parameter``, the first whose gradient it applied."""
        found = self.latest.get(id(optimizer))
        if found is None or found.optimizer() is not optimizer:
            self.new.append(optimizer)
            self.latest = {k: it for k, it in self.latest.items() if it.optimizer() is not None}
            found = self.latest[id(optimizer)] = _Latest(optimizer)
        found.run, found.parameter = self.run, parameter
        if parameter is not None and (gradient := parameter.grad) is not None:
            # Weakly: what the step clears must not keep its memory.
            found.gradient, found.version = weakref.ref(gradient), gradient._version


#: Those of which a step runs now, in whatever thread.
_open: list[_Steps] = []


@functools.cache
def _watch_optimizers() -> None:
    # Once and for good: what torch compiles of an optimizer depends on its hooks.
    register_optimizer_step_post_hook(_note)


def _note(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():  # nothing can be looked at, so all counts as pending
        return
    for steps in _open:
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        steps.note(optimizer, next((p for p in parameters if p.grad is not None), None))


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
