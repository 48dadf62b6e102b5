"""The default graph: the one that is built on, and run, where none is named."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from runhooks.contexts import contextmanager
from runhooks.graph.base import BaseGraph


class _Stack(threading.local):
    def __init__(self) -> None:
        self.graphs: list[BaseGraph] = []


_stack = _Stack()
_finders: list[Callable[[], BaseGraph | None]] = []


@contextmanager
def entered(graph: BaseGraph) -> Iterator[None]:
    """Make ``graph`` the default graph of this thread inside the ``with`` block."""
    _stack.graphs.append(graph)
    try:
        yield
    finally:
        _stack.graphs.pop()


def find_default_graph_with(find: Callable[[], BaseGraph | None]) -> None:
    """Ask ``find`` for the default graph where none was entered, before those registered earlier.

    ``find`` returns None if it has none.
    """
    _finders.insert(0, find)


def get_default_graph() -> BaseGraph:
    """Return the graph of the innermost ``with graph.as_default()`` of this thread.

    Outside any, it is TensorFlow's graph if TensorFlow is building one, as in a ``with`` block of a
    ``tf.Graph``; otherwise one graph on the python engine that the whole process shares.
    """
    if _stack.graphs:
        return _stack.graphs[-1]
    found = (find() for find in _finders)
    return next(graph for graph in found if graph is not None)
