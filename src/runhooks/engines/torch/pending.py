"""Gradients that no optimizer has applied yet, for checkpoints."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


class PendingGradients:
    """The gradients of ``modules`` that no optimizer has applied since they last changed.

    One that was applied, and may stay, is marked with its version, which torch raises when it
    changes. A checkpoint says only that it was there, and whether it was sparse: optimizers with
    momentum tell zeros from no gradient.
    """

    def __init__(self, modules: Mapping[str, nn.Module], optimizers: Iterable[Optimizer]) -> None:
        self._modules = modules
        self._known = weakref.WeakSet(optimizers)
        _watch_optimizers()

    def know(self, optimizer: Optimizer) -> bool:
        """Whether it is new, and updates parameters of the modules that no known one does.

        A known one may wrap it.
        """
        if optimizer in self._known:
            return False
        others = _ids_of_updated(self._known)
        self._known.add(optimizer)
        ours = {id(p) for _, p in self._parameters()} - others
        return not ours.isdisjoint(_ids_of_updated([optimizer]))

    def state_dict(self) -> dict[str, Any]:
        return {
            name: _kind(p.grad) if _is_applied(p.grad) else _dense(p.grad)
            for name, p in self._parameters()
            if p.grad is not None
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        updated = _ids_of_updated(self._known)
        for name, parameter in self._parameters():
            parameter.grad = None
            if name not in state:
                continue
            if not _is_kind(saved := state[name]):
                parameter.grad = _restored(saved, parameter)
            elif id(parameter) in updated:
                parameter.grad = _zeros(saved, parameter)
                _mark([parameter])

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        seen: set[int] = set()
        for name, module in self._modules.items():
            for path, parameter in module.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{name}/{path}", parameter


def is_unexchanged(module: nn.Module) -> bool:
    """Whether FSDP2 keeps gradients of ``module`` for a later exchange."""
    if not hasattr(type(module), "_get_fsdp_state"):
        return False
    state = cast(Any, module)._get_fsdp_state()
    # Versions of torch differ.
    groups = getattr(state, "_fsdp_param_groups", None)
    groups = [getattr(state, "_fsdp_param_group", None)] if groups is None else groups
    return any(map(_keeps_gradients, groups))


def _keeps_gradients(group: Any) -> bool:
    kept = [getattr(group, "_partial_reduce_output", None)]
    for it in getattr(group, "fsdp_params", ()):
        kept.append(getattr(it, "unsharded_accumulated_grad", None))
        kept.append(getattr(getattr(it, "_unsharded_param", None), "grad", None))
    return any(it is not None for it in kept)


class SteppedOptimizers:
    """A context that marks gradients that are applied; its value lists the optimizers."""

    __slots__ = ("stepped",)

    def __init__(self) -> None:
        self.stepped: list[Optimizer] = []

    def __enter__(self) -> list[Optimizer]:
        _open.append(self)
        return self.stepped

    def __exit__(self, *exc_info: object) -> None:
        _open.remove(self)


_open: list[SteppedOptimizers] = []  # of the steps that run now, in all threads


@functools.cache
def _watch_optimizers() -> None:
    # For good: what torch compiles of an optimizer depends on its hooks.
    register_optimizer_step_post_hook(_note)


def _note(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if not _open or torch.compiler.is_compiling():  # what is compiled makes no mark
        return
    for it in _open:
        it.stepped.append(optimizer)
    for group in optimizer.param_groups:
        _mark(group["params"])


def _mark(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        if (gradient := parameter.grad) is not None:
            # With its id: copy.deepcopy copies the mark.
            gradient.applied = id(gradient), gradient._version


def _is_applied(gradient: Any) -> bool:
    return bool(getattr(gradient, "applied", None) == (id(gradient), gradient._version))


def updated_by(optimizers: Iterable[Optimizer]) -> list[Any]:
    return [p for it in optimizers for group in it.param_groups for p in group["params"]]


def _ids_of_updated(optimizers: Iterable[Optimizer]) -> set[int]:
    return set(map(id, updated_by(optimizers)))


_SPARSE_AXES = "sparse_axes"


def _kind(gradient: torch.Tensor) -> Any:
    return {_SPARSE_AXES: gradient.sparse_dim()} if gradient.is_sparse else None


def _is_kind(saved: Any) -> bool:
    return saved is None or (isinstance(saved, Mapping) and _SPARSE_AXES in saved)


def _zeros(kind: Any, parameter: nn.Parameter) -> torch.Tensor:
    if kind is None:
        return torch.zeros_like(parameter)
    axes = kind[_SPARSE_AXES]
    indices = torch.zeros((axes, 0), dtype=torch.int64)
    values = torch.zeros((0, *parameter.shape[axes:]), dtype=parameter.dtype)
    return _restored({"indices": indices, "values": values}, parameter)


def _dense(gradient: Any) -> Any:
    if not gradient.is_sparse:
        return gradient
    # Not coalesced: sums in another order differ in the last bit.
    parts = {"indices": gradient._indices(), "values": gradient._values()}
    return {**parts, "is_coalesced": gradient.is_coalesced()}


def _restored(saved: Any, parameter: nn.Parameter) -> torch.Tensor:
    if isinstance(saved, torch.Tensor):
        return saved.to(parameter.device)
    whole = torch.sparse_coo_tensor(
        saved["indices"].clone(),  # zero_grad cannot resize memory of NumPy's
        saved["values"].clone(),
        parameter.shape,
        check_invariants=True,
        is_coalesced=saved.get("is_coalesced", True),
    )
    return whole.to(parameter.device)
