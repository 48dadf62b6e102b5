"""The deferred graph: operations, tensors, variables, names and collections, and how it is pruned.

``tensor`` has its nodes, ``graph`` holds them, ``build`` and ``random_key`` add them; ``source`` is
where inputs draw from. ``plan`` finds what a run needs of all that, and ``evaluate`` computes it.
The seam to frameworks: ``framework`` is what each provides, ``engine`` what one that computes these
graphs provides beyond that, and ``base`` what session layers and hooks ask of any graph.

As an attribute, ``runhooks.graph`` is the function ``rh.graph``, and so is ``g`` after ``import
runhooks.graph as g``. ``from runhooks.graph import Graph`` imports from this package.
"""

from runhooks.graph.base import GraphKeys, get_default_graph
from runhooks.graph.build import call, group, inputs, placeholder
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
    "get_default_graph",
    "group",
    "inputs",
    "name_scope",
    "placeholder",
    "random_key",
]
