"""What is noted on errors out of what JAX has compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax

from runhooks.errors import add_note
from runhooks.graph.tensor import Tensor


def note_failure(error: Exception, assigned: Iterable[Any]) -> None:
    """Note on ``error`` what to do about it, where that is known."""
    if type(error).__name__ == "TraceContextError":  # of Flax
        add_note(
            error,
            "a function of the graph cannot change a module that it closes over: hold "
            "the state of graphdef, state = nnx.split(model) in a variable, take it as "
            "an argument, and return the new one",
        )
    if any(leaf.is_deleted() for leaf in jax.tree.leaves(list(assigned))):
        add_note(
            error,
            "the device failed after it had taken over the variables' buffers: "
            "their values are gone, restore them from a checkpoint",
        )


def check_given(error: Exception, tensors: Sequence[Tensor], given: Sequence[Any]) -> None:
    """Raise TypeError in place of ``error`` if JAX cannot take a value that was given.

    Its own message would name neither the tensor nor what to do.
    """
    if not isinstance(error, TypeError):
        return
    for tensor, value in zip(tensors, given[: len(tensors)], strict=True):
        for leaf in jax.tree.leaves(value):
            try:
                jax.eval_shape(lambda it: it, leaf)
            except TypeError:
                raise TypeError(
                    f"{tensor.name!r} is given {leaf!r}, which JAX cannot compile: give it arrays "
                    "and numbers alone"
                ) from None
