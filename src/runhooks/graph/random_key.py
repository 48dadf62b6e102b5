"""``random_key``: randomness that a checkpoint keeps, and that a repeated run repeats."""

from __future__ import annotations

import operator
import zlib
from functools import partial

from runhooks.graph.collections import GraphKeys
from runhooks.graph.graph import own_graph
from runhooks.graph.tensor import Tensor, Variable


def random_key(seed: int = 0, name: str | None = None) -> Tensor:
    """Return a tensor that is a fresh random key in each run that needs it.

    On the jax engine it is a typed key, as from ``jax.random.key``; on the python engine a
    ``numpy.random.Generator``; on the torch engine a ``torch.Generator`` of the default device.

    All functions that take it in one run receive the same key (generators in the same state): give
    each call its own ``random_key``, or split the key. Keys depend on the seed, the name, and how
    many runs have drawn one. Checkpoints keep that count as the variable ``<name>/runs``; a run
    that raises does not count.

    Args:
        seed: An unsigned integer of 32 bits.
        name: The name scope of the key; the tensor is ``"<name>/key:0"``. None: ``"random_key"``.

    Raises:
        TypeError: If ``seed`` is not an integer.
        ValueError: If it does not fit into 32 bits.
    """
    seed = operator.index(seed)
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, got {seed}")
    name = name or "random_key"
    graph = own_graph()
    with graph.name_scope(name) as scope:
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
