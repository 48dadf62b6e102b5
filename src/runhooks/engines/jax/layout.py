"""``Layout``: what a traced step has computed, and where an executable returns it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Number
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from runhooks.engines.jax.held import hold
from runhooks.graph.plan import Body
from runhooks.graph.tensor import Placement, Tensor

#: An array of up to so many bytes is small: every run of a step returns it.
_SMALL_BYTES = 4096

#: If a step has more small arrays than this, only single numbers among them are returned.
_MOST_SMALL = 64


class Leaf:
    """Stands for an array in the value of a tensor.

    Attributes:
        index: Its place among the arrays that the step returns, those of every run first; or, if
            ``is_new``, among the leaves of the variables' new values.
        is_new: Whether it is a leaf of the new value of a variable.
    """

    __slots__ = ("index", "is_new")

    def __init__(self, index: int = 0, *, is_new: bool = False) -> None:
        self.index = index
        self.is_new = is_new

    def __jax_array__(self) -> NoReturn:
        """What has this attribute is an array wherever values are held; this one is not there."""
        raise TypeError("the array is not computed yet")


class Layout:
    """Where the values of a step's operations are found.

    Traced functions return its number: JAX keeps what they return for as long as the process lives,
    and a layout knows the tensors of its graph.

    Attributes:
        number: Tells the layouts of one step apart: one for each set of shapes it is traced with.
        small: How many arrays every run of the step returns.
        trees: The value of each tensor that can be read, held, with ``Leaf``s in it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.small = 0
        self.trees: dict[Tensor, Any] = {}


def lay_out(
    layout: Layout,
    body: Body,
    values: Mapping[Tensor, Any],
    inputs: Any,
    new: Iterable[Sequence[Any]],
) -> list[Any]:
    """Fill ``layout`` with the values that the operations of ``body`` have in a trace.

    Args:
        layout: An empty one.
        body: The step.
        values: The values of its tensors.
        inputs: The arguments of the traced function.
        new: The leaves of the variables' new values, as they were computed and as they are
            returned.

    Returns:
        The arrays to return, the small ones first, none of which shares a buffer with others.
    """
    found = _Arrays(inputs, new)
    made = [t for op in body.operations for t in op.outputs if t not in body.given]
    for tensor in dict.fromkeys((*body.fetches, *made)):
        is_fetched = tensor in body.fetches
        is_arithmetic = tensor.op.placement is Placement.EITHER

        def leaf_of(
            leaf: Any, is_fetched: bool = is_fetched, is_arithmetic: bool = is_arithmetic
        ) -> Any:
            return found.fetched(leaf) if is_fetched else found.leaf(leaf, large=not is_arithmetic)

        tree = jax.tree.map(leaf_of, hold(values[tensor]))
        if all(isinstance(leaf, Leaf) for leaf in jax.tree.leaves(tree)):
            layout.trees[tensor] = tree
    layout.small, arrays = found.in_order()
    return arrays


class _Arrays:
    """The arrays to return, and the ``Leaf`` of each."""

    def __init__(self, inputs: Any, new: Iterable[Sequence[Any]]) -> None:
        self._inputs = {id(leaf) for leaf in jax.tree.leaves(inputs)}
        self._new = {
            id(leaf): Leaf(i, is_new=True) for leaves in new for i, leaf in enumerate(leaves)
        }
        self._leaves: dict[int, Leaf] = {}
        self._fetched: list[Any] = []
        self._arrays: list[tuple[Leaf, Any]] = []

    def fetched(self, leaf: Any) -> Any:
        """Return the ``Leaf`` of an array that every run returns; ``_NOT_READ`` if it is none."""
        array = self._own(leaf)
        if array is None:
            return _NOT_READ
        self._fetched.append(array)
        found = self._leaves[id(leaf)] = Leaf(len(self._fetched) - 1)
        return found

    def leaf(self, leaf: Any, *, large: bool) -> Any:
        """Return the ``Leaf`` of an array; ``_NOT_READ`` if it is none, or is not returned.

        ``large``: whether it is returned if it is not small. Arithmetic on what calls return is
        quickly done again where it is asked for.
        """
        if id(leaf) in self._leaves:
            return self._leaves[id(leaf)]
        if isinstance(leaf, jax.core.Tracer):
            if id(leaf) in self._new and leaf.ndim:
                return self._new[id(leaf)]
            if not (large or _is_small(leaf)):
                return _NOT_READ
        array = self._own(leaf)
        if array is None:
            return _NOT_READ
        found = self._leaves[id(leaf)] = Leaf()
        self._arrays.append((found, array))
        return found

    def in_order(self) -> tuple[int, list[Any]]:
        """Number the leaves; return how many every run returns, and all arrays in order."""
        is_small: Callable[[Any], bool] = _is_small
        if sum(_is_small(array) for _, array in self._arrays) > _MOST_SMALL:
            is_small = _is_single
        in_order = sorted(self._arrays, key=lambda it: not is_small(it[1]))
        for index, (leaf, _) in enumerate(in_order, len(self._fetched)):
            leaf.index = index
        small = len(self._fetched) + sum(is_small(array) for _, array in in_order)
        return small, [*self._fetched, *[array for _, array in in_order]]

    def _own(self, leaf: Any) -> Any:
        """Return the array in a buffer of its own; None if ``leaf`` is neither array nor number."""
        if isinstance(leaf, jax.core.Tracer):
            is_shared = id(leaf) in self._inputs or id(leaf) in self._new
            return jnp.copy(leaf) if is_shared else leaf
        if isinstance(leaf, Number):
            return jnp.asarray(leaf)
        is_array = isinstance(leaf, np.generic | np.ndarray) and leaf.dtype.kind in "biufcV"
        return jnp.array(leaf) if is_array or isinstance(leaf, jax.Array) else None


def arrays_of(tree: Any, arrays: Sequence[Any], new: Sequence[Any]) -> Any:
    """Return a tree of ``Leaf``s with the arrays in their place."""
    return jax.tree.map(lambda it: new[it.index] if it.is_new else arrays[it.index], tree)


_NOT_READ = object()


def _is_small(leaf: Any) -> bool:
    return bool(leaf.size * leaf.dtype.itemsize <= _SMALL_BYTES)


def _is_single(leaf: Any) -> bool:
    return bool(leaf.size == 1)
