"""Nested hyperparameters as a flat dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flattened(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of ``nested``, dicts and lists, by ``outer.inner``; None becomes ``""``."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        path = f"{prefix}{name}"
        if isinstance(value, list | tuple):
            value = {str(index): element for index, element in enumerate(value)}
        if callable(getattr(value, "items", None)):  # ConfigDict of ml_collections is no Mapping
            flat |= flattened(dict(value.items()), f"{path}.")
        else:
            flat[path] = "" if value is None else value
    return flat
