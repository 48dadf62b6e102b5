"""The deferred graph and its parts.

The attribute ``runhooks.graph`` is the function ``rh.graph``.
"""

from runhooks.graph.base import GraphKeys, get_default_graph
from runhooks.graph.build import call, group, inputs, placeholder, placeholder_with_default
from runhooks.graph.epoch_means import epoch_mean, epoch_metrics, reset_each_epoch
from runhooks.graph.graph import Graph, name_scope, random_key
from runhooks.graph.nodes import Operation, Placement, Tensor, Variable

__all__ = [
    "Graph",
    "GraphKeys",
    "Operation",
    "Placement",
    "Tensor",
    "Variable",
    "call",
    "epoch_mean",
    "epoch_metrics",
    "get_default_graph",
    "group",
    "inputs",
    "name_scope",
    "placeholder",
    "placeholder_with_default",
    "random_key",
    "reset_each_epoch",
]
