"""The adapter of JAX."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from runhooks.arrays.array_library import ArrayLibrary, Flat, Packed, copied
from runhooks.arrays.histogram import BUCKETS, histogram_counts
from runhooks.arrays.shards import Array, ArraySource, Shard, ShardedArray, read_block

_KEY, _WEAK = "key", "weak"
_LEAST_BYTES_TO_CUT = 1 << 20
_LEAST_BYTES_TO_SHARE = 1 << 18
_FORMS = (jax.Array, jax.ShapeDtypeStruct)
_WIDE = (np.int64, np.float64, np.complex128)
# The letters are those of NumPy and ``struct`` alike.
_READERS = {np.dtype(letter): struct.Struct(letter).unpack for letter in "?bBhHiIlLqQefd"}


class JaxArrays(ArrayLibrary):
    """Arrays of JAX, random keys, and objects that stand for one (``__jax_array__``)."""

    name = "jax"

    def owns(self, kind: type) -> bool:
        is_array = issubclass(kind, jax.Array | jax.core.Tracer)
        return is_array or hasattr(kind, "__jax_array__")

    def to_numpy(self, array: Any) -> Array:
        return np.asarray(_data(_plain(array)))

    def from_numpy(self, array: Array, like: Any = None) -> Any:
        if like is None:
            return jnp.array(array)
        if not like.is_fully_addressable:
            return self.from_source(array, like)
        if is_key(like):
            return jax.random.wrap_key_data(jnp.array(array), impl=jax.random.key_impl(like))
        if (weak := _weak(array, like)) is not None:
            return weak
        # A committed array no longer goes where the others of a run are.
        return jax.device_put(array.copy(), like.sharding) if like.committed else jnp.array(array)

    def describes(self, kind: type) -> bool:
        return issubclass(kind, jax.ShapeDtypeStruct)

    def place(self, array: Array, like: Any) -> Any:
        committed = getattr(like, "committed", True)  # a description lacks it
        sharding = like.sharding if isinstance(like, _FORMS) and committed else None
        if is_key(like):
            key = jax.random.wrap_key_data(jnp.array(array), impl=_key_impl(like))
            return key if sharding is None else jax.device_put(key, sharding)
        if (weak := _weak(array, like)) is not None:
            return weak
        if sharding is None:
            # device_put shares memory of a CPU; small arrays are copied faster.
            is_large = array.nbytes >= _LEAST_BYTES_TO_SHARE
            return jax.device_put(array) if is_large else jnp.array(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def flatten(self, tree: Any) -> Flat | None:
        if jax.tree_util.all_leaves([tree]):
            return None
        with_paths, structure = jax.tree_util.tree_flatten_with_path(tree)
        keystr = partial(jax.tree_util.keystr, simple=True, separator="/")
        leaves = [(keystr(path), leaf) for path, leaf in with_paths]
        return Flat(leaves, partial(jax.tree.unflatten, structure))

    def check_readable(self, array: Any) -> None:
        array = _plain(array)
        if isinstance(array, jax.core.Tracer):
            raise TypeError(
                f"{array} has no values while JAX traces it: use what the compiled function returns"
            )
        if not (array.is_fully_addressable or array.is_fully_replicated):
            raise TypeError(
                "an array of JAX is spread over several processes: give what "
                "jax.experimental.multihost_utils.process_allgather(array) returns in all of them"
            )

    def snapshot(self, array: Any) -> Any:
        array = _plain(array)
        # A later step may be given the buffer of ``array``.
        return array.copy() if is_key(array) else _copy(array)

    def start_copy(self, array: Any) -> None:
        if isinstance(array, jax.Array):
            array.copy_to_host_async()

    def host_form(self, array: Any) -> tuple[tuple[int, ...], Any]:
        plain = jax.eval_shape(_data, array) if is_key(array) else array
        return plain.shape, plain.dtype

    def to_host(
        self, arrays: Sequence[Any], into: Sequence[Array | None] | None = None
    ) -> list[Array]:
        plain = list(map(_data, arrays))
        host = cast(list[Array], jax.device_get(plain))
        if into is None:
            return host
        # On a CPU they are the buffers: a run to which these are donated would copy them.
        return [
            copied(array, place) if _on_cpu(leaf) else array
            for leaf, array, place in zip(plain, host, into, strict=True)
        ]

    def sharded(self, array: Any) -> ShardedArray | None:
        if not isinstance(array, jax.Array) or array.is_fully_addressable:
            return None
        data = _data(array)
        return ShardedArray(data.shape, np.dtype(data.dtype), tuple(_to_write(data)))

    def from_source(self, source: ArraySource | Array, like: Any) -> Any:
        if like.is_fully_addressable:
            return super().from_source(source, like)
        if is_key(like):
            data = self.from_source(source, jax.random.key_data(like))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(like))
        # A copy: JAX may keep the memory.
        return jax.make_array_from_callback(
            source.shape,
            like.sharding,
            lambda index: np.array(read_block(source, *_block(index, source.shape))),
        )

    def index(self, array: Any) -> Any:
        self.check_readable(array)
        array = _plain(array)
        if array.size == 1 and jnp.issubdtype(array.dtype, jnp.integer):
            return self.snapshot(array.reshape(()))
        return super().index(array)

    def number(self, array: Any) -> Any:
        try:
            # JAX crashes if a deleted array is asked whether it is ready.
            if array.is_deleted():
                return None
            read = _READERS[array.dtype]
            if array.is_ready():
                try:
                    return read(array)[0]
                except BufferError:  # it is on a device
                    pass
            is_one = array.size == 1 and array.is_fully_addressable
        except (AttributeError, KeyError, TypeError, struct.error):
            return None
        return _copy(array) if is_one else None

    def histogram(self, array: Any) -> Any:
        if np.size(array) <= BUCKETS:
            return array
        return histogram_counts(array, jnp, partial(jnp.bincount, length=BUCKETS))

    def sum_of_squares(self, array: Any) -> Any:
        magnitudes = jnp.abs(array)
        wide = jnp.promote_types(magnitudes.dtype, np.float32)
        return jnp.sum(jnp.square(magnitudes.astype(wide)))

    def has_nan(self, array: Any) -> bool:
        return not is_key(array) and super().has_nan(array)

    def text(self, array: Any) -> str:
        return str(array)

    def pack(self, array: Any) -> Packed | None:
        if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
            return None
        if is_key(array):
            data = self.to_numpy(array)
            impl = str(jax.random.key_impl(array))
            return Packed(f"{self.name} {_KEY}", impl, data.shape, data.tobytes())
        packed = super().pack(array)
        if packed is None or not is_weak(array):
            return packed
        return packed._replace(kind=f"{self.name} {_WEAK}")

    def unpack(self, packed: Packed) -> Any:
        if packed.kind == self.name:
            return super().unpack(packed)
        if packed.kind == f"{self.name} {_WEAK}":
            return _made_weak(packed.to_numpy())
        data = packed._replace(dtype="uint32").to_numpy()
        return jax.random.wrap_key_data(jnp.array(data), impl=packed.dtype)


def _to_write(array: jax.Array) -> Iterator[Shard]:
    """The blocks that this process writes; of a large one that several hold, some rows."""
    held: dict[Any, set[int]] = {}
    devices: Any = array.sharding.devices_indices_map(array.shape)
    for device, index in devices.items():
        held.setdefault(_block(index, array.shape), set()).add(device.process_index)
    mine = {_block(it.index, array.shape): it.data for it in array.addressable_shards}
    for number, (block, processes) in enumerate(held.items()):
        (start, shape), holders = block, sorted(processes)
        if block not in mine:
            continue
        place, count = holders.index(jax.process_index()), len(holders)
        if count == 1:
            yield Shard(start, mine[block])
        elif shape and shape[0] >= count and mine[block].nbytes >= _LEAST_BYTES_TO_CUT:
            first, last = (shape[0] * at // count for at in (place, place + 1))
            yield Shard((start[0] + first, *start[1:]), mine[block][first:last])
        elif place == number % count:
            yield Shard(start, mine[block])


def _weak(array: Array, like: Any) -> Any:
    if not is_weak(like) or array.dtype != like.dtype:
        return None
    # What is written into a weakly typed array becomes one.
    weak = jnp.zeros_like(like).at[...].set(array)
    return jax.device_put(weak, like.sharding) if like.committed else weak


def _made_weak(array: Array) -> jax.Array:
    plain = jnp.array(array)
    # A number of Python has 64 bits only where these are enabled.
    with jax.enable_x64(plain.dtype in _WIDE):
        like = jnp.broadcast_to(jnp.asarray(array.dtype.type(0).item()), array.shape)
    weak: jax.Array | None = _weak(array.astype(plain.dtype), like)
    return plain if weak is None else weak


def _block(index: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The start and the shape of the block that the slices ``index`` take out."""
    bounds = [it.indices(size) for it, size in zip(index, shape, strict=True)]
    return tuple(begin for begin, _, _ in bounds), tuple(end - begin for begin, end, _ in bounds)


def is_weak(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not is_key(leaf) and bool(cast(Any, leaf).weak_type)


def is_key(array: Any) -> bool:
    dtype = array.dtype
    return not isinstance(dtype, np.dtype) and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def _data(array: Any) -> Any:
    return jax.random.key_data(array) if is_key(array) else array


def _key_impl(like: Any) -> Any:
    found: list[Any] = []  # a description does not say it
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), like)
    return found[0]


_copy = jax.jit(jnp.copy)  # faster than ``array.copy()`` if small


def _plain(array: Any) -> Any:
    return array if isinstance(array, jax.Array) else jnp.asarray(array)


def _on_cpu(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and any(it.platform == "cpu" for it in leaf.devices())


ARRAYS = JaxArrays()
