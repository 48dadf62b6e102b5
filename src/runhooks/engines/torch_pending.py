"""``PendingGradients``: what micro-steps have accumulated, as one part of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn


class PendingGradients:
    """The gradients of ``modules`` while ``pending``: since a step was made that does not count.

    Without them a run that is stopped in the middle of an accumulation would lose its first half.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        #: Whether a step that does not count was begun after the last one that counts.
        self.pending = False

    def state_dict(self) -> dict[str, Any]:
        if not self.pending:
            return {}
        return {name: _dense(p.grad) for name, p in self._parameters() if p.grad is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, parameter in self._parameters():
            saved = state.get(name)
            parameter.grad = None if saved is None else _as_it_was(saved, parameter)
        self.pending = bool(state)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        seen: set[int] = set()
        for part, module in self._modules.items():
            for path, parameter in module.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{part}/{path}", parameter


def _dense(gradient: torch.Tensor) -> Any:
    if not gradient.is_sparse:
        return gradient
    whole = gradient.coalesce()
    return {"indices": whole.indices(), "values": whole.values()}


def _as_it_was(saved: Any, parameter: nn.Parameter) -> torch.Tensor:
    if isinstance(saved, torch.Tensor):
        return saved.to(parameter.device)
    whole = torch.sparse_coo_tensor(
        saved["indices"], saved["values"], parameter.shape, check_invariants=True
    )
    return whole.to(parameter.device)
