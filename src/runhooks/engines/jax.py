"""The jax engine: what a run asks of the graph is one executable with donated variable buffers.

Values fetched stay on the device until somebody reads them, and survive later runs: whatever would
share its buffer with a variable is copied inside the executable. Each combination of fetches, such
as the hooks of a step ask for, is an executable of its own, compiled when it is first needed:
cadences that are multiples of each other make few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from runhooks.engines.conform import by_path, check_leaf, check_structure, describe, number_as
from runhooks.engines.engine import Compiled
from runhooks.engines.host_copy import copied
from runhooks.engines.jax_profile import start_jax_profile
from runhooks.errors import AbortedError, UnavailableError
from runhooks.graph import nest
from runhooks.graph.evaluate import evaluate
from runhooks.graph.plan import Body
from runhooks.graph.tensor import Operation, Tensor
from runhooks.graph.variable import Variable
from runhooks.summary.kinds.histogram import BUCKETS, histogram_counts

_MEMORY = {"allocated_bytes": "bytes_in_use", "peak_allocated_bytes": "peak_bytes_in_use"}

_LOST = ("ABORTED", "UNAVAILABLE")


class JaxEngine:
    """Compiles a body with ``jax.jit``; pytrees are JAX's, registered classes included."""

    name = "jax"

    def compile(self, body: Body) -> Compiled:
        reads = (*body.assigned, *body.kept)
        reads_end, assigned_end = len(reads), len(body.assigned)
        given_end = reads_end + len(body.given)
        # Arrays among a call's arguments are arguments of the executable too. Inside it they would
        # be constants: compiled with it, slowly, and no tracers to the function that takes them.
        constants = {id(leaf): leaf for op in body.operations for leaf in _arrays(op.args)}

        def step(*args: Any) -> list[Any]:
            variables = dict(zip(reads, args[:reads_end], strict=True))
            # A function may change the containers it is handed, which must not reach `variables`.
            copies = [jax.tree.map(lambda leaf: leaf, value) for value in args[:reads_end]]
            values: dict[Tensor, Any] = dict(zip(reads, copies, strict=True))
            values.update(zip(body.given, args[reads_end:given_end], strict=True))
            traced = dict(zip(constants, args[given_end:], strict=True))

            def read_args(op: Operation, values: Mapping[Tensor, Any]) -> tuple[Any, ...]:
                args = [
                    nest.map_leaves(lambda leaf: traced.get(id(leaf), leaf), arg)
                    if _arrays(arg)
                    else arg
                    for arg in op.args
                ]
                return nest.args_reader(tuple(args))(values)

            new = evaluate(body.operations, values, variables, self.conform, read_args)
            return _apart(
                inputs=args,
                old=args[:assigned_end],
                new=[new[v] for v in body.assigned],
                fetched=[values[t] for t in body.fetches],
            )

        jitted = jax.jit(step, donate_argnums=tuple(range(assigned_end)) if body.donate else ())

        placed = list(constants.values())

        def run(variables: Mapping[Variable, Any], given: Sequence[Any]) -> Any:
            if placed:
                given = [*given, *placed]
            try:
                return jitted(*[variables[v] for v in reads], *given)
            except Exception as error:
                if _any_deleted(variables[v] for v in body.assigned):
                    error.add_note(
                        "the device failed after it had taken over the variables' buffers: "
                        "their values are gone, restore them from a checkpoint"
                    )
                raise

        return run

    def is_lost(self, error: BaseException) -> bool:
        if isinstance(error, jax.errors.JaxRuntimeError):
            return str(error).startswith(_LOST)
        return isinstance(error, AbortedError | UnavailableError)

    def constant(self, value: Any) -> Any:
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biufcV"
        return jnp.array(value) if is_array else value

    def initial(self, name: str, value: Any) -> Any:
        copies = [_initial_leaf(name, p, leaf) for p, leaf in self.leaves(value).items()]
        return self.with_leaves(value, copies)

    def conform(self, name: str, old: Any, new: Any) -> Any:
        structure, new_structure = _structure(old), _structure(new)
        if structure != new_structure:
            check_structure(name, self.leaves(old), self.leaves(new))
            raise ValueError(
                f"variable {name!r} keeps the structure it was created with, {structure}: "
                f"the new value has {new_structure}"
            )
        return jax.tree_util.tree_map_with_path(
            lambda path, before, after: _conform_leaf(name, _text(path), before, after), old, new
        )

    def add(self, old: Any, delta: Any) -> Any:
        if _structure(old) == _structure(delta):
            return jax.tree.map(jnp.add, old, delta)
        return jax.tree.map(lambda leaf: leaf + delta, old)

    def integer(self, value: int) -> Any:
        return np.int64(value) if cast(Any, jax.config).jax_enable_x64 else np.int32(value)

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(np.uint32(seed)), np.uint32(stream))
        return jax.random.fold_in(key, runs)

    def wait(self, values: Sequence[Any]) -> None:
        cast(Any, jax).block_until_ready(values)

    def leaves(self, value: Any) -> dict[str, Any]:
        with_paths = jax.tree_util.tree_leaves_with_path(value)
        return by_path((_text(path), leaf) for path, leaf in with_paths)

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        return jax.tree.unflatten(_structure(value), leaves)

    def to_host(
        self, leaves: Sequence[Any], into: Sequence[np.ndarray[Any, Any] | None] | None = None
    ) -> list[np.ndarray[Any, Any]]:
        plain = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in leaves]
        arrays = cast(list[np.ndarray[Any, Any]], jax.device_get(plain))
        if into is None:
            return arrays
        # On a CPU they are the very buffers. As long as they are held, a run to which they are
        # donated copies them, far slower than they are copied here.
        return [
            copied(array, place) if _on_cpu(leaf) else array
            for leaf, array, place in zip(plain, arrays, into, strict=True)
        ]

    def host_form(self, leaf: Any) -> tuple[tuple[int, ...], Any]:
        plain = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        return plain.shape, plain.dtype

    def from_host(self, leaf: Any, array: np.ndarray[Any, Any]) -> Any:
        if _is_key(leaf):
            return jax.random.wrap_key_data(jnp.array(array), impl=jax.random.key_impl(leaf))
        # Put on a device by name, an array would no longer go where the others of a run are.
        return jax.device_put(array.copy(), leaf.sharding) if leaf.committed else jnp.array(array)

    def histogram(self, values: Any) -> Any:
        # An array with fewer numbers than there are counts is the smaller thing to hand over.
        if np.size(values) <= BUCKETS:
            return values
        return histogram_counts(values, jnp, partial(jnp.bincount, length=BUCKETS))

    def memory(self) -> dict[str, int]:
        stats = {f"{it.platform}:{it.id}": it.memory_stats() or {} for it in jax.local_devices()}
        return {
            f"{device}/{name}": its_stats[key]
            for device, its_stats in stats.items()
            for name, key in _MEMORY.items()
            if key in its_stats
        }

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        return start_jax_profile(folder, step)


