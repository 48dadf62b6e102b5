"""The global step: the number of steps made so far, an int64 that sessions keep on the host.

Named and found as in ``tf.compat.v1.train``: the collection ``GraphKeys.GLOBAL_STEP`` holds it.
"""

from __future__ import annotations

from typing import Any

from runhooks.graph.base import BaseGraph
from runhooks.graph.collections import GraphKeys
from runhooks.graph.default_graph import get_default_graph
from runhooks.graph.tensor import Variable


def create_global_step(graph: BaseGraph | None = None) -> Variable:
    """Create the global step, which starts at 0, in ``graph`` (None: the default graph).

    Raises:
        ValueError: If the graph has one already.
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('the graph has a "global_step" already: use get_or_create_global_step()')
    with graph.as_default():
        keys = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP]
        return Variable(0, name="global_step", collections=keys, on_host=True)


def get_global_step(graph: BaseGraph | None = None) -> Variable | None:
    """Return the global step of ``graph`` (None: the default graph), or None if it has none."""
    found = (graph or get_default_graph()).get_collection(GraphKeys.GLOBAL_STEP)
    return found[0] if found else None


def get_or_create_global_step(graph: BaseGraph | None = None) -> Variable:
    """Return the global step of ``graph`` (None: the default graph); create it if it has none."""
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


def global_step(sess: Any, global_step_tensor: Variable | None = None) -> int:
    """Return the global step of ``sess``, read on the host without a run.

    Args:
        sess: A session.
        global_step_tensor: The second argument of ``tf.compat.v1.train.global_step``. A tensor
            other than the global step is fetched.

    Raises:
        RuntimeError: If the graph has no global step.
    """
    if global_step_tensor is not None and global_step_tensor is not get_global_step(sess.graph):
        return int(sess.run(global_step_tensor))
    step = sess.global_step
    if step is None:
        raise RuntimeError("the graph has no global step: call train.create_global_step() first")
    return int(step)
