"""Graphs, sessions and groups that a framework has of its own, found without importing it.

A program that has such a graph or session has imported the framework already.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from runhooks.contract import RawSession
from runhooks.graph.base import BaseGraph
from runhooks.ranks import Group


def default_graph() -> BaseGraph | None:
    """Return TensorFlow's default graph, where it builds one; None where it is eager or absent."""
    found: BaseGraph | None = _ask_tensorflow(lambda theirs: theirs.current_graph())
    return found


def graph_of(graph: Any) -> BaseGraph:
    """Return ``graph``, of whatever framework, as hooks and session layers ask of it.

    Raises:
        TypeError: If it is not a graph.
    """
    if isinstance(graph, BaseGraph):
        return graph
    found: BaseGraph | None = _ask_tensorflow(lambda theirs: theirs.known_graph(graph))
    if found is None:
        raise TypeError(f"graph must be a Graph, or TensorFlow's, got {graph!r}")
    return found


def session_of(session: Any) -> RawSession:
    """Return ``session``, which a framework's own loop may run, as hooks ask of it.

    Raises:
        TypeError: If it is not a session.
    """
    if isinstance(session, RawSession):
        return session
    found: RawSession | None = _ask_tensorflow(lambda theirs: theirs.known_session(session))
    if found is None:
        raise TypeError(f"session must be a RawSession, or TensorFlow's, got {session!r}")
    return found


def _ask_tensorflow(ask: Callable[[Any], Any]) -> Any:
    """Call ``ask`` with the module ``graph``; return None if TensorFlow is not imported."""
    # While TensorFlow is being imported it lacks this.
    if not hasattr(sys.modules.get("tensorflow"), "compat"):
        return None
    return ask(importlib.import_module("runhooks.engines.tensorflow.graph"))


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
