"""Parts of variables, read and assigned between runs by their names in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks.arrays import to_numpy
from runhooks.engines.conform import check_leaf, number_as
from runhooks.graph.engine import Engine
from runhooks.graph.tensor import Variable
from runhooks.near_names import suggestion
from runhooks.session.saved import saved_leaves

Variables = Mapping[Variable, Any]


def leaves_of(engine: Engine, variables: Variables, name: str) -> dict[str, Any]:
    """Return the leaves called ``name``, or below it, by their names; empty if there are none."""
    below = f"{name}/"
    return {
        key: leaf
        for variable, value in variables.items()
        if name == variable.op.name or _is_near(variable, name)
        for key, leaf in saved_leaves(engine, variable, value).items()
        if key == name or key.startswith(below)
    }


def assigned(
    engine: Engine, variables: Variables, values: Mapping[str, Any]
) -> tuple[dict[Variable, Any], dict[str, Any]]:
    """Return new values of the variables that have leaves in ``values``, and the rest of these.

    Raises:
        ValueError: For an array of another shape, or a dtype that does not fit.
    """
    new: dict[Variable, Any] = {}
    rest = dict(values)
    for variable, old in variables.items():
        leaves = saved_leaves(engine, variable, old)
        if rest.keys().isdisjoint(leaves):
            continue
        changed = [
            _leaf(engine, key, leaf, rest.pop(key)) if key in rest else leaf
            for key, leaf in leaves.items()
        ]
        if variable.on_host:
            new[variable] = int(changed[0])
        else:
            new[variable] = engine.with_leaves(old, changed)
    return new, rest


def substitutes(
    engine: Engine, variables: Variables, places: Mapping[str, str]
) -> tuple[dict[Variable, Any], dict[str, str]]:
    """Return values with other parts in ``places``, by variable, and the rest of ``places``.

    Args:
        engine: The engine of the variables.
        variables: Their values.
        places: The names of what takes a place, by the name of the place.

    Raises:
        ValueError: If there is nothing for a place, or if it has another shape.
    """
    new: dict[Variable, Any] = {}
    rest = dict(places)
    for place, name in places.items():
        others = leaves_of(engine, variables, name)
        for variable, old in variables.items():
            leaves = saved_leaves(engine, variable, old)
            inside = [key for key in leaves if key == place or key.startswith(f"{place}/")]
            if not inside:
                continue
            rest.pop(place, None)
            taken = {key: _other(engine, leaves[key], key, place, name, others) for key in inside}
            value = new.get(variable, old)
            leaves = saved_leaves(engine, variable, value)
            new[variable] = engine.with_leaves(value, list({**leaves, **taken}.values()))
    return new, rest


def _other(
    engine: Engine, old: Any, key: str, place: str, name: str, others: Mapping[str, Any]
) -> Any:
    other = name + key[len(place) :]
    if other not in others:
        raise ValueError(f"there is no {other!r} to put in the place of {key!r}")
    if old.shape != others[other].shape:
        raise ValueError(
            f"{other!r} of shape {list(others[other].shape)} does not fit in the place of {key!r}, "
            f"of shape {list(old.shape)}"
        )
    return engine.as_like(old, others[other])


def unknown(engine: Engine, variables: Variables, name: str) -> ValueError:
    """Return the error for a name that no leaf of ``variables`` has."""
    known = [key for v, value in variables.items() for key in saved_leaves(engine, v, value)]
    return ValueError(f"no variable, or part of one, is named {name!r}{suggestion(name, known)}")


def _is_near(variable: Variable, name: str) -> bool:
    own = variable.op.name
    return name.startswith(f"{own}/") or own.startswith(f"{name}/")


def _leaf(engine: Engine, name: str, old: Any, value: Any) -> Any:
    on_host = isinstance(old, np.int64)
    shape, dtype = (old.shape, old.dtype) if on_host else engine.host_form(old)
    if isinstance(value, int | float) and not isinstance(value, np.generic):
        value = number_as(name, "", value, dtype)
    array = np.asarray(to_numpy(value))
    check_leaf(name, "", (shape, dtype), (array.shape, array.dtype))
    array = array.astype(dtype)
    return array if on_host else engine.from_host(old, array)