def _apart(
    *, inputs: Sequence[Any], old: Sequence[Any], new: list[Any], fetched: list[Any]
) -> list[Any]:
    """Give every new and every fetched array a buffer of its own.

    A new value's buffer is donated by the next run. So it must be neither what the caller fed, nor
    a value fetched, nor another variable's; only to its own old value may it be equal.
    """
    taken = {id(leaf) for leaf in jax.tree.leaves(inputs)}

    def own(leaf: Any, before: Any = None) -> Any:
        if leaf is not before and (id(leaf) in taken or not isinstance(leaf, jax.core.Tracer)):
            leaf = jnp.copy(leaf)
        taken.add(id(leaf))
        return leaf

    owned = [jax.tree.map(own, value, before) for value, before in zip(new, old, strict=True)]
    apart = jax.tree.map(lambda leaf: jnp.copy(leaf) if id(leaf) in taken else leaf, fetched)
    return [*owned, *apart]


def _arrays(args: Any) -> list[jax.Array]:
    return [leaf for leaf in nest.leaves(args) if isinstance(leaf, jax.Array)]


def _any_deleted(values: Iterable[Any]) -> bool:
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(list(values)))


def _initial_leaf(name: str, path: str, leaf: Any) -> jax.Array:
    if isinstance(leaf, jax.Array):
        copy = jnp.copy(leaf)
        return copy if _is_key(leaf) else jax.lax.convert_element_type(copy, leaf.dtype)
    array = np.asarray(leaf)
    if array.dtype.kind in "OSUMm":
        raise TypeError(
            f"variable {describe(name, path)} must hold arrays or numbers, "
            f"got {type(leaf).__name__}"
        )
    return jnp.array(array)


def _conform_leaf(name: str, path: str, old: Any, new: Any) -> Any:
    if _is_key(old):
        check_leaf(name, path, old, new)
        return new
    if isinstance(new, int | float):
        new = number_as(name, path, new, old.dtype)
    array = jnp.asarray(new)
    if not (array.weak_type and array.shape == old.shape and _takes(old, array)):
        check_leaf(name, path, old, array)
    # A weak dtype would be another signature at the next run, and compile it a second time.
    return jax.lax.convert_element_type(array, old.dtype) if array is not old else old


def _takes(old: Any, number: Any) -> bool:
    return bool(jnp.promote_types(old.dtype, number.dtype) == old.dtype) or bool(
        jnp.issubdtype(number.dtype, jnp.integer)
    )


def _on_cpu(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and any(it.platform == "cpu" for it in leaf.devices())


def _structure(value: Any) -> Any:
    return jax.tree.structure(value)


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _text(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


ENGINE = JaxEngine()
