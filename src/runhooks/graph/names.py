"""The names of operations: which are valid, and how they are made unique."""

from __future__ import annotations

import re

_VALID = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_.\\/-]")


def check(name: str) -> str:
    """Return ``name`` if it is valid; otherwise raise ValueError or TypeError."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {name!r}: look at the order of the arguments")
    if not _VALID.fullmatch(name):
        raise ValueError(
            f"name must start with a letter, digit or '.', followed by these and '_', '-', '/', "
            f"got {name!r}"
        )
    return name


def cleaned(name: str, otherwise: str) -> str:
    """Return ``name`` with invalid characters replaced; ``otherwise`` if nothing is left."""
    return _INVALID_CHARACTER.sub("_", name).lstrip("_-/>\\") or otherwise


class UniqueNames:
    """Hands out names, adding ``_1``, ``_2`` to those that were handed out before."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        # Names differ by more than case, as TensorFlow's do: tags become file and folder names.
        candidate, key = name, name.lower()
        while candidate.lower() in self._next:
            candidate = f"{name}_{self._next[key]}"
            self._next[key] += 1
        self._next[candidate.lower()] = 1
        return candidate
