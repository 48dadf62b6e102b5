"""Finds the group of the framework that has joined one, without importing a framework."""

from __future__ import annotations

import importlib
import sys

from runhooks.ranks import Group

# By the module that a program has imported if it has joined a group of that framework.
_ADAPTERS = {
    "torch.distributed": "runhooks.engines.torch.group",
    "jax.distributed": "runhooks.engines.jax.group",
}


def find_group() -> Group | None:
    """Return the group of several processes that a framework has joined; None if none has."""
    for module, adapter in _ADAPTERS.items():
        joined = sys.modules.get(module)
        # A module that is being imported lacks it.
        if joined is not None and getattr(joined, "is_initialized", lambda: False)():
            group: Group | None = importlib.import_module(adapter).group()
            if group is not None and group.size > 1:
                return group
    return None
