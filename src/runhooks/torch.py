"""``rh.torch``: training loops of PyTorch, whose steps change modules and optimizers in place.

Functions of ``rh.Graph(engine="torch")`` change nothing in place.
"""

from runhooks.engines import load_engine

load_engine("torch")  # says what to install, if it is not

from runhooks.engines.torch.graph import Graph, graph, step  # noqa: E402

__all__ = ["Graph", "graph", "step"]
