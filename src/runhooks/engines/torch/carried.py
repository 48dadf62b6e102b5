"""``CarriedState``: a value that a step takes and returns anew, as the hidden state of a network.

A variable keeps it as tensors; the step gets it back in the kinds in which the program gave it: a
number of Python as a number, which rounds as in a plain loop, an array of NumPy as such an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from runhooks.arrays import trees
from runhooks.arrays.torch import ARRAYS, from_numpy
from runhooks.graph.engine import Engine
from runhooks.graph.nodes import paths_below
from runhooks.graph.step_result import ResultRule

#: The dtypes that hold numbers of Python without a loss.
_NUMBERS: dict[type, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


def is_carried(value: Any) -> bool:
    """Return whether ``value`` is made of tensors, numbers and arrays of NumPy, and not empty."""
    leaves = [leaf for _, leaf in trees.walk(value)]
    return bool(leaves) and all(map(_is_leaf, leaves))


def _is_leaf(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "biufc"
    return isinstance(leaf, torch.Tensor) or type(leaf) in _NUMBERS


class CarriedState:
    """A state of a step.

    Args:
        value: What it begins with: tensors, numbers, arrays of NumPy, or a tree of these.
        put: Puts a tensor where the graph computes; None: it stays where it is. Numbers and arrays
            of NumPy stay on the host.
        engine: The engine of the graph.

    Attributes:
        initial: The value as a variable keeps it.
        paths: The paths of the parts of the value.
    """

    def __init__(self, value: Any, put: Callable[[Any], Any] | None, engine: Engine) -> None:
        leaves = [leaf for _, leaf in trees.walk(value)]
        self._restore = [_restorer(leaf) for leaf in leaves]
        self._is_as_kept = all(it is None for it in self._restore)
        self.initial = trees.with_leaves(value, [_kept(leaf, put) for leaf in leaves])
        self.paths = frozenset(paths_below(self.initial, engine.children))

    def handed(self, kept: Any) -> Any:
        """Return what a variable has kept, in the kinds of the value that was given."""
        if self._is_as_kept:
            return kept
        leaves = [leaf for _, leaf in trees.walk(kept)]
        pairs = zip(self._restore, leaves, strict=True)
        return trees.with_leaves(kept, [leaf if it is None else it(leaf) for it, leaf in pairs])


def _kept(leaf: Any, put: Callable[[Any], Any] | None) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        tensor: torch.Tensor = leaf.detach() if put is None else put(leaf.detach())
        return tensor
    if type(leaf) in _NUMBERS:
        return torch.tensor(leaf, dtype=_NUMBERS[type(leaf)], device="cpu")
    return from_numpy(np.asarray(leaf), copy=True)


def _restorer(leaf: Any) -> Callable[[torch.Tensor], Any] | None:
    if isinstance(leaf, torch.Tensor):
        return None
    if type(leaf) in _NUMBERS:
        return torch.Tensor.item
    if isinstance(leaf, np.generic):
        return lambda tensor: ARRAYS.to_numpy(tensor)[()]
    return ARRAYS.to_numpy


class CarryingStep:
    """A step from its arguments to its new states and a dict of its outputs.

    Args:
        fn: The user's step, which takes all arguments by position.
        states: Its states, by their places among the arguments.
        rule: Divides what it returns.
    """

    def __init__(
        self, fn: Callable[..., Any], states: Mapping[int, CarriedState], rule: ResultRule
    ) -> None:
        self._fn = fn
        self._states = states
        self._rule = rule
        self._is_known = False  # what it returns

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        handed = list(args)
        for place, state in self._states.items():
            handed[place] = state.handed(args[place])
        returned = self._fn(*handed)
        old: Sequence[Any] = [args[place] for place in self._states]
        new, outputs = self._rule.divide(returned, old)
        if not self._is_known:
            self._rule.check(returned, old, new)
            self._is_known = True
        return *new, outputs
