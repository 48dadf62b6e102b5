"""Variables as a checkpoint names them: one array for each leaf of each variable."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from runhooks.arrays.shards import Share, to_host
from runhooks.graph.engine import Engine
from runhooks.graph.kept_buffers import HostValues
from runhooks.graph.tensor import Variable

#: What makes the name of a variable unique.
_NUMBER = re.compile(r"_\d+(?=/|$)")


def saved_leaves(engine: Engine, variable: Variable, value: Any) -> dict[str, Any]:
    """Return the leaves of ``value`` by their names in checkpoints, such as ``state/params/w``."""
    name = variable.op.name
    if variable.on_host:
        return {name: np.int64(value)}
    leaves = engine.leaves(value).items()
    return {f"{name}/{path}" if path else name: leaf for path, leaf in leaves}


def arrays_of(
    engine: Engine,
    values: Mapping[Variable, Any],
    into: Mapping[str, np.ndarray[Any, Any]] | None,
    share: Share | None = None,
    host_values: HostValues | None = None,
) -> dict[str, Any]:
    """Return all leaves of ``values`` as arrays on the host, by name.

    ``into`` and ``share``: as for ``Session.snapshot``. ``host_values``: how to get them there, if
    not by the engine's own way. Raises ValueError if two leaves have one
    name.
    """
    leaves: dict[str, Any] = {}
    for variable, value in values.items():
        for key, leaf in saved_leaves(engine, variable, value).items():
            if key in leaves:
                raise ValueError(f"two variables have a leaf that is saved as {key!r}: rename one")
            leaves[key] = leaf
    if share is not None:
        found = {key: engine.arrays.sharded(leaf) for key, leaf in leaves.items()}
        sharded = {key: it for key, it in found.items() if it is not None}
        return to_host(engine.to_host, leaves, sharded, into)
    if host_values is not None:
        return dict(zip(leaves, host_values.read(list(leaves.values())), strict=True))
    places = None if into is None else [into.get(key) for key in leaves]
    return dict(zip(leaves, engine.to_host(list(leaves.values()), places), strict=True))


def merged_arrays(arrays: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return all of ``arrays`` and ``others``. Raises ValueError if two have one name."""
    if same := sorted(arrays.keys() & others.keys()):
        raise ValueError(f"a variable and an object are both saved as {same[0]!r}: rename one")
    return {**arrays, **others}


def values_from(
    engine: Engine,
    values: Mapping[Variable, Any],
    arrays: Mapping[str, Any],
    *,
    all_arrays: bool,
    is_given: bool,
) -> dict[Variable, Any]:
    """Return new values in place of ``values``, made of ``arrays``.

    ``is_given``: as in ``Snapshot``.

    Raises:
        ValueError: Naming the arrays that are missing, or of another shape or dtype, or that, with
            ``all_arrays``, belong to no variable.
    """
    problems: list[str] = []
    known: set[str] = set()
    new: dict[Variable, Any] = {}
    for variable, value in values.items():
        leaves = saved_leaves(engine, variable, value)
        known.update(leaves)
        if missing := sorted(leaves.keys() - arrays.keys()):
            problems.append(f"missing {missing}")
            continue
        try:
            loaded = [
                _leaf(engine, variable, key, leaf, arrays[key], is_given=is_given)
                for key, leaf in leaves.items()
            ]
        except ValueError as error:
            problems.append(str(error))
            continue
        new[variable] = loaded[0] if variable.on_host else engine.with_leaves(value, loaded)
    if all_arrays and (unknown := sorted(arrays.keys() - known)):
        problems.append(f"no variable for {unknown}")
    if problems:
        raise ValueError(
            f"the values are of another model: {_first(problems)}{_twice(known, arrays)}"
        )
    return new


def _twice(ours: Iterable[str], saved: Collection[str]) -> str:
    """A hint for a program that has built its model in one graph twice, as notebooks do."""
    ours = set(ours)
    for name in sorted(ours.difference(saved)):
        first = _NUMBER.sub("", name)
        if first != name and first in ours and first in saved:
            return (
                f". The graph has {first!r} as well as {name!r}: a model that is built again needs "
                "a graph of its own, such as rh.Graph().as_default()"
            )
    return ""


def _leaf(
    engine: Engine, variable: Variable, key: str, leaf: Any, array: Any, *, is_given: bool
) -> Any:
    if variable.on_host:
        if array.shape != () or array.dtype.kind not in "iu":
            raise ValueError(f"{key!r} must be one integer, got {array.dtype}{list(array.shape)}")
        return int(np.asarray(array))
    shape, dtype = engine.host_form(leaf)
    if array.shape != shape or not engine.fits_saved(leaf, array.dtype):
        raise ValueError(
            f"{key!r} must be {dtype}{list(shape)}, got {array.dtype}{list(array.shape)}"
        )
    if isinstance(array, np.ndarray):
        return engine.place(leaf, array) if is_given else engine.from_host(leaf, array)
    return engine.from_source(leaf, array)


def _first(problems: Iterable[str], most: int = 5) -> str:
    listed = list(problems)
    more = f"; and {len(listed) - most} more" if len(listed) > most else ""
    return "; ".join(listed[:most]) + more
