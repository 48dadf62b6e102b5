"""Fits a checkpoint to a model whose names have changed, or that has grown since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runhooks.checkpoint.names import Renaming
from runhooks.contract import Snapshot
from runhooks.graph.collections import GraphKeys
from runhooks.graph.objects import MODULE_VERSIONS, OBJECT_STATES, STANDS_FOR_ARRAY


def renamed(snapshot: Snapshot, rename: Mapping[str, str]) -> Snapshot:
    """Return ``snapshot`` with other names.

    Args:
        snapshot: The contents of a checkpoint.
        rename: As for ``Renaming``: of variables, of the user's objects, and what is below them.

    Raises:
        ValueError: If neither the old nor the new name matches anything, or two arrays would have
            one name.
    """
    renaming = Renaming(rename)
    renaming.check(snapshot.arrays, "the checkpoint")
    new_names = renaming.applied(snapshot.arrays)
    arrays = {new_names[name]: array for name, array in snapshot.arrays.items()}
    new_name = renaming.new
    states = {}
    for key, state in snapshot.states.items():
        if not key.startswith(OBJECT_STATES):
            states[key] = state
            continue
        name = key.removeprefix(OBJECT_STATES)
        content = {
            # Keys of a module's state are the paths of its parameters.
            field: {
                _below(new_name(f"{name}/{path}"), new_name(name), path): it
                for path, it in value.items()
            }
            if isinstance(value, Mapping)
            else value
            for field, value in state.items()
        }
        states[OBJECT_STATES + new_name(name)] = _with_names(content, snapshot.arrays, new_name)
    return snapshot._replace(arrays=arrays, states=states)


def completed(snapshot: Snapshot, present: Snapshot) -> tuple[Snapshot, list[str]]:
    """Return ``snapshot`` with what it lacks from ``present``, and the names of these arrays."""
    lacking = [name for name in present.arrays if name not in snapshot.arrays]
    arrays = {**snapshot.arrays, **{name: present.arrays[name] for name in lacking}}
    states = dict(snapshot.states)
    for key, state in present.states.items():
        if key.startswith(OBJECT_STATES):
            states[key] = _merged(states.get(key), state)
    # The present arrays may be those of variables.
    is_given = snapshot.is_given and not lacking
    return snapshot._replace(arrays=arrays, states=states, is_given=is_given), sorted(lacking)


def other_names(states: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of arrays by others that they have in the states of the user's objects.

    Two names of one array are those of a parameter that two modules share.
    """
    return {
        name: saved
        for key, state in states.items()
        if key.startswith(OBJECT_STATES) and isinstance(state, Mapping)
        for name, saved in _names(key.removeprefix(OBJECT_STATES), state.get("state"))
        if name != saved
    }


def is_run_state(name: str, states: Mapping[str, Any]) -> bool:
    """Return whether an array belongs to a run, and not to its model.

    So do the global step, and objects of ``rh.torch`` that are no modules: optimizers, averages,
    random states.

    Args:
        name: The name of the array.
        states: The states beside it, by name.
    """
    if name.rpartition("/")[2] == GraphKeys.GLOBAL_STEP:
        return True
    state = states.get(OBJECT_STATES + name.partition("/")[0])
    return isinstance(state, Mapping) and MODULE_VERSIONS not in state


def _names(path: str, state: Any) -> Iterator[tuple[str, str]]:
    if type(state) is tuple and len(state) == 2 and state[0] == STANDS_FOR_ARRAY:
        yield path, str(state[1])
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from _names(f"{path}/{key}", value)


def _below(name: str, parent: str, otherwise: Any) -> Any:
    """Return the path of ``name`` below ``parent``; ``otherwise`` for a key that is not a path."""
    if not isinstance(otherwise, str) or not name.startswith(f"{parent}/"):
        return otherwise
    return name.removeprefix(f"{parent}/")


def _with_names(value: Any, arrays: Mapping[str, Any], new_name: Callable[[str], str]) -> Any:
    """Return a state in which ``(mark, name of an array)`` has the new name."""
    if isinstance(value, dict):
        items = {key: _with_names(it, arrays, new_name) for key, it in value.items()}
        return type(value)(items)
    if (
        type(value) is tuple
        and len(value) == 2
        and isinstance(value[1], str)
        and value[1] in arrays
    ):
        return value[0], new_name(value[1])
    if type(value) in (list, tuple):
        return type(value)(_with_names(it, arrays, new_name) for it in value)
    return value


def _merged(saved: Any, present: Any) -> Any:
    """Return ``saved`` with the keys that only ``present`` has."""
    if saved is None:
        return present
    if not isinstance(saved, dict) or not isinstance(present, dict):
        return saved
    merged = {key: _merged(saved.get(key), it) for key, it in present.items() if it is not None}
    return type(saved)({**saved, **merged})
