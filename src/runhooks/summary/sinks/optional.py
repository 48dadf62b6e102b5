"""``optional``: what is imported only when somebody makes use of it."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional(module: str, package: str) -> ModuleType:
    """Return ``module``; ImportError, which says that ``package`` has to be installed, without."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{module} is missing: pip install {package}", name=module) from error
