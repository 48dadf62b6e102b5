"""``Versions``: which tensors of modules were changed in place by what is no step."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
from torch import nn

from runhooks.arrays.torch import is_distributed

_log = logging.getLogger("runhooks")


class Versions:
    """The version counters of what checkpoints hold of ``modules``.

    Reading them neither copies a tensor nor waits for its device.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._tensors = {
            f"{name}/{path}": tensor
            for name, module in modules.items()
            for path, tensor in module.state_dict(keep_vars=True).items()
            if _has_version(tensor)
        }

    def now(self) -> list[int]:
        """Return the counters as they are now."""
        return [_version_of(tensor) for tensor in self._tensors.values()]

    def warn_of_changes(self, before: list[int], what: str) -> bool:
        """Log the first tensor that ``what`` has changed; return whether there is one.

        ``before``: what ``now`` returned before it.
        """
        for (name, tensor), version in zip(self._tensors.items(), before, strict=True):
            if _version_of(tensor) != version:
                _log.warning(
                    "%s has changed %r in place, and training goes on with that, unless it has "
                    "changed it back. To evaluate, call %s.eval() first; to train, make it a step, "
                    "with rh.torch.step: only steps may change parameters and buffers, and draw "
                    "random numbers that count",
                    *(what, name, name.partition("/")[0]),
                )
                return True
        return False


def _version_of(tensor: torch.Tensor) -> int:
    # What autograd itself compares; torch has no public name for it.
    version: int = getattr(tensor, "_version")  # noqa: B009
    return version


def _has_version(tensor: object) -> bool:
    if not isinstance(tensor, torch.Tensor):
        return False
    return not (is_distributed(tensor) or tensor.is_inference())
