"""Names of runs and tags, made short where they would leave no room for values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rich.cells import cell_len

from runhooks.cli import formats, output

_NARROWEST = 16
_FOR_BEGIN = "..."


def short_titles(tags: Sequence[str]) -> list[str]:
    """Return ``tags`` in a quarter of the width each, if they can be told apart so."""
    return formats.shortened(tags, _part(4))


def short_names(names: Sequence[str]) -> list[str]:
    """Return ``names`` in a third of the width, if they can be told apart so.

    Where they are longer, what they begin with alike is not repeated, but said by ``say_begin``.
    """
    begin = _begin(names)
    shown = [_FOR_BEGIN + name[len(begin) :] for name in names] if begin else names
    return formats.shortened(shown, _part(3))


def say_begin(names: Sequence[str]) -> None:
    """Say which beginning ``short_names`` has left out, if it has."""
    if begin := _begin(names):
        output.say(f"{_FOR_BEGIN} begins with {formats.tag(begin)}", style="dim")


def _part(of: int) -> int | None:
    width = output.width()
    return None if width is None else max(_NARROWEST, width // of)


def _begin(names: Sequence[str]) -> str:
    room = _part(3)
    if room is None or len(names) < 2 or all(cell_len(name) <= room for name in names):
        return ""
    columns = zip(*names, strict=False)
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, columns)
    words = re.match(r".*[\W_]", "".join(letter for letter, *_ in alike), re.DOTALL)
    return words[0] if words else ""
