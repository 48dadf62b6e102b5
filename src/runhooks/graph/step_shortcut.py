"""``shortcut``: divides the results of a step that are like the first, if that is of a simple form.

A shortcut takes a result, and returns the new states and the dict of outputs in one tuple; None of
a result that is not like the first, as far as is quickly said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shortcut = Callable[[Any], tuple[Any, ...] | None]


def of_whole(first: Any) -> Shortcut | None:
    """Return the shortcut for a result that is the one state."""
    kind = type(first)
    if kind is dict:
        keys = dict.fromkeys(first).keys()
        return lambda it: (it, {}) if type(it) is dict and it.keys() == keys else None
    if isinstance(first, tuple | list | Mapping):
        return None
    return lambda it: (it, {}) if type(it) is kind else None


def of_dict(first: Any, states: Sequence[str], outputs: Mapping[str, Any]) -> Shortcut | None:
    """Return the shortcut for a dict with the ``states`` by name, and nothing but ``outputs``."""
    if type(first) is not dict or list(outputs) != [key for key in first if key not in states]:
        return None
    keys, has_outputs = dict.fromkeys(first).keys(), bool(outputs)

    def divide(returned: Any) -> tuple[Any, ...] | None:
        if type(returned) is not dict or returned.keys() != keys:
            return None
        rest = {}
        if has_outputs:
            rest = {key: value for key, value in returned.items() if key not in states}
        return *map(returned.__getitem__, states), rest

    return divide


def of_tuple(first: Any, at: range, outputs: Mapping[str, Any]) -> Shortcut | None:
    """Return the shortcut for a tuple with the states ``at`` these places.

    Nothing else may be in it but a dict, of ``outputs``.
    """
    if type(first) is not tuple:
        return None
    size, begin, end = len(first), at.start, at.stop
    others = [i for i in range(size) if i not in at]
    if not others:
        return lambda it: (*it, {}) if type(it) is tuple and len(it) == size else None
    other, keys = others[0], dict.fromkeys(outputs).keys()
    if len(others) > 1 or type(first[other]) is not dict or first[other].keys() != keys:
        return None

    def divide(returned: Any) -> tuple[Any, ...] | None:
        if type(returned) is not tuple or len(returned) != size:
            return None
        rest = returned[other]
        if type(rest) is not dict or rest.keys() != keys:
            return None
        return *returned[begin:end], rest.copy()

    return divide
