"""The deferred graph: operations, tensors, variables, names and collections, and how it is pruned.

``nodes`` are its operations, tensors and variables, ``graph`` holds them, and ``build`` adds them;
``step`` makes a graph of a user's own step, ``step_result`` divides what that returns, and
``named_values`` finds everything in it by name. ``source`` is where inputs draw from. ``plan``
finds what a run needs of all that, and ``evaluate`` computes it; ``nest`` has the structures of
fetches. The seam to frameworks: ``base`` is what session layers and hooks ask of any graph and of
its framework, ``engine`` what a framework provides beyond that which computes these graphs.

As an attribute, ``runhooks.graph`` is the function ``rh.graph``, and so is ``g`` after ``import
runhooks.graph as g``. ``from runhooks.graph import Graph`` imports from this package.
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
