"""``Once``: a user's function that JAX traces once, for whatever it is traced for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal

from runhooks.engines.jax.held import Static, hold, release
from runhooks.graph.generators import have_moved, shared_states


class Once:
    """``fn``, called once for all arguments of the same structure, shapes, dtypes and shardings.

    The graph wants the form of what it returns, and a step its operations. Both find the trace in
    JAX's own cache, which a nested function under ``jax.jit`` has too. What is no array stays as it
    is, among arguments and results. A result that is an argument, or another result, is the same
    object, as it would be without the cache: it tells what shares a buffer.

    A trace that has drawn from a generator of NumPy or Python is not found again: the graph puts
    that back, and the run draws what the user's own loop would.
    """

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self._fn = fn
        self._name = name
        self._jitted = self._fresh()

    def __call__(self, *args: Any) -> Any:
        held = jax.tree.map(_static_unless_traced, hold(args), is_leaf=_is_static)
        leaves = jax.tree.leaves(held)
        if not leaves:  # nothing is traced
            return self._fn(*args)
        before = shared_states()
        jaxpr = self._jitted.trace(*held).jaxpr.jaxpr
        results, structure = jax.tree.flatten(self._jitted(*held))
        if have_moved(before):
            self._jitted = self._fresh()
        first = dict(zip(jaxpr.invars, leaves, strict=True))
        results = [
            result if isinstance(var, Literal) else first.setdefault(var, result)
            for var, result in zip(jaxpr.outvars, results, strict=True)
        ]
        return release(jax.tree.unflatten(structure, results))

    def _fresh(self) -> Any:
        def fn(*held: Any) -> Any:
            returned = hold(self._fn(*release(held)))
            return jax.tree.map(_static_unless_traced, returned, is_leaf=_is_static)

        fn.__name__ = fn.__qualname__ = self._name
        return jax.jit(fn)


def _is_static(leaf: Any) -> bool:
    return isinstance(leaf, Static)


def _static_unless_traced(leaf: Any) -> Any:
    return leaf if isinstance(leaf, Static | jax.core.Tracer) else Static(leaf)
