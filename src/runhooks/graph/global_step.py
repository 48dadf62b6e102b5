"""The global step: how many steps the training has made; an int64 that sessions keep on the host.

Named and found as in ``tf.compat.v1.train``: the collection ``GraphKeys.GLOBAL_STEP`` holds it.
"""

from __future__ import annotations

from typing import Any

from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import Graph, get_default_graph
from runhooks.graph.variable import Variable


def create_global_step(graph: Graph | None = None) -> Variable:
    """Create the global step, 0 at first, in ``graph`` (the default graph if None).

    Raises ValueError if there is one already.
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('the graph has a "global_step" already: use get_or_create_global_step()')
    with graph.as_default():
        keys = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP]
        return Variable(0, name="global_step", collections=keys, on_host=True)


def get_global_step(graph: Graph | None = None) -> Variable | None:
    """The global step of ``graph`` (the default graph if None), or None if it has none."""
    found = (graph or get_default_graph()).get_collection(GraphKeys.GLOBAL_STEP)
    return found[0] if found else None


def get_or_create_global_step(graph: Graph | None = None) -> Variable:
    """The global step of ``graph`` (the default graph if None), created if it has none."""
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


def global_step(sess: Any, global_step_tensor: Variable | None = None) -> int:
    """The global step of ``sess``, read on the host without a run.

    ``global_step_tensor`` is what ``tf.compat.v1.train.global_step`` takes; any other integer
    tensor may be given here and is fetched.

    Raises RuntimeError if the graph has no global step.
    """
    if global_step_tensor is not None and global_step_tensor is not get_global_step(sess.graph):
        return int(sess.run(global_step_tensor))
    step = sess.global_step
    if step is None:
        raise RuntimeError("the graph has no global step: call train.create_global_step() first")
    return int(step)
