"""Finds graphs, sessions and groups of a framework that the program has imported."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from runhooks.contract import RawSession
from runhooks.graph.base import BaseGraph
from runhooks.ranks import Group


def default_graph() -> BaseGraph | None:
    """Return TensorFlow's; None where it is eager or absent."""
    theirs = _tensorflow()
    found: BaseGraph | None = None if theirs is None else theirs.current_graph()
    return found


def graph_of(graph: Any) -> BaseGraph:
    """Return ``graph``, of any framework, as hooks ask of it; TypeError if it is none."""
    if isinstance(graph, BaseGraph):
        return graph
    theirs = _tensorflow()
    found: BaseGraph | None = None if theirs is None else theirs.known_graph(graph)
    if found is None:
        raise TypeError(f"graph must be a Graph, or TensorFlow's, got {graph!r}")
    return found


def session_of(session: Any) -> RawSession:
    """Return ``session``, of any framework, as hooks ask of it; TypeError if it is none."""
    if isinstance(session, RawSession):
        return session
    theirs = _tensorflow()
    found: RawSession | None = None if theirs is None else theirs.known_session(session)
    if found is None:
        raise TypeError(f"session must be a RawSession, or TensorFlow's, got {session!r}")
    return found


def _tensorflow() -> Any:
    """Return the module of TensorFlow's graphs; None if that is not imported, or not yet."""
    if not hasattr(sys.modules.get("tensorflow"), "compat"):
        return None
    return importlib.import_module("runhooks.engines.tensorflow.graph")


# By the module that the program has imported.
_ADAPTERS = {
    "torch.distributed": "runhooks.engines.torch.group",
    "jax.distributed": "runhooks.engines.jax.group",
}


def find_group() -> Group | None:
    """Return the group of several processes, or None."""
    for module, adapter in _ADAPTERS.items():
        # A module that is being imported lacks it.
        if getattr(sys.modules.get(module), "is_initialized", lambda: False)():
            group: Group | None = importlib.import_module(adapter).group()
            if group is not None and group.size > 1:
                return group
    return None
