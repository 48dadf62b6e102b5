"""Graphs and sessions that a framework has of its own, found without importing the framework.

A program that has such a graph or session has imported the framework already.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from runhooks.contract import RawSession
from runhooks.graph.base import BaseGraph


def default_graph() -> BaseGraph | None:
    """Return TensorFlow's default graph, where it builds one; None where it is eager or absent."""
    found: BaseGraph | None = None
    if _is_tensorflow_imported():
        found = _tensorflow().current_graph()
    return found


def graph_of(graph: Any) -> BaseGraph:
    """Return ``graph``, of whatever framework, as hooks and session layers ask of it.

    Raises:
        TypeError: If it is not a graph.
    """
    if isinstance(graph, BaseGraph):
        return graph
    found: BaseGraph | None = None
    if _is_tensorflow_imported():
        found = _tensorflow().known_graph(graph)
    if found is not None:
        return found
    raise TypeError(f"graph must be a Graph, or TensorFlow's, got {graph!r}")


def session_of(session: Any) -> RawSession:
    """Return ``session``, which a framework's own loop may run, as hooks ask of it.

    Raises:
        TypeError: If it is not a session.
    """
    if isinstance(session, RawSession):
        return session
    found: RawSession | None = None
    if _is_tensorflow_imported():
        found = _tensorflow().known_session(session)
    if found is not None:
        return found
    raise TypeError(f"session must be a RawSession, or TensorFlow's, got {session!r}")


def _is_tensorflow_imported() -> bool:
    # While TensorFlow is being imported it lacks this.
    return hasattr(sys.modules.get("tensorflow"), "compat")


def _tensorflow() -> Any:
    return importlib.import_module("runhooks.engines.tensorflow.graph")
