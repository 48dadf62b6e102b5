"""``json_number``: floats for JSON, which has no NaN and no infinities."""

from __future__ import annotations

import math


def json_number(value: float) -> float | str:
    """Return ``value``, or ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``, as in Protocol Buffers."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
