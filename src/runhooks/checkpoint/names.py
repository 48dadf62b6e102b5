"""Names of arrays: which are asked for, renamed, averages, or of a run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from runhooks.arrays.trees import Container, container_of, walk
from runhooks.checkpoint.files import printable
from runhooks.graph.base import (
    MODULE_VERSIONS,
    OBJECT_STATES,
    BaseGraph,
    GraphKeys,
    stands_for_array,
)
from runhooks.graph.epoch_means import EPOCH_SUMS
from runhooks.near_names import suggestion

_SEPARATORS = ("/", ".")
_MOST_SHOWN = 5


def is_below(name: str, prefix: str) -> bool:
    """Return whether ``name`` is ``prefix``, or goes on after it with ``/`` or ``.``."""
    return name == prefix or (
        name.startswith(prefix)
        and (prefix[-1:] in ("", *_SEPARATORS) or name[len(prefix)] in _SEPARATORS)
    )


class Only:
    """The names that ``only`` asks for, as in ``load``."""

    def __init__(self, only: str | Iterable[str] | None) -> None:
        given = [] if only is None else [only] if isinstance(only, str) else list(only)
        for name in given:
            if not isinstance(name, str):
                raise TypeError(f"only must be a name or a list of names, got {only!r}")
        if only is not None and ("" in given or not given):
            raise ValueError(f"only must be a name or a list of names, got {only!r}")
        self._alone = only if isinstance(only, str) and only[0] != "!" else None
        self._wanted = [name for name in given if name[0] != "!"]
        self._unwanted = [name[1:] for name in given if name[0] == "!"]

    def takes(self, name: str) -> bool:
        if any(_matches(name, it) for it in self._unwanted):
            return False
        return not self._wanted or any(_matches(name, it) for it in self._wanted)

    def of(self, names: Collection[str], place: object) -> list[str]:
        """Return those asked for; ValueError if something in ``only`` matches nothing."""
        for entry in (*self._wanted, *self._unwanted):
            if not any(_matches(name, entry) for name in names):
                near = suggestion(entry, _with_parents(names))
                raise ValueError(f"only: {place} has nothing named {entry!r}{near}")
        return [name for name in names if self.takes(name)]

    def relative(self, names: Collection[str], place: object) -> dict[str, str]:
        """Return those asked for, by what follows a single name asked for."""
        found = self.of(names, place)
        alone = self._alone
        if alone is None or not all(is_below(name, alone) for name in found):
            return {name: name for name in found}
        by_rest: dict[str, str] = {}
        for name in found:
            other = by_rest.setdefault(_rest(name, alone), name)
            if other != name:
                raise ValueError(
                    f"only: after {alone!r}, {other!r} and {name!r} are the same in {place}: give "
                    f"{alone + '/'!r} or {alone + '.'!r} for one, {[alone]} for both"
                )
        return by_rest


class Renaming:
    """New names for old ones, and for all below them; the longest that matches counts."""

    def __init__(self, rename: Mapping[str, str]) -> None:
        self._rename = dict(rename)

    def check(self, names: Iterable[str], place: object) -> None:
        """Raise ValueError if neither an old name nor its new one matches."""
        known = list(names)
        for old, new in self._rename.items():
            # One that was saved since has the new name.
            if not any(is_below(name, old) or is_below(name, new) for name in known):
                near = suggestion(old, _with_parents(known))
                raise ValueError(f"rename: {place} has nothing named {old!r}{near}")

    def new(self, name: str) -> str:
        return _replaced(name, self._rename)

    def old(self, name: str) -> str | None:
        """Return the name that becomes ``name``, if any."""
        old = _replaced(name, {new: old for old, new in self._rename.items()})
        return next((it for it in (old, name) if self.new(it) == name), None)

    def applied(self, names: Iterable[str]) -> dict[str, str]:
        """Return new names by old ones; ValueError if two get the same."""
        new_names = {name: self.new(name) for name in names}
        if len(set(new_names.values())) < len(new_names):
            raise ValueError(f"rename gives two arrays one name: {self._rename}")
        return new_names


def nested(arrays: Mapping[str, Any]) -> Any:
    """Return dicts in dicts, names split at ``/``; a bare array if its name is ``""``."""
    if list(arrays) == [""]:
        return arrays[""]
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *parents, last = name.split("/")
        folder: Any = tree
        for parent in parents:
            folder = folder.setdefault(parent, {}) if isinstance(folder, dict) else None
        if not isinstance(folder, dict) or last in folder:
            raise ValueError(
                f"{name!r} cannot be nested beside the others: ask for some of them with only"
            )
        folder[last] = array
    return tree


def first_of(items: Sequence[str]) -> str:
    more = f" and {len(items) - _MOST_SHOWN} more" if len(items) > _MOST_SHOWN else ""
    return printable(", ".join(items[:_MOST_SHOWN])) + more


def _matches(name: str, entry: str) -> bool:
    if "*" not in entry:
        return is_below(name, entry)
    pattern = ".*".join(map(re.escape, entry.split("*")))
    return re.fullmatch(rf"{pattern}([/.].*)?", name, re.DOTALL) is not None


def _rest(name: str, prefix: str) -> str:
    rest = name[len(prefix) :]
    return rest if prefix[-1] in _SEPARATORS else rest[1:]


def _replaced(name: str, new_names: Mapping[str, str]) -> str:
    found = [old for old in new_names if is_below(name, old)]
    old = max(found, key=len, default=None)
    return name if old is None else new_names[old] + name[len(old) :]


def _with_parents(names: Iterable[str]) -> list[str]:
    return [
        *dict.fromkeys(it for name in names for it in accumulate(name.split("/"), "{}/{}".format))
    ]


def other_names(states: Mapping[str, Any]) -> dict[str, str]:
    """Return names of saved arrays by their other names, as of shared parameters."""
    return {
        name: leaf[1]
        for key, state in states.items()
        if key.startswith(OBJECT_STATES) and isinstance(state, Mapping)
        for name, leaf in walk(state.get("state"), key.removeprefix(OBJECT_STATES), _dict_of)
        if stands_for_array(leaf) and name != leaf[1]
    }


#: The collection of the averages of a graph, each with its ``places``; and the key of these, names
#: of averages by those of their parameters, in the states of hooks.
MOVING_AVERAGES = "runhooks.moving_averages"


def averages_in(graph: BaseGraph) -> list[str]:
    return [name for it in graph.get_collection(MOVING_AVERAGES) for name in it.places.values()]


def saved_averages(states: Mapping[str, Any]) -> dict[str, str]:
    """Return names of parameters by those of their averages in the states of hooks."""
    kept = [it.get(MOVING_AVERAGES) for it in states.values() if isinstance(it, Mapping)]
    return {
        average: part
        for places in kept
        if isinstance(places, Mapping)
        for part, average in places.items()
        if isinstance(average, str)
    }


def is_average(name: str, averages: Iterable[str]) -> bool:
    return any(name == it or name.startswith((f"{it}/", f"{it}.")) for it in averages)


def is_run_state(name: str, states: Mapping[str, Any]) -> bool:
    """Return whether the array ``name`` belongs to a run, and not to its model."""
    if name.rpartition("/")[2] == GraphKeys.GLOBAL_STEP or name.endswith(EPOCH_SUMS):
        return True
    state = states.get(OBJECT_STATES + name.partition("/")[0])
    return isinstance(state, Mapping) and MODULE_VERSIONS not in state


def _dict_of(value: Any) -> Container | None:
    return container_of(value) if isinstance(value, Mapping) else None
