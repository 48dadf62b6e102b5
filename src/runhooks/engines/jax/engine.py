"""The jax engine: a training step is an executable, to which the buffers of variables are donated.

It is compiled at most twice for each form of its arguments: to return small values, or all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from runhooks.arrays.jax import ARRAYS, is_key, is_weak
from runhooks.arrays.shards import ArraySource
from runhooks.arrays.trees import by_path
from runhooks.engines.conform import (
    Form,
    as_numbers,
    check_leaf,
    check_new_leaf,
    check_structure,
    describe,
    number_as,
)
from runhooks.engines.jax.executables import Once
from runhooks.engines.jax.held import (
    Static,
    changed_part,
    check_distinct,
    hold,
    is_held,
    is_nnx,
    path_text,
    release,
    without_variable,
    without_variables,
)
from runhooks.engines.jax.run import JaxBody
from runhooks.errors import add_note
from runhooks.graph.engine import BoundBody, BoundedCache, Engine
from runhooks.graph.nodes import Variable
from runhooks.graph.plan import Body

_MEMORY = {"allocated_bytes": "bytes_in_use", "peak_allocated_bytes": "peak_bytes_in_use"}

_LOST = ("ABORTED", "UNAVAILABLE")

_NOT_KNOWN = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)

_MOST = int(np.iinfo(np.int32).max)


class JaxEngine(Engine):
    name = "jax"
    title = "JAX"
    runs_one_program = True
    donates = True
    finds_forms = True
    arrays = ARRAYS

    def bind(
        self, body: Body, structures: Mapping[Variable, Any], shared: BoundedCache[Any, Any]
    ) -> BoundBody:
        return JaxBody(self, body, structures, shared)

    def flat(self, value: Any) -> tuple[list[Any], Any]:
        return jax.tree.flatten(hold(value))

    def whole(self, structure: Any, parts: Sequence[Any]) -> Any:
        return jax.tree.unflatten(structure, parts)

    def is_lost(self, error: BaseException) -> bool:
        if isinstance(error, jax.errors.JaxRuntimeError):
            return str(error).startswith(_LOST)
        return super().is_lost(error)

    def constant(self, value: Any) -> Any:
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biufcV"
        return jnp.array(value) if is_array else value

    def check_initial(self, name: str, value: Any) -> None:
        super().check_initial(name, value)
        if not callable(value):
            _check_has_arrays(name, hold(value), value)

    def initial(self, name: str, value: Any) -> Any:
        held = hold(value)
        _check_has_arrays(name, held, value)
        leaves = [_initial_leaf(name, p, leaf) for p, leaf in self.leaves(held).items()]
        # In one call, which compiles nothing.
        here = [leaf for leaf in leaves if not _is_spread(leaf)]
        copies = iter(cast(Any, jax).device_put(here, may_alias=False))
        copied = [jnp.copy(leaf) if _is_spread(leaf) else next(copies) for leaf in leaves]
        return self.with_leaves(held, copied)

    def check_initial_leaf(self, name: str, path: str, leaf: Any) -> None:
        if not isinstance(leaf, jax.Array):
            as_numbers(name, path, leaf)

    def conform(self, name: str, old: Any, new: Any) -> Any:
        old, new = hold(old), hold(new)
        structure, new_structure = _structure(old), _structure(new)
        if structure != new_structure:
            if (changed := changed_part(old, new)) is not None:
                path, how = changed
                raise ValueError(f"variable {describe(name, path)} {how}")
            check_structure(name, self.leaves(old), self.leaves(new))
            raise ValueError(
                f"variable {name!r}: the new value has a different structure, {new_structure}, not "
                f"{structure}"
            )
        return jax.tree_util.tree_map_with_path(
            lambda path, before, after: _conform_leaf(name, path_text(path), before, after),
            old,
            new,
        )

    def add(self, name: str, old: Any, delta: Any) -> Any:
        delta = hold(delta)
        if _structure(old) == _structure(delta):
            return jax.tree.map(jnp.add, old, delta)
        return jax.tree.map(lambda leaf: leaf + delta, old)

    def wide(self, leaf: Any) -> Any:
        is_short = jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize < 4
        return leaf.astype(jnp.float32) if is_short else jnp.copy(leaf)

    def average(self, old: Any, new: Any, weight: Any) -> Any:
        if not jnp.issubdtype(old.dtype, jnp.inexact):
            return new
        new, weight = jnp.asarray(new, old.dtype), jnp.asarray(weight, old.dtype)
        # The form that rounds less.
        moved = jnp.where(
            weight < 0.5, old + weight * (new - old), new - (1 - weight) * (new - old)
        )
        return jnp.where(weight == 1, new, moved)

    def as_like(self, old: Any, new: Any) -> Any:
        if is_key(old):
            return new
        new = new.astype(old.dtype)
        return jax.device_put(new, old.sharding) if old.committed else new

    def new_sums(self) -> Any:
        return jnp.zeros(4, jnp.float32)

    def add_to_sums(self, name: str, sums: Any, value: Any, weight: Any) -> Any:
        for what, it in ((repr(name), value), (f"the weight of {name!r}", weight)):
            if jnp.size(it) != 1:
                shape = jnp.shape(it)
                raise ValueError(f"{what} must be a single number, got an array of shape {shape}")
        if jnp.iscomplexobj(value):
            raise TypeError(f"{name!r} must be a real number, got {jnp.result_type(value)}")
        count = jnp.reshape(jnp.asarray(weight, sums.dtype), ())
        # Without examples, the value may be NaN.
        added = jnp.where(count == 0, 0, jnp.reshape(value, ()).astype(sums.dtype) * count)
        total, lost, weights, lacking = sums
        total, lost = _compensated(total, lost, added)
        weights, lacking = _compensated(weights, lacking, count)
        return jnp.stack([total, lost, weights, lacking])

    def integer(self, value: int) -> Any:
        if cast(Any, jax.config).jax_enable_x64:
            return np.int64(value)
        if value > _MOST:  # NumPy 1 would let it wrap
            raise OverflowError(f"the counter {value} exceeds int32: set jax_enable_x64")
        return np.int32(value)

    def random_key(self, seed: int, stream: int, runs: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(np.uint32(seed)), np.uint32(stream))
        return jax.random.fold_in(key, runs)

    def wait(self, values: Sequence[Any]) -> None:
        cast(Any, jax).block_until_ready(values)

    def leaves(self, value: Any) -> dict[str, Any]:
        held = hold(value)
        if isinstance(held, Static) and held is not value:
            return {"": value}
        with_paths = jax.tree_util.tree_leaves_with_path(without_variables(held))
        return by_path((path_text(path), leaf) for path, leaf in with_paths)

    def with_leaves(self, value: Any, leaves: Sequence[Any]) -> Any:
        return jax.tree.unflatten(_structure(hold(value)), leaves)

    def children(self, value: Any) -> dict[str, Any]:
        value = without_variable(release(hold(value)))
        flat, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda it: it is not value)
        children = {path_text(path): without_variable(child) for path, child in flat if path}
        # Objects of nnx keep records of their own under such keys.
        return {key: it for key, it in children.items() if not key.startswith("_pytree__")}

    def note_call(self, error: Exception, step: str, args: Mapping[str, Any]) -> None:
        says_so = any(text in str(error) for text in ("Non-hashable static", "concrete value"))
        if says_so or isinstance(error, _NOT_KNOWN):
            numbers = [name for name, it in args.items() if getattr(it, "shape", None) == ()]
            bound = ", ".join(f"{name}=..." for name in numbers or ["name"])
            add_note(
                error,
                "the arguments of a step are traced, as under jax.jit: bind one that must be known "
                f"before, such as a size or a flag, with functools.partial({step}, {bound})",
            )

    def check_distinct(self, values: Mapping[str, Any]) -> None:
        check_distinct(values)

    def objects_of(self, value: Any) -> Sequence[Any]:
        leaves = jax.tree.leaves(value, is_leaf=is_nnx)
        return leaves if all(map(is_nnx, leaves)) else ()

    def once(self, fn: Callable[..., Any], name: str) -> Callable[..., Any]:
        return Once(fn, name)

    def form(self, fn: Callable[..., Any], *args: Any) -> Any:
        return release(jax.eval_shape(lambda *args: hold(fn(*release(args))), *hold(args)))

    def fits_saved(self, leaf: Any, dtype: np.dtype[Any]) -> bool:
        if is_weak(leaf):
            return bool(jnp.result_type(leaf, dtype) == dtype)
        return super().fits_saved(leaf, dtype)

    def from_source(self, leaf: Any, source: ArraySource) -> Any:
        return self.arrays.from_source(source, leaf)

    def memory(self) -> dict[str, int]:
        return {
            f"{device.platform}:{device.id}/{name}": stats[key]
            for device in jax.local_devices()
            for stats in [device.memory_stats() or {}]
            for name, key in _MEMORY.items()
            if key in stats
        }

    def details(self) -> dict[str, str]:
        kinds = [f"{it.platform}:{it.id} {it.device_kind}" for it in jax.local_devices()]
        return {"devices": ", ".join(kinds)}

    def start_profile(self, folder: Path, step: int) -> Callable[[], Path]:
        profiles = folder / "plugins" / "profile"
        before = _names(profiles)
        jax.profiler.start_trace(folder, create_perfetto_trace=True)

        def stop() -> Path:
            cast(Any, jax.profiler).stop_trace()
            written = profiles / max(_names(profiles) - before)
            # JAX names it by the second; there may be two in one.
            with suppress(OSError):  # it exists from before a recovery
                written = written.rename(profiles / f"step-{step}")
            return written

        return stop


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _check_has_arrays(name: str, held: Any, value: Any) -> None:
    if is_held(held) and not jax.tree.leaves(held):
        raise TypeError(f"variable {name!r} must hold arrays or numbers, got {value!r}")


def _is_spread(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not leaf.is_fully_addressable


def _initial_leaf(name: str, path: str, leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return leaf
    array = as_numbers(name, path, leaf)
    is_number = isinstance(leaf, int | float | complex) and not isinstance(leaf, np.generic)
    return leaf if is_number else array.copy()  # device_put would share its memory


def _conform_leaf(name: str, path: str, old: Any, new: Any) -> Any:
    if is_key(old):
        check_leaf(name, path, _form(old), _form(new))
        return new
    if isinstance(new, int) or (isinstance(new, float) and not old.weak_type):
        new = number_as(name, path, new, old.dtype)
    array = jnp.asarray(new)
    if old.weak_type and array.shape == old.shape and jnp.result_type(old, array) == array.dtype:
        # As in jax.lax.scan, it becomes what the step makes of it.
        is_same = array.weak_type and array.dtype == old.dtype
        return array if is_same else jax.lax.convert_element_type(array, array.dtype)
    if not (array.weak_type and array.shape == old.shape and _takes(old, array)):
        check_new_leaf(name, path, _form(old), _form(array))
    # With a weak dtype, the next run would be compiled again.
    return jax.lax.convert_element_type(array, old.dtype) if array is not old else old


def _form(array: Any) -> Form:
    return array.shape, array.dtype


def _structure(value: Any) -> Any:
    return jax.tree.structure(value)


def _takes(old: Any, number: Any) -> bool:
    fits = jnp.promote_types(old.dtype, number.dtype) == old.dtype  # or raises
    return bool(fits or jnp.issubdtype(number.dtype, jnp.integer))


ENGINE = JaxEngine()


def _compensated(total: Any, lost: Any, added: Any) -> tuple[Any, Any]:
    """Return ``total + added``, and ``lost`` with what that lacks by rounding; after Neumaier."""
    new = total + added
    is_larger = jnp.abs(total) >= jnp.abs(added)
    lost += jnp.where(is_larger, (total - new) + added, (added - new) + total)
    lost = jnp.where(jnp.isfinite(new), lost, 0)  # infinity lacks nothing
    moved = new + lost
    return moved, jnp.where(jnp.isfinite(moved), lost - (moved - new), 0)
