"""``write_chart``: lines drawn with the characters of a terminal, by plotext."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from runhooks.cli import formats, output
from runhooks.cli.axis import Axis
from runhooks.cli.curve import thinned
from runhooks.events import Scalars

#: How many lines can be told apart: by the colours that every terminal has, or by letters.
LINES = 12
_COLORS = (6, 3, 5, 2, 1, 4, 14, 11, 13, 10, 9, 12)
_HEIGHT = range(8, 21)
_NARROWEST = 24
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")

_Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


class Line(NamedTuple):
    """The curve of one run."""

    name: str
    scalars: Scalars

    @property
    def non_finite(self) -> int:
        """How many values cannot be drawn."""
        return int(np.count_nonzero(~np.isfinite(self.scalars.values)))


def write_chart(title: str, lines: Sequence[Line]) -> None:
    """Print ``lines``, at most ``LINES``, as one chart, and which is whose."""
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
            legend.append(f", less {line.non_finite} not finite", "red")
        output.write(legend)


def _drawn(
    curves: Sequence[_Curve], letters: str | None, width: int, height: int, colored: bool
) -> Text:
    import plotext  # a tenth of a second, which the other commands need not wait for

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
