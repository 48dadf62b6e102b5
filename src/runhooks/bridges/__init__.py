"""Hooks in loops that others own: each module has a callback, and imports its framework."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from runhooks.bridges.hooked_loop import ValidationHook

__all__ = ["ValidationHook"]

_MODULES = ("accelerate", "ignite", "keras", "lightning", "optuna", "tracking", "transformers")


def require(module: str, package: str) -> None:
    if find_spec(module) is None:
        raise ImportError(
            f"runhooks.bridges.{module} needs {module}, which is not installed: "
            f"pip install {package!r}",
            name=module,
        )


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
