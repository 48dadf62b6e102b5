"""``Versions``: which tensors of modules an evaluation has changed in place."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
from torch import nn

from runhooks.arrays.torch import is_distributed

_log = logging.getLogger("runhooks")


class Versions:
    """The version counters of what checkpoints hold of ``modules``, as they are now.

    Reading them neither copies a tensor nor waits for its device.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._before = [
            (f"{name}/{path}", tensor, _version_of(tensor))
            for name, module in modules.items()
            for path, tensor in module.state_dict(keep_vars=True).items()
            if _has_version(tensor)
        ]

    def warn_of_changes(self) -> bool:
        """Log which tensor has changed since, the first of them; return whether one has."""
        for name, tensor, version in self._before:
            if _version_of(tensor) != version:
                _log.warning(
                    "an evaluation has changed %r in place, and training goes on with that, unless "
                    "it has changed it back: call %s.eval() at its start, and let it change no "
                    "parameter or buffer",
                    *(name, name.partition("/")[0]),
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
