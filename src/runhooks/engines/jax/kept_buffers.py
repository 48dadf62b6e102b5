"""``JaxKeptBuffers``: steps that leave the buffers of variables to a checkpoint being written.

A step is given the buffers of the variables that it assigns, and writes the new values into them.
While a checkpoint is written from these buffers, the step is compiled once more, to write into
other memory. On a CPU that is the memory that the checkpoint before was written from: new memory
would have to be found page by page, which takes far longer than to copy the state. Elsewhere the
values are copied to the host beside the steps.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from runhooks import clock
from runhooks.arrays.jax import ARRAYS, is_key, on_cpu
from runhooks.errors import described
from runhooks.graph.engine import HostValues, KeptBuffers
from runhooks.graph.nodes import Variable


class PendingArray:
    """An array of a device, or of several, on its way to the host."""

    def __init__(self, array: jax.Array) -> None:
        self.shape = array.shape
        self.dtype = np.dtype(array.dtype)
        self._shards = [(it.index, it.data) for it in array.addressable_shards if not it.replica_id]
        self._host: np.ndarray[Any, Any] | None = None
        self._lock = threading.Lock()
        for _, data in self._shards:
            data.copy_to_host_async()

    def read(self) -> None:
        """Wait for its values, and need the device no more."""
        with self._lock:
            if self._host is None:
                self._host, self._shards = self._gathered(), []

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        # Whoever writes it reads it once. Not to hold the result saves memory.
        with self._lock:
            host = self._gathered() if self._host is None else self._host
        return host if dtype is None else host.astype(dtype, copy=False)

    def _gathered(self) -> np.ndarray[Any, Any]:
        if len(self._shards) == 1:
            return np.asarray(self._shards[0][1])
        whole = np.empty(self.shape, self.dtype)
        for index, data in self._shards:
            whole[index] = np.asarray(data)
        return whole


def on_host(leaf: Any) -> Any:
    """Return ``leaf`` as an array of NumPy, or as a ``PendingArray`` if it is on a device."""
    if not isinstance(leaf, jax.Array):
        return np.asarray(leaf)
    data = jax.random.key_data(leaf) if is_key(leaf) else leaf
    return np.asarray(data) if on_cpu(data) and len(data.devices()) == 1 else PendingArray(data)


_log = logging.getLogger("runhooks")

#: Smaller arrays are put where the allocator has room for them.
_LEAST_SPARE_BYTES = 1 << 16


class Spare(NamedTuple):
    """The form of an array whose memory a step may write into."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: Any


class LeavingStep:
    """A step compiled to leave the buffers of its arguments alone.

    Args:
        step: The jitted step.
        assigned: The variables whose values are its first arguments.
        args: Arguments to compile it for.
    """

    def __init__(self, step: Any, assigned: Sequence[Variable], args: Sequence[Any]) -> None:
        self.spares = {
            variable: [_form(leaf) for leaf in jax.tree.leaves(value) if takes_spare(leaf)]
            for variable, value in zip(assigned, args, strict=False)
        }
        self.is_ready = False
        self.has_failed = False
        count = len(assigned)

        def leaving(spare: Any, *args: Any) -> Any:
            results = step(*args)
            # Without the copies JAX would return an array that is not changed as it came in. XLA
            # makes none where the array is new.
            return [*jax.tree.map(jnp.copy, results[:count]), *results[count:]]

        self._leaving: Any = jax.jit(leaving, donate_argnums=0, keep_unused=True)
        own = [leaf for leaf in jax.tree.leaves(args[:count]) if takes_spare(leaf)]
        # In this thread: JAX keeps settings for each.
        self._lowered: Any = self._leaving.lower(own, *args)

    def compile(self) -> None:
        """Compile it, in any thread."""
        start = clock.monotonic()
        try:
            self._lowered.compile()
        except Exception as error:  # noqa: BLE001 - whatever it is: the state can be copied
            _log.warning(
                "asynchronous saves go on copying the state, since the step could not be compiled "
                "so as to leave it alone: %s",
                described(error),
            )
            self.has_failed = True
            return
        self._lowered = None
        secs = clock.monotonic() - start
        _log.info("compiled the step for asynchronous saves in %.2f seconds", secs)
        self.is_ready = True

    def __call__(self, spare: Sequence[Any], args: Sequence[Any]) -> Any:
        return self._leaving(spare, *args)


def takes_spare(leaf: Any) -> bool:
    """Return whether a step may be given the memory of an array like ``leaf`` to write into."""
    is_large = isinstance(leaf, jax.Array) and leaf.nbytes >= _LEAST_SPARE_BYTES
    return is_large and not is_key(leaf) and on_cpu(leaf)


def _form(leaf: Any) -> Spare:
    return Spare(leaf.shape, leaf.dtype, leaf.sharding if leaf.committed else None)


#: Less is copied in a few milliseconds, which is not worth a compilation.
_LEAST_BYTES = 64 << 20
#: Of one graph; those that a loop asks for are few.
_MOST_STEPS = 4


