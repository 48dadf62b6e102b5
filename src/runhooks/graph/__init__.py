"""The deferred graph: operations, tensors, variables, names and collections, and how it is pruned.

``tensor`` and ``variable`` are its nodes, ``graph`` holds them, ``build`` and ``random_key`` make
them, and ``source`` is what inputs draw from; ``plan`` says what a run needs of all that, and
``evaluate`` computes it.
"""

from runhooks.graph.build import call, group, inputs, placeholder
from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import Graph, get_default_graph, name_scope
from runhooks.graph.random_key import random_key
from runhooks.graph.tensor import Operation, Placement, Tensor
from runhooks.graph.variable import Variable

__all__ = [
    "Graph",
    "GraphKeys",
    "Operation",
    "Placement",
    "Tensor",
    "Variable",
    "call",
    "get_default_graph",
    "group",
    "inputs",
    "name_scope",
    "placeholder",
    "random_key",
]
