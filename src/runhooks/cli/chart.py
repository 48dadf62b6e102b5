"""Curves drawn with the characters of a terminal: sparklines, and charts by plotext."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from runhooks.cli import formats, output
from runhooks.events import Scalars

#: How many lines can be told apart: by the colors that every terminal has, or by letters.
LINES = 12
_COLORS = (6, 3, 5, 2, 1, 4, 14, 11, 13, 10, 9, 12)
_HEIGHT = range(8, 21)
_NARROWEST = 24
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
_BLOCKS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "✕"
_LARGEST = float(np.finfo(np.float64).max)

_Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


class Line(NamedTuple):
    """The curve of one run."""

    name: str
    scalars: Scalars

    @property
    def non_finite(self) -> int:
        """The number of values that cannot be drawn."""
        return int(np.count_nonzero(~np.isfinite(self.scalars.values)))


class Axis(NamedTuple):
    """The interval that a chart shows and its ticks, both in the units of the data."""

    low: float
    high: float
    ticks: NDArray[np.float64]

    @classmethod
    def over(cls, data: Sequence[NDArray[np.float64]], ticks: int, whole: bool = False) -> Axis:
        """Return the axis over finite ``data``, with about as many ``ticks``, integers if whole."""
        filled = [it for it in data if len(it)]
        low = min(float(it.min()) for it in filled)
        high = max(float(it.max()) for it in filled)
        if low / 2 == high / 2:
            room = max(abs(low) / 10, 1.0) if whole else abs(low) / 10 or 1.0
            low, high = max(low - room, -_LARGEST), min(low + room, _LARGEST)
        return cls(low, high, _round_numbers(low, high, ticks, whole))

    @property
    def labels(self) -> list[str]:
        """The labels of the ticks."""
        return [formats.number(float(it)) for it in self.ticks]

    def placed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions of ``values`` on the axis, from 0 to 1."""
        low, high = self.low / 2, self.high / 2  # half: the difference may overflow
        return (values / 2 - low) / (high - low)


def write_chart(title: str, lines: Sequence[Line]) -> None:
    """Print ``lines``, at most ``LINES``, as one chart with a legend."""
    console = output.console()
    colored = console.color_system is not None and not console.no_color
    width = max(_NARROWEST, console.width)
    height = min(_HEIGHT[-1], max(_HEIGHT[0], console.height - len(lines) - 3))
    curves = [thinned(line.scalars, 2 * width) for line in lines]
    letters = string.ascii_lowercase if len(lines) > 1 and not colored else None
    output.write(title, "bold")
    if any(len(steps) for steps, _ in curves):
        output.write(_drawn(curves, letters, width, height, colored))
    for index, line in enumerate(lines):
        mark = letters[index] if letters else "━━" if output.has_blocks() else "--"
        legend = Text(mark, f"color({_COLORS[index]})")
        legend.append(f" {formats.printable(line.name)}", "default")
        if line.non_finite:
            legend.append(f", {line.non_finite} not finite", "red")
        output.write(legend)


def sparkline(scalars: Scalars, width: int) -> str:
    """Return ``width`` characters, from the first step to the last; each is the mean of its steps.

    A space stands where there is no point, a cross where no point is finite.
    """
    steps, values = scalars.steps.astype(np.float64), scalars.values
    places = _scaled(steps) * (width - 1)
    columns = np.round(places).astype(np.int64)
    finite = np.isfinite(values)
    heights = np.zeros(len(values))
    heights[finite] = _scaled(values[finite])
    counts = np.bincount(columns[finite], minlength=width)
    sums = np.bincount(columns[finite], heights[finite], minlength=width)
    used = np.bincount(columns, minlength=width)
    means = np.divide(sums, counts, out=np.zeros(width), where=counts > 0)
    blocks = np.array(list(_BLOCKS))[np.round(means * (len(_BLOCKS) - 1)).astype(np.int64)]
    return "".join(np.where(counts > 0, blocks, np.where(used > 0, _NOT_FINITE, " "))).rstrip()


def thinned(scalars: Scalars, columns: int) -> _Curve:
    """Return steps and finite values in the order of steps, at most four points to a column.

    Nothing visible is lost: the lowest, the highest, the first and the last value of each column
    are kept.
    """
    order = np.argsort(scalars.steps, kind="stable")
    order = order[np.isfinite(scalars.values[order])]
    steps, values = scalars.steps[order].astype(np.float64), scalars.values[order]
    if len(steps) <= 4 * columns:
        return steps, values
    column = np.minimum(_scaled(steps) * columns, columns - 1).astype(np.int64)
    by_value = np.lexsort((values, column))
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    ends = np.append(starts[1:], len(column)) - 1
    kept = np.unique(np.concatenate([starts, ends, by_value[starts], by_value[ends]]))
    return steps[kept], values[kept]


def _drawn(
    curves: Sequence[_Curve], letters: str | None, width: int, height: int, colored: bool
) -> Text:
    import plotext  # takes a tenth of a second, which only this command needs

    x = Axis.over([steps for steps, _ in curves], max(2, width // 12), whole=True)
    y = Axis.over([values for _, values in curves], max(2, height // 3))
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.theme("simple")
    figure.plot_size(width, height)
    for axis, name, side in ((x, "x", "lower"), (y, "y", "left")):
        places = axis.placed(axis.ticks).tolist()
        figure.ruler(name, side).lim(0, 1).ticks(places, axis.labels)
    for index, (steps, values) in enumerate(curves):
        shape = letters[index] if letters else "braille" if output.has_blocks() else "*"
        marker = plotext.marker(shape, pixel=plotext.pixel(_COLORS[index]))
        signal = figure.signal(x.placed(steps).tolist(), y.placed(values).tolist(), marker=marker)
        figure.draw(signal.lines())
    drawn: str = figure.build().string(not colored).rstrip("\n")
    return Text.from_ansi(drawn if output.has_blocks() else drawn.translate(_ASCII))


def _round_numbers(low: float, high: float, ticks: int, whole: bool) -> NDArray[np.float64]:
    rough = high / ticks - low / ticks
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 0.0
    if not power:  # too close to zero to be divided any further
        return np.array([low, high])
    step = next(it * power for it in (1, 2, 5, 10) if it * power >= rough)
    step = max(step, 1.0) if whole else step
    first, last = math.ceil(low / step), math.floor(high / step)
    return np.array([it * step for it in range(first, last + 1)])


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return finite ``values`` scaled to 0 to 1; equal ones are in the middle."""
    if not len(values):
        return values
    low, high = values.min() / 2, values.max() / 2  # half: the difference may overflow
    return (values / 2 - low) / (high - low) if high > low else np.full(len(values), 0.5)
