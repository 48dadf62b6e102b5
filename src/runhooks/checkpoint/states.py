"""States of hooks as JSON; what would come back as something else is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType
from typing import Any


def encode(states: Mapping[str, Any]) -> bytes:
    """``states`` as JSON; a number of an array library, as fetched values are, as a plain number.

    Raises TypeError naming the key of any other value that is not of a type that JSON has.
    """
    return json.dumps({name: _plain(state, name) for name, state in states.items()}).encode()


def decode(data: bytes) -> dict[str, Any]:
    """The states in ``data``. Raises ValueError if it is not JSON."""
    states: dict[str, Any] = json.loads(data)
    return states


def _plain(value: Any, key: str) -> Any:
    if type(value) is dict:
        for name in value:
            if type(name) is not str:
                raise TypeError(f"state {key!r} has the key {name!r}: keys must be str")
        return {name: _plain(part, f"{key}/{name}") for name, part in value.items()}
    if type(value) is list:
        return [_plain(part, f"{key}/{index}") for index, part in enumerate(value)]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if type(value) not in (str, int, float, bool, NoneType):
        raise TypeError(
            f"state {key!r} is a {type(value).__name__}, which a checkpoint cannot hold: a state "
            "is made of dict, list, str, int, float, bool and None"
        )
    return value