class JaxKeptBuffers(KeptBuffers):
    """The kept buffers of a session on JAX.

    The first save copies the state. The run after it has the step compiled in the background, so
    that the saves that follow need not.

    Args:
        steps: The steps that sessions of the graph have compiled, by what they are compiled for.
    """

    def __init__(self, steps: dict[Any, LeavingStep]) -> None:
        self._steps = steps
        self._lock = threading.Lock()
        self._is_wanted = False
        self._is_copied = False
        self._kept: dict[int, Any] = {}  # the leaves by id
        self._pending: list[PendingArray] = []
        self._variables: set[Variable] = set()
        # What runs have left alone since, and what they may write into.
        self._left: dict[Variable, list[Any]] = {}
        self._spare: dict[Variable, list[Any]] = {}

    def host_values(self, values: Mapping[Variable, Any]) -> HostValues | None:
        leaves = [it for it in jax.tree.leaves(list(values.values())) if isinstance(it, jax.Array)]
        if sum(leaf.nbytes for leaf in leaves) < _LEAST_BYTES or jax.process_count() > 1:
            return None
        with self._lock:
            if self._kept or self._is_copied:
                return None  # another saver is writing
            steps = list(self._steps.values())
            if steps and all(it.has_failed for it in steps):
                return None
            if not any(map(self._has_spare, steps)):
                self._is_wanted = self._is_copied = True
                return HostValues(_copies, self._release)
            self._kept = {id(leaf): leaf for leaf in leaves}
            self._variables = {variable for variable in values if not variable.on_host}
            return HostValues(self._read, self._release)

    def concern(self, changed: Collection[Variable]) -> bool:
        if self._is_wanted:
            return not all(variable.on_host for variable in changed)
        return not self._variables.isdisjoint(changed)

    def close(self) -> None:
        with self._lock:
            self._steps = {}  # there is nothing to find memory for
            self._left, self._spare = {}, {}

    def run(self, step: Any, assigned: Sequence[Variable], args: Sequence[Any]) -> Any:
        """Return ``step(*args)``; buffers that are kept are still there then.

        Args:
            step: A jitted function that takes over the buffers of its first arguments.
            assigned: The variables whose values these are.
            args: All arguments.
        """
        leaves = jax.tree.leaves(args[: len(assigned)])
        is_kept = any(id(leaf) in self._kept for leaf in leaves)
        leaving, is_new = self._leaving(step, assigned, args)
        if is_kept and leaving is not None and self._has_spare(leaving):
            results = self._run_leaving(leaving, assigned, args)
            if results is not None:
                return results
        for pending in list(self._pending):
            pending.read()
        # On a CPU, XLA copies a buffer of which NumPy has a view, and takes the copy over.
        results = step(*args)
        if leaving is not None and is_new:
            threading.Thread(target=self._compile, args=[leaving], name="runhooks-compile").start()
        return results

    def settle(self, assigned: Collection[Variable]) -> None:
        """Note that a run has given these variables values of their own."""
        with self._lock:
            self._variables.difference_update(assigned)
            self._is_wanted = False

    def _run_leaving(
        self, leaving: LeavingStep, assigned: Sequence[Variable], args: Sequence[Any]
    ) -> Any:
        """Return what the step returns; None if the device lacks the memory."""
        with self._lock:
            spare = [leaf for variable in assigned for leaf in self._spare.pop(variable, ())]
            try:
                results = leaving(spare, args)
            except jax.errors.JaxRuntimeError as error:
                if not str(error).startswith("RESOURCE_EXHAUSTED"):
                    raise
                leaving.is_ready, leaving.has_failed = False, True
                _log.warning("asynchronous saves wait for the device again, since it lacks memory")
                return None
            left = {
                variable: [it for it in jax.tree.leaves(value) if takes_spare(it)]
                for variable, value in zip(assigned, args, strict=False)
            }
            # The checkpoint may have been written meanwhile.
            (self._left if self._kept else self._spare).update(left)
            return results

    def _leaving(
        self, step: Any, assigned: Sequence[Variable], args: Sequence[Any]
    ) -> tuple[LeavingStep | None, bool]:
        leaves, structure = jax.tree.flatten(list(args))
        key = (step, structure, *map(_signature, leaves))
        if key in self._steps:
            return self._steps[key], False
        if len(self._steps) >= _MOST_STEPS:
            return None, False
        leaving = self._steps[key] = LeavingStep(step, assigned, args)
        return leaving, True

    def _compile(self, leaving: LeavingStep) -> None:
        leaving.compile()
        with self._lock:
            self._find_spare_memory()

    def _has_spare(self, leaving: LeavingStep) -> bool:
        return leaving.is_ready and all(
            variable in self._spare for variable, forms in leaving.spares.items() if forms
        )

    def _read(self, leaves: Sequence[Any]) -> list[Any]:
        found = [on_host(leaf) for leaf in leaves]
        self._pending = [it for it in found if isinstance(it, PendingArray)]
        return found

    def _release(self) -> None:
        with self._lock:
            self._spare.update(self._left)
            self._left, self._kept, self._pending = {}, {}, []
            self._variables.clear()
            self._is_copied = False
            self._find_spare_memory()

    def _find_spare_memory(self) -> None:
        """Find memory for steps to write into, unless a copy takes as much."""
        if self._is_copied or self._kept:
            return
        for leaving in list(self._steps.values()):
            for variable, forms in leaving.spares.items() if leaving.is_ready else ():
                if forms and variable not in self._spare:
                    found = [jnp.zeros(it.shape, it.dtype, device=it.sharding) for it in forms]
                    self._spare[variable] = cast(Any, jax).block_until_ready(found)


def _copies(leaves: Sequence[Any]) -> list[Any]:
    return list(ARRAYS.to_host(leaves, [_memory_for(leaf) for leaf in leaves]))


def _memory_for(leaf: Any) -> np.ndarray[Any, Any] | None:
    """Memory for a copy of a large leaf, which goes back to the system when the copy goes.

    The allocator might keep it, and give the thread that allocates next other memory.
    """
    if not takes_spare(leaf):
        return None
    memory = mmap.mmap(-1, leaf.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # of a kernel without it
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, leaf.dtype).reshape(leaf.shape)


def _signature(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array):
        return np.shape(leaf), getattr(leaf, "dtype", type(leaf))
    return leaf.aval, leaf.sharding if leaf.committed else None
