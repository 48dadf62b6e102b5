"""States of hooks as one text, which any framework's checkpoint can hold."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np

from runhooks.checkpoint.states import EncodedStates, decode, encode


def to_text(states: Mapping[str, Any]) -> str:
    """Return ``states`` as JSON; raise TypeError for a value that would not come back."""
    encoded = encode(states)
    arrays = {entry: b64encode(data.tobytes()).decode() for entry, data in encoded.arrays.items()}
    return json.dumps({"states": encoded.text.decode(), "arrays": arrays})


def from_text(text: str) -> dict[str, Any]:
    """Return the states in ``text``; raise ValueError if it is damaged."""
    try:
        parts = json.loads(text)
        arrays = {it: np.frombuffer(b64decode(x), np.uint8) for it, x in parts["arrays"].items()}
        return decode(EncodedStates(parts["states"].encode(), arrays))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the states of hooks in the checkpoint are damaged: {error}") from error
