"""``EachStep``: a function that a hook asks for in each run of a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runhooks.graph.tensor import Operation


class EachStep:
    """Calls ``fn``; an engine compiles what is assigned from it with the step, as a part of it.

    For what a hook asks for in every run, and not now and then: there is no step without it.
    """

    __slots__ = ("_fn",)

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, *args: Any) -> Any:
        return self._fn(*args)


def is_of_each_step(op: Operation) -> bool:
    """Return whether ``op`` assigns what an ``EachStep`` has computed."""
    return op.assigns is not None and any(isinstance(it.op.fn, EachStep) for it in op.inputs)
