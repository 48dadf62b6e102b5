"""What a writer to a service needs: a package that has to be installed."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional(module: str, package: str) -> ModuleType:
    """Return ``module``. Raises ImportError, naming ``package``, if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"{module} is missing: pip install {package}", name=module) from error
