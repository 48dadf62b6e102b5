"""``random_key``: randomness that a checkpoint keeps, and that a repeated run repeats."""

from __future__ import annotations

import operator
import zlib
from functools import partial

from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import get_default_graph
from runhooks.graph.tensor import Tensor
from runhooks.graph.variable import Variable


def random_key(seed: int = 0, name: str | None = None) -> Tensor:
    """A tensor that is a fresh random key in each run that needs it.

    On the jax engine it is a typed key, as ``jax.random.key`` makes; on the python engine a
    ``numpy.random.Generator``, on the torch engine a ``torch.Generator`` of the default device. All
    that take it in one run get the same key, generators in the same state: give each call a
    ``random_key`` of its own, or split it. Keys differ by ``seed``, by name, and by how many runs
    have drawn one, which checkpoints keep as the variable ``<name>/runs``; a run that raises has
    drawn none. The tensor is named ``<name>/key:0``; ``name`` is ``"random_key"`` if None.

    Raises TypeError if ``seed`` is no integer, ValueError if it is not of 32 bits.
    """
    seed = operator.index(seed)
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, got {seed}")
    graph = get_default_graph()
    with graph.name_scope(name or "random_key") as scope:
        keys = [GraphKeys.GLOBAL_VARIABLES]
        runs = Variable(0, name="runs", collections=keys, on_host=True)
        op = graph.add(
            "RandomKey",
            partial(graph.engine.random_key, seed, zlib.crc32(scope.encode())),
            (runs,),
            name="key",
            control_inputs=[runs.assign_add(1, name="count").op],
        )
    return op.outputs[0]
