"""``json_value``: what a point is in JSON."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from runhooks.events import SessionLog, SessionStatus
from runhooks.events.json_number import json_number
from runhooks.summary.sinks.point import SummaryPoint


def json_point(point: SummaryPoint) -> dict[str, Any]:
    """Return ``point`` as an object of JSON, under the names of its fields."""
    return {**point._asdict(), "value": json_value(point.value)}


def json_value(value: Any) -> Any:
    """Return ``value``, that of a point, as something that JSON has.

    Arrays are lists of lists, other bytes are base64; floats are as ``json_number`` says.
    """
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, np.ndarray):
        return _list(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, SessionLog):
        return {**value._asdict(), "status": SessionStatus(value.status).name}
    if hasattr(value, "_asdict"):
        return {name: json_value(field) for name, field in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [json_value(element) for element in value]
    return value


def _list(array: np.ndarray[Any, np.dtype[Any]]) -> Any:
    if array.dtype.kind in "biu":
        return array.tolist()
    if array.dtype == object:
        return _texts(array.tolist())
    if array.dtype.kind == "c":
        return _list(np.stack((array.real, array.imag), -1))
    numbers = array.astype(np.float64, copy=False)  # bfloat16 among them
    return numbers.tolist() if np.isfinite(numbers).all() else json_value(numbers.tolist())


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(element) for element in value]
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
