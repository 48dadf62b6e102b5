"""Suggestions for a mistyped name, and articles."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three others of ``known`` that resemble ``name``, contain it or are in it."""
    import difflib  # slow to import

    by_lower = {it.lower(): it for it in known if it != name}
    close = difflib.get_close_matches(name.lower(), by_lower)
    around = [it for it in by_lower if name.lower() in it or it in name.lower()]
    around = [it for it in around if min(len(it), len(name)) > 1]
    return [by_lower[it] for it in dict.fromkeys([*close, *around])][:3]


def did_you_mean(near: Collection[str]) -> str:
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    return did_you_mean(nearest(name, known))


def with_article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"
