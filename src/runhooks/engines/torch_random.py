"""Random generators of a torch program as parts of a checkpoint: those of all, and your own."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

_log = logging.getLogger("runhooks")


class ByState:
    """Something with ``get_state`` and ``set_state``, such as a ``torch.Generator``, as a part."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._of.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._of.set_state(state["state"])


class RandomStates:
    """Torch's generators of the CPU and of each CUDA device, NumPy's and Python's."""

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
        torch.set_rng_state(state["cpu"])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
        saved = state.get("cuda", [])
        here = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for device, device_state in enumerate(saved[:here]):
            torch.cuda.set_rng_state(device_state, device)
        if len(saved) > here:
            _log.warning(
                "the checkpoint has the random states of %d CUDA devices, of which %d are here: "
                "what the others drew goes on differently",
                *(len(saved), here),
            )
