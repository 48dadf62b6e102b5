"""States of hooks as JSON: whatever would come back as something else is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def encode(states: Mapping[str, Any]) -> bytes:
    """``states`` as JSON.

    Raises TypeError naming the key of a value that JSON cannot hold.
    """
    for name, state in states.items():
        _check(state, name)
    return json.dumps(states).encode()


def decode(data: bytes) -> dict[str, Any]:
    """The states in ``data``. Raises ValueError if it is not JSON."""
    states: dict[str, Any] = json.loads(data)
    return states


def _check(value: Any, key: str) -> None:
    if isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str):
                raise TypeError(f"state {key!r} has the key {name!r}: keys must be str")
            _check(part, f"{key}/{name}")
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _check(part, f"{key}/{index}")
    elif not isinstance(value, str | int | float | None):
        raise TypeError(
            f"state {key!r} is a {type(value).__name__}, which a checkpoint cannot hold: a state "
            "is made of dict, list, str, int, float, bool and None"
        )
