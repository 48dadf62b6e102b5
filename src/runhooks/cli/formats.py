"""Numbers, times and names as they are printed for people; JSON has them exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from rich.cells import cell_len, chop_cells

from runhooks.stores.path import AnyPath

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MANY = 10
_WHOLE = 2**53  # a float below it that is a whole number is exact
_LONG = 100  # the most columns of a tag
_CUT = "..."


def number(value: float) -> str:
    """Return ``value`` with five significant digits, or all of them if it is a small integer."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.5g}"


def at_step(value: float, step: int) -> str:
    """Return ``value`` and its step."""
    return f"{number(value)} @{step}"


def hparam(value: object) -> str:
    """Return the value of a hyper-parameter; "" for None. A whole number, as a seed, is whole."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else number(value)
    return "" if value is None else tag(str(value))


def hparams(values: Sequence[object]) -> list[str]:
    """Return the values of a hyper-parameter as ``hparam``, those that differ told apart."""
    cells = list(map(hparam, values))
    if len(set(cells)) < len(set(map(repr, values))):
        cells = shortened([repr(it) if isinstance(it, float) else str(it) for it in values])
    return ["" if it is None else cell for it, cell in zip(values, cells, strict=True)]


def span(first: int, last: int) -> str:
    """Return the range of steps from ``first`` to ``last``."""
    return str(first) if first == last else f"{first}..{last}"


def size(in_bytes: int) -> str:
    """Return a size in decimal units."""
    if in_bytes < 1000:
        return f"{in_bytes} B"
    scaled = float(min(in_bytes, 10**300))  # of a damaged checkpoint it may be anything
    for unit in ("kB", "MB", "GB"):
        scaled /= 1000
        if scaled < 999.5:
            return f"{scaled:.3g} {unit}"
    return f"{scaled / 1000:.3g} TB"


def duration(secs: float) -> str:
    """Return a time span in its two largest units."""
    if not 0 <= secs < 1e11:
        return "?"
    whole = int(secs)
    for large, small, signs in ((_DAY, _HOUR, "dh"), (_HOUR, _MINUTE, "hm"), (_MINUTE, 1, "ms")):
        if whole >= large:
            return f"{whole // large}{signs[0]}{whole % large // small:02d}{signs[1]}"
    return f"{whole}s"


def date(wall_time: float) -> str:
    """Return a time, in seconds since the epoch, as local date and time, or as a number."""
    try:
        return f"{datetime.fromtimestamp(wall_time):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return number(wall_time)


def time_of_day(wall_time: float) -> str:
    """Return a time, in seconds since the epoch, as local time."""
    return date(wall_time).rpartition(" ")[2]


def printable(name: str | AnyPath) -> str:
    """Return ``name`` with control characters, and whatever cannot be printed, escaped."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def tag(name: str) -> str:
    """Return ``name`` printable, without its middle if it is very long; an empty one as ``''``."""
    return _cut(printable(name), _LONG) or "''"


def shortened(names: Sequence[str], width: int | None = None) -> list[str]:
    """Return ``names`` printable, in at most ``width`` columns as long as they stay distinct.

    A name that is too long loses its middle. ``width``: None for a generous limit.
    """
    whole, width = [printable(name) for name in names], width or _LONG
    while len(set(short := [_cut(name, width) for name in whole])) < len(set(whole)):
        width *= 2
    return short


def _cut(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return name
    end = (width - len(_CUT)) // 2
    begin = width - len(_CUT) - end
    return chop_cells(name, begin)[0] + _CUT + chop_cells(name[::-1], end)[0][::-1]


def count(quantity: int, noun: str) -> str:
    """Return ``quantity`` with its noun: ``1 file``, ``2 files``."""
    return f"{quantity} {noun}" if quantity == 1 else f"{quantity} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return ``names`` separated by commas; of many the first ten and the number of the rest."""
    if not names:
        return "none"
    rest = len(names) - _MANY
    return ", ".join(map(tag, names[:_MANY])) + (f" and {rest} more" if rest > 0 else "")
