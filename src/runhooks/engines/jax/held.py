"""How variables hold values that are more than arrays, and where a traced step returns them.

``hold`` returns a pytree whose leaves are arrays alone; ``release`` returns the value as its user
knows it. flax's nnx and equinox are never imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Number
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from runhooks.graph.nodes import Placement, Tensor
from runhooks.graph.plan import Body

_ARRAYS = (jax.Array, jax.ShapeDtypeStruct, np.ndarray, np.generic)
_NUMBERS = (bool, int, float, complex)


class Static:
    """A part that is no array, which JAX compares and never traces."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)

    def __hash__(self) -> int:
        try:
            return hash(self.value)
        except TypeError:
            return id(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static):
            return NotImplemented
        if self.value is other.value:
            return True
        try:
            return type(self.value) is type(other.value) and bool(self.value == other.value)
        except Exception:  # noqa: BLE001 - the values cannot be compared
            return False


class NnxFrame:
    """All of an object of flax's nnx but its arrays. Each step compares and hashes it."""

    __slots__ = ("_hash", "graphdef", "keys", "structure")

    def __init__(self, graphdef: Any, structure: Any, keys: tuple[Any, ...]) -> None:
        self.graphdef = graphdef
        self.structure = structure
        self.keys = keys
        self._hash = hash((graphdef, structure))

    def __repr__(self) -> str:
        return repr(self.graphdef)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, NnxFrame):
            return self is other
        return bool(self.graphdef == other.graphdef and self.structure == other.structure)


@dataclass(slots=True, eq=False, repr=False)
class NnxObject:
    """A module, an optimizer or another object of flax's nnx."""

    frame: NnxFrame
    arrays: Iterable[Any]

    @classmethod
    def of(cls, value: Any) -> NnxObject:
        graphdef, state = sys.modules["flax.nnx"].split(value)
        flat, structure = jax.tree_util.tree_flatten_with_path(state)
        # Variables of nnx add "value" to their names.
        names = [path_text(path).removesuffix("/value") for path, _ in flat]
        keys = tuple(map(jax.tree_util.DictKey, names))
        return cls(NnxFrame(graphdef, structure, keys), [leaf for _, leaf in flat])

    def whole(self) -> Any:
        state = jax.tree.unflatten(self.frame.structure, self.arrays)
        return sys.modules["flax.nnx"].merge(self.frame.graphdef, state)


def path_text(path: Any) -> str:
    """Return a path of JAX as ``"layers/0/kernel"``."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


jax.tree_util.register_pytree_node(Static, lambda it: ((), it), lambda it, _: it)
jax.tree_util.register_pytree_with_keys(
    NnxObject,
    lambda it: (list(zip(it.frame.keys, it.arrays, strict=True)), it.frame),
    NnxObject,
    lambda it: (it.arrays, it.frame),
)


def is_nnx(value: Any) -> bool:
    """Return whether ``value`` is an object of nnx, which functions change in place."""
    nnx = sys.modules.get("flax.nnx")
    # Before flax 0.11 it was called Object.
    return nnx is not None and isinstance(value, getattr(nnx, "Pytree", nnx.Object))


def check_distinct(values: Mapping[str, Any]) -> None:
    """Raise ValueError if objects of nnx in two of ``values`` share a variable."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return
    owners: dict[int, tuple[str, str]] = {}
    for name, value in values.items():
        for part in filter(is_nnx, jax.tree.leaves(value, is_leaf=is_nnx)):
            for path, variable in nnx.iter_graph(part):
                if not isinstance(variable, nnx.Variable):
                    continue
                where = "/".join(map(str, path))
                other, its_path = owners.setdefault(id(variable), (name, where))
                if other != name:
                    raise ValueError(
                        f"{other!r} and {name!r} share a variable, {its_path!r} of the one and "
                        f"{where!r} of the other: give only the one that holds both"
                    )


def without_variables(value: Any) -> Any:
    """Return ``value`` with arrays in the place of nnx's variables."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return value
    return jax.tree.map(without_variable, value, is_leaf=lambda it: isinstance(it, nnx.Variable))


def without_variable(value: Any) -> Any:
    """Return the array of a variable of nnx; anything else as it is."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(value, nnx.Variable):
        return value
    leaves = jax.tree.leaves(value)
    return leaves[0] if len(leaves) == 1 else value


def hold(value: Any) -> Any:
    """Return ``value`` as a pytree of arrays and numbers; what is held already stays.

    Numbers in modules of equinox are static, as for its own functions.
    """
    return jax.tree.map(_held, value, is_leaf=_is_whole)


def _is_part(it: Any) -> bool:
    return isinstance(it, Static | NnxObject)


def _is_whole(it: Any) -> bool:
    return _is_part(it) or is_nnx(it) or _is_equinox(it)


def _held(it: Any) -> Any:
    if _is_part(it):
        return it
    if is_nnx(it):
        return NnxObject.of(it)
    if _is_equinox(it):
        return jax.tree.map(_static_unless_array, it, is_leaf=is_static)
    return it if isinstance(it, _NUMBERS) else _static_unless_array(it)


_TRACED_OR_STATIC = (*_ARRAYS, Static)


def _static_unless_array(it: Any) -> Any:
    is_array = isinstance(it, _TRACED_OR_STATIC) or hasattr(it, "__jax_array__")
    return it if is_array else Static(it)


def is_static(it: Any) -> bool:
    return isinstance(it, Static)


def _is_equinox(it: Any) -> bool:
    equinox = sys.modules.get("equinox")
    return equinox is not None and isinstance(it, equinox.Module)


