"""What checkpoints hold beside the objects that the user names: generators, open gradients."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import nn

_log = logging.getLogger("runhooks")


#: In the place of the state of a random generator: the seed to begin with.
SEED = "seed"


class StateAsDict:
    """Adapts ``get_state`` and ``set_state``, as of a ``torch.Generator``, to state dicts."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._of.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if SEED in state:
            self._of.manual_seed(state[SEED])
        else:
            self._of.set_state(state["state"])

    @property
    def takes_seed(self) -> bool:
        """Whether it is a random generator of torch."""
        return isinstance(self._of, torch.Generator)

    @property
    def is_generator(self) -> bool:
        """Whether it is a random generator."""
        return isinstance(self._of, torch.Generator | np.random.RandomState)


class RandomStates:
    """The states of the random generators of torch (CPU, every CUDA device), NumPy and Python."""

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "cpu": torch.get_rng_state(),
            "numpy": np.random.get_state(legacy=False),
            "python": random.getstate(),
        }
        if torch.cuda.is_available() and cast(Any, torch.cuda).is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if SEED in state:
            torch.manual_seed(state[SEED])
            np.random.seed(state[SEED] % (1 << 32))
            random.seed(state[SEED])
            return
        torch.set_rng_state(state["cpu"])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
        saved = state.get("cuda", [])
        here = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for device, device_state in enumerate(saved[:here]):
            torch.cuda.set_rng_state(device_state, device)
        if len(saved) > here:
            _log.warning(
                "the checkpoint has the random states of %d CUDA devices, and %d are available: "
                "randomness of the others is not resumed",
                *(len(saved), here),
            )


class PendingGradients:
    """The gradients of ``modules`` while ``pending``: after a step that does not count.

    Without them, a training stopped in the middle of an accumulation would lose its first half.
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
            parameter.grad = None if saved is None else _restored(saved, parameter)
        self.pending = bool(state)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        seen: set[int] = set()
        for name, module in self._modules.items():
            for path, parameter in module.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{name}/{path}", parameter


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
