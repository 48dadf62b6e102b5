"""Fits a checkpoint to a model whose names have changed, or that has grown since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runhooks.contract import Snapshot
from runhooks.graph.objects import OBJECT_STATES
from runhooks.near_names import suggestion


def renamed(snapshot: Snapshot, rename: Mapping[str, str]) -> Snapshot:
    """Return ``snapshot`` with other names.

    Args:
        snapshot: The contents of a checkpoint.
        rename: New names by old ones: of variables, of the user's objects, and of what is below
            them, such as ``{"model/head": "model/classifier"}``.

    Raises:
        ValueError: If neither the old nor the new name matches anything, or two arrays would have
            one name.
    """
    for old, new in rename.items():
        # A checkpoint that was saved since has the new name.
        if not any(_is_below(name, old) or _is_below(name, new) for name in snapshot.arrays):
            near = suggestion(old, snapshot.arrays)
            raise ValueError(f"rename: the checkpoint has nothing named {old!r}{near}")

    def new_name(name: str) -> str:
        found = [old for old in rename if _is_below(name, old)]
        old = max(found, key=len, default=None)
        return name if old is None else rename[old] + name[len(old) :]

    arrays = {new_name(name): array for name, array in snapshot.arrays.items()}
    if len(arrays) < len(snapshot.arrays):
        raise ValueError(f"rename gives two arrays one name: {dict(rename)}")
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
    return snapshot._replace(arrays=arrays, states=states), sorted(lacking)


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith((f"{prefix}/", f"{prefix}."))


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
