"""Hooks in loops that others own: ``rh.bridges.keras.Hooks`` and its like are their callbacks.

Each module imports its framework, and is imported when it is first used.
"""

from importlib import import_module
from typing import Any

from runhooks.bridges.validation import ValidationHook

__all__ = ["ValidationHook"]

_MODULES = ("accelerate", "ignite", "keras", "lightning", "optuna", "tracking", "transformers")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
