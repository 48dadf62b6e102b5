"""The engines, one folder a framework, imported when the first graph of that engine is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import cast

from runhooks.engines import foreign
from runhooks.engines.eager import EagerEngine
from runhooks.graph.base import Framework, find_default_graph_with
from runhooks.graph.engine import Engine, load_engine, register_engine
from runhooks.ranks import find_group_with

__all__ = [
    "EXTRAS_OF_ENGINES",
    "EagerEngine",
    "Engine",
    "framework_named",
    "load_engine",
    "register_engine",
    "require_framework",
]

#: Extras of these names install the frameworks.
EXTRAS_OF_ENGINES = ("jax", "torch", "tensorflow")

#: The framework that each engine needs, and the folder that has it.
_FRAMEWORKS = {"python": "numpy", "jax": "jax", "torch": "torch"}


def require_framework(engine: str) -> None:
    """Raise ImportError, which says what to install, without the framework of ``engine``."""
    framework = _FRAMEWORKS.get(engine, engine)
    try:
        importlib.import_module(framework)
    except ImportError as error:
        raise ImportError(
            f"the {engine} engine needs {framework}: pip install 'runhooks[{engine}]'"
        ) from error


def framework_named(name: str) -> Framework:
    """Import and return an engine's framework; ImportError, or what a broken one raises."""
    require_framework(name)
    module = importlib.import_module(f"runhooks.engines.{_FRAMEWORKS.get(name, name)}.engine")
    framework: Framework = module.ENGINE
    return framework


for _name in _FRAMEWORKS:
    register_engine(_name, partial(cast(Callable[[str], Engine], framework_named), _name))

find_default_graph_with(foreign.default_graph)
find_group_with(foreign.find_group)
