"""What is noted on errors out of what JAX has compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import jax

from runhooks.errors import add_note
from runhooks.graph.tensor import Tensor

#: What JAX raises if the value of an argument is needed while a function is traced.
_NOT_KNOWN = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


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


def note_static(error: Exception, step: str, args: Mapping[str, Any]) -> None:
    """Note on ``error``, raised by ``step``, that what must be known when it is traced is bound."""
    says_so = any(text in str(error) for text in ("Non-hashable static", "concrete value"))
    if not says_so and not isinstance(error, _NOT_KNOWN):
        return
    numbers = [name for name, value in args.items() if getattr(value, "shape", None) == ()]
    bound = ", ".join(f"{name}=..." for name in numbers or ["name"])
    add_note(
        error,
        "the arguments of a step are traced, as under jax.jit: bind one that must be known before, "
        f"such as a size or a flag, with functools.partial({step}, {bound})",
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
                    "and numbers alone, and bind a function or a configuration before the graph is "
                    f"made, with functools.partial(step, {tensor.op.name}=...)"
                ) from None


def forms_of(given: Sequence[Any]) -> list[str]:
    """Return the shapes and dtypes that values have in JAX, each as text."""
    return [_form_of(value) for value in given]


def note_new_forms(
    error: Exception, tensors: Sequence[Tensor], before: Sequence[str], now: Sequence[str]
) -> None:
    """Note on ``error`` which of ``tensors`` has another form than in a run before.

    Args:
        error: Raised while a function was traced for what they are given.
        tensors: What is given.
        before: The forms of their values in a run that was traced; empty: there was none.
        now: The forms of their values in this one.
    """
    for tensor, old, new in zip(tensors, before, now, strict=False):
        if old != new:
            add_note(error, f"{tensor.name!r} is given {new} here, and was given {old} before")


class _Form:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _form_of(value: Any) -> str:
    with suppress(TypeError):  # JAX cannot take it
        value = jax.eval_shape(lambda it: it, value)
    return str(jax.tree.map(_form_of_leaf, value))


def _form_of_leaf(leaf: Any) -> _Form:
    shape = getattr(leaf, "shape", ())
    dtype = getattr(leaf, "dtype", type(leaf).__name__)
    return _Form(f"{dtype}{list(shape)}")
