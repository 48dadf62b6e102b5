"""``TracedBody``: the operations of a body as a function that JAX traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from runhooks.engines.jax.held import release
from runhooks.graph import nest
from runhooks.graph.engine import Engine
from runhooks.graph.evaluate import evaluate
from runhooks.graph.plan import Body
from runhooks.graph.tensor import Operation, Tensor, Variable


class Evaluated(NamedTuple):
    """What tracing a body gives: values by tensor, and the new values of variables, held."""

    values: dict[Tensor, Any]
    new: dict[Variable, Any]


class TracedBody:
    """The operations of ``body`` as a function of the values of ``reads`` and ``body.given``.

    Arrays among a call's arguments are arguments of the function too. Inside it they would be
    constants: compiled with it, slowly, and no tracers to the function that takes them.
    """

    def __init__(self, engine: Engine, body: Body) -> None:
        self._engine = engine
        self.body = body
        self.reads = (*body.assigned, *body.kept)
        self._constants = {id(leaf): leaf for op in body.operations for leaf in _arrays(op.args)}
        self.placed = list(self._constants.values())

    def args(self, variables: Mapping[Variable, Any], given: Sequence[Any]) -> list[Any]:
        """Return the arguments of the function."""
        return [*[variables[v] for v in self.reads], *given, *self.placed]

    def evaluate(self, args: Sequence[Any]) -> Evaluated:
        """Compute all operations."""
        end = len(self.reads)
        given_end = end + len(self.body.given)
        variables = dict(zip(self.reads, args[:end], strict=True))
        values: dict[Tensor, Any] = dict(zip(self.reads, args[:end], strict=True))
        values.update(zip(self.body.given, args[end:given_end], strict=True))
        traced = dict(zip(self._constants, args[given_end:], strict=True))

        def read_args(op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
            return _own_args(op, values, traced)

        operations = self.body.operations
        new = evaluate(operations, values, variables, self._engine.conform, read_args)
        return Evaluated(values, new)


def own_buffers(inputs: Sequence[Any], old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """Return the new values of variables, each array in a buffer of its own.

    The next run is donated these buffers. So they may be shared neither with feeds or fetched
    values, nor with other variables; only with the variable's own old value.
    """
    taken = {id(leaf) for leaf in jax.tree.leaves(inputs)}

    def own(leaf: Any, before: Any) -> Any:
        if leaf is not before and (id(leaf) in taken or not isinstance(leaf, jax.core.Tracer)):
            leaf = jnp.copy(leaf)
        taken.add(id(leaf))
        return leaf

    return [jax.tree.map(own, value, before) for value, before in zip(new, old, strict=True)]


def copied(values: Sequence[Any], taken: Any) -> list[Any]:
    """Return ``values`` with copies of those arrays that are among the leaves of ``taken``."""
    ids = {id(leaf) for leaf in jax.tree.leaves(taken)}
    own = jax.tree.map(lambda leaf: jnp.copy(leaf) if id(leaf) in ids else leaf, list(values))
    return list(own)


def _own_args(
    op: Operation, values: Mapping[Tensor, Any], traced: Mapping[int, Any]
) -> tuple[Any, ...]:
    """Return the arguments of ``op``, in containers that its function may change.

    ``traced``: what stands in the place of constants, by their id.
    """
    args = [
        nest.map_leaves(lambda leaf: traced.get(id(leaf), leaf), arg) if has_arrays(arg) else arg
        for arg in op.args
    ]
    return nest.args_reader(tuple(args))({it: release(values[it]) for it in op.inputs})


def has_arrays(args: Any) -> bool:
    """Return whether there is an array of JAX among ``args``."""
    return bool(_arrays(args))


def _arrays(args: Any) -> list[jax.Array]:
    return [leaf for leaf in nest.leaves(args) if isinstance(leaf, jax.Array)]
