"""How variables hold values that are more than arrays, and where a traced step returns them.

This module imports neither flax's nnx nor equinox.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True, eq=False, repr=False)
class Static:
    """A part that is no array, which JAX compares and never traces."""

    value: Any

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
        except Exception:  # noqa: BLE001 - they cannot be compared
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
    nnx = sys.modules.get("flax.nnx")
    # Before flax 0.11 it was called Object.
    return nnx is not None and isinstance(value, getattr(nnx, "Pytree", nnx.Object))


def check_distinct(values: Mapping[str, Any]) -> None:
    """Raise ValueError if objects of nnx in two of ``values`` share a variable."""
    if "flax.nnx" not in sys.modules:
        return
    owners: dict[int, tuple[str, str]] = {}
    for name, value in values.items():
        for part in filter(is_nnx, jax.tree.leaves(value, is_leaf=is_nnx)):
            for path, variable in sys.modules["flax.nnx"].iter_graph(part):
                if not _is_variable(variable):
                    continue
                where = "/".join(map(str, path))
                other, its_path = owners.setdefault(id(variable), (name, where))
                if other != name:
                    raise ValueError(
                        f"{other!r} and {name!r} share a variable, {its_path!r} of the one and "
                        f"{where!r} of the other: give only the one that holds both"
                    )


def without_variables(value: Any) -> Any:
    if "flax.nnx" not in sys.modules:
        return value
    return jax.tree.map(without_variable, value, is_leaf=_is_variable)


def without_variable(value: Any) -> Any:
    """Return the array of a variable of nnx; anything else as it is."""
    leaves = jax.tree.leaves(value) if _is_variable(value) else ()
    return leaves[0] if len(leaves) == 1 else value


def _is_variable(value: Any) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Variable)


def hold(value: Any) -> Any:
    """Return ``value`` as a pytree of arrays and numbers; what is held already stays."""
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
    if _is_equinox(it):  # its numbers are static, as for its own functions
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
    if is_nnx(it):  # as a tree, it has twice what it shares
        it = NnxObject.of(it)
    return it.whole() if isinstance(it, NnxObject) else it


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
    """Stands for the array at ``index`` of those that the step returns, or of the new leaves."""

    index: int = 0
    is_new: bool = False

    def __jax_array__(self) -> NoReturn:  # makes it an array where values are held
        raise TypeError("the array is not computed yet")


@dataclass(eq=False)
class Layout:
    """Where the values of a step's operations are found.

    Traced functions return ``number``: JAX would keep the layout, and so the graph, for good. Every
    run returns the first ``small`` arrays. ``trees``: what can be read, with ``Leaf``s in it.
    """

    number: int
    small: int = 0
    trees: dict[Tensor, Any] = field(default_factory=dict)


def lay_out(
    layout: Layout,
    body: Body,
    values: Mapping[Tensor, Any],
    inputs: Any,
    new: Iterable[Sequence[Any]],
) -> list[Any]:
    """Fill ``layout``; return the arrays, the small ones first, each in a buffer of its own.

    ``new``: the leaves of new values, as computed and as returned.
    """
    of_new = {id(leaf): Leaf(i, is_new=True) for leaves in new for i, leaf in enumerate(leaves)}
    taken = {*of_new, *map(id, jax.tree.leaves(inputs))}
    known: dict[int, Leaf] = {}
    fetched: list[tuple[Leaf, Any]] = []
    others: list[tuple[Leaf, Any]] = []

    def added(leaf: Any, to: list[tuple[Leaf, Any]]) -> Any:
        array = _own(leaf, taken)
        if array is None:
            return leaf
        found = known[id(leaf)] = Leaf()
        to.append((found, array))
        return found

    def found_or_added(leaf: Any, large: bool) -> Any:
        is_traced = isinstance(leaf, jax.core.Tracer)
        found = known.get(id(leaf)) or (of_new.get(id(leaf)) if is_traced else None)
        if found is not None or (is_traced and not (large or _is_small(leaf))):
            return found or leaf
        return added(leaf, others)

    made = [t for op in body.operations for t in op.outputs if t not in body.given]
    for tensor in dict.fromkeys((*body.fetches, *made)):
        leaf_of = partial(added, to=fetched)
        if tensor not in body.fetches:
            # Arithmetic is quickly done again where a large result is asked for.
            large = tensor.op.placement is not Placement.EITHER
            leaf_of = partial(found_or_added, large=large)
        tree = jax.tree.map(leaf_of, hold(values[tensor]))
        if all(isinstance(leaf, Leaf) for leaf in jax.tree.leaves(tree)):
            layout.trees[tensor] = tree
    small = _small_first(others)
    layout.small = len(fetched) + small
    in_order = [*fetched, *others]
    for index, (leaf, _) in enumerate(in_order):
        leaf.index = index
    return [array for _, array in in_order]


def _small_first(leaves: list[tuple[Leaf, Any]]) -> int:
    """Sort ``leaves``; return how many every run returns."""
    is_small: Callable[[Any], bool] = _is_small
    if sum(_is_small(array) for _, array in leaves) > _MOST_SMALL:
        is_small = _is_single
    leaves.sort(key=lambda it: not is_small(it[1]))
    return sum(is_small(array) for _, array in leaves)


def _own(leaf: Any, taken: Collection[int]) -> Any:
    """Return an array, or a number as one, in a buffer of its own; None if it is neither."""
    if isinstance(leaf, jax.core.Tracer):
        return jnp.copy(leaf) if id(leaf) in taken else leaf
    is_of_numpy = isinstance(leaf, np.generic | np.ndarray) and leaf.dtype.kind in "biufcV"
    return jnp.array(leaf) if is_of_numpy or isinstance(leaf, Number | jax.Array) else None


def _is_small(leaf: Any) -> bool:
    return bool(leaf.size * leaf.dtype.itemsize <= _SMALL_BYTES)


def _is_single(leaf: Any) -> bool:
    return bool(leaf.size == 1)
