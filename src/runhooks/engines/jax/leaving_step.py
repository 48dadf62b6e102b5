"""``LeavingStep``: a step that leaves the buffers of its arguments alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from runhooks import clock
from runhooks.arrays.jax import is_key, on_cpu
from runhooks.errors import described
from runhooks.graph.tensor import Variable

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
