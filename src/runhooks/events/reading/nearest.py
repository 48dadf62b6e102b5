"""What a mistaken name may have been meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MANY = 10


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three of ``known`` that are like ``name``, in it, or around it."""
    by_lower = {it.lower(): it for it in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    parts = [it for it in by_lower if name.lower() in it or it in name.lower()]
    parts = [it for it in parts if min(len(it), len(name)) > 1]
    return [by_lower[it] for it in dict.fromkeys([*close, *parts])][:3]


class UnknownNameError(KeyError):
    """A KeyError whose text, made when it is asked for, says which names there are."""

    def __init__(self, name: object, noun: str, known: tuple[str, ...]) -> None:
        super().__init__(name, noun, known)

    def __str__(self) -> str:
        name, noun, known = self.args
        if near := nearest(str(name), known):
            return f"no {noun} {name!r}; did you mean {' or '.join(map(repr, near))}?"
        if not known:
            return f"no {noun} {name!r}: there is none at all"
        rest = f" and {len(known) - _MANY} more" if len(known) > _MANY else ""
        return f"no {noun} {name!r} among {', '.join(map(repr, known[:_MANY]))}{rest}"
