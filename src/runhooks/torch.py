"""``rh.torch``: training loops of PyTorch, whose steps change modules and optimizers in place.

``rh.Graph(engine="torch")`` is a graph of functions that change nothing in place, as on the other
engines.
"""

from runhooks.engines import load_engine

load_engine("torch")  # says what to install, if it is not

from runhooks.engines.torch.graph import Graph, graph, step  # noqa: E402

__all__ = ["Graph", "graph", "step"]