def release(value: Any) -> Any:
    """Return what ``hold`` was given, in new containers."""
    return jax.tree.map(_released, value, is_leaf=lambda it: _is_part(it) or is_nnx(it))


def _released(it: Any) -> Any:
    if isinstance(it, Static):
        return it.value
    if isinstance(it, NnxObject):
        return it.whole()
    # As a tree, a module has twice what it shares.
    return NnxObject.of(it).whole() if is_nnx(it) else it


def changed_part(old: Any, new: Any) -> tuple[str, str] | None:
    """Return where two held values differ in what is no array, and how; None if nowhere."""
    before, after = _parts(old), _parts(new)
    for path, part in before.items():
        other = after.get(path, part)
        if isinstance(part, NnxObject) and isinstance(other, NnxObject):
            if part.frame != other.frame and part.frame.keys == other.frame.keys:
                mode = "such as the mode that train() and eval() set: set it before the graph"
                return path, f"has changed in something that is no array, {mode} is made"
        elif isinstance(part, Static) and part != other:
            return path, (
                f"is no array, and stays as it is, {part!r}: the new value has {release(other)!r}; "
                "make it an array if it is to change"
            )
    return None


def _parts(value: Any) -> dict[str, Any]:
    flat = jax.tree_util.tree_leaves_with_path(value, is_leaf=_is_part)
    return {path_text(path): leaf for path, leaf in flat}


def is_held(value: Any) -> bool:
    """Return whether ``release`` would change something in ``value``."""
    return any(map(_is_part, jax.tree.leaves(value, is_leaf=_is_part)))


#: Every run of a step returns its small arrays, of up to so many bytes ...
_SMALL_BYTES = 4096

#: ... or, of more than so many, the single numbers alone.
_MOST_SMALL = 64


@dataclass(slots=True, eq=False)
class Leaf:
    """Stands for an array in the value of a tensor.

    ``index``: its place among the arrays that the step returns; if ``is_new``, among the leaves of
    the variables' new values.
    """

    index: int = 0
    is_new: bool = False

    def __jax_array__(self) -> NoReturn:
        """Makes it an array wherever values are held."""
        raise TypeError("the array is not computed yet")


class Layout:
    """Where the values of a step's operations are found.

    Attributes:
        number: Which layout of the step it is: there is one for each trace. Traced functions return
            it; JAX would keep the layout, and so the graph, for as long as the process lives.
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
    """Fill an empty ``layout`` with the values that the operations of ``body`` have in a trace.

    ``inputs``: the arguments of that; ``new``: the leaves of new values, as computed and as
    returned. Return the arrays to return, the small ones first, each in a buffer of its own.
    """
    found = _Arrays(inputs, new)
    made = [t for op in body.operations for t in op.outputs if t not in body.given]
    for tensor in dict.fromkeys((*body.fetches, *made)):
        leaf_of = found.fetched
        if tensor not in body.fetches:
            # Arithmetic is quickly done again where a large result is asked for.
            large = tensor.op.placement is not Placement.EITHER
            leaf_of = partial(found.leaf, large=large)
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
        self._fetched: list[tuple[Leaf, Any]] = []
        self._others: list[tuple[Leaf, Any]] = []

    def fetched(self, leaf: Any) -> Any:
        """Return the ``Leaf`` of an array that every run returns; ``_NOT_READ`` if it is none."""
        return self._added(leaf, self._fetched)

    def leaf(self, leaf: Any, *, large: bool) -> Any:
        """Return the ``Leaf`` of an array; ``_NOT_READ`` if it is none, or is not returned.

        ``large``: whether it is returned if it is not small.
        """
        if id(leaf) in self._leaves:
            return self._leaves[id(leaf)]
        if isinstance(leaf, jax.core.Tracer):
            if id(leaf) in self._new:
                return self._new[id(leaf)]
            if not (large or _is_small(leaf)):
                return _NOT_READ
        return self._added(leaf, self._others)

    def in_order(self) -> tuple[int, list[Any]]:
        """Number the leaves; return how many every run returns, and all arrays in order."""
        is_small: Callable[[Any], bool] = _is_small
        if sum(_is_small(array) for _, array in self._others) > _MOST_SMALL:
            is_small = _is_single
        in_order = [*self._fetched, *sorted(self._others, key=lambda it: not is_small(it[1]))]
        for index, (leaf, _) in enumerate(in_order):
            leaf.index = index
        small = len(self._fetched) + sum(is_small(array) for _, array in self._others)
        return small, [array for _, array in in_order]

    def _added(self, leaf: Any, to: list[tuple[Leaf, Any]]) -> Any:
        array = self._own(leaf)
        if array is None:
            return _NOT_READ
        found = self._leaves[id(leaf)] = Leaf()
        to.append((found, array))
        return found

    def _own(self, leaf: Any) -> Any:
        """Return the array in a buffer of its own; None if ``leaf`` is neither array nor number."""
        if isinstance(leaf, jax.core.Tracer):
            is_shared = id(leaf) in self._inputs or id(leaf) in self._new
            return jnp.copy(leaf) if is_shared else leaf
        if isinstance(leaf, Number):
            return jnp.asarray(leaf)
        is_array = isinstance(leaf, np.generic | np.ndarray) and leaf.dtype.kind in "biufcV"
        return jnp.array(leaf) if is_array or isinstance(leaf, jax.Array) else None


_NOT_READ = object()


def _is_small(leaf: Any) -> bool:
    return bool(leaf.size * leaf.dtype.itemsize <= _SMALL_BYTES)


def _is_single(leaf: Any) -> bool:
    return bool(leaf.size == 1)
