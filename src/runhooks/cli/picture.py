"""``draw``: charts as a PNG file, by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runhooks.cli.chart import Line
from runhooks.cli.curve import thinned

_WIDTH, _HEIGHT = 8.0, 4.5  # inches
_DOTS = 150  # an inch
_MOST_NAMES = 20


def draw(charts: Mapping[str, Sequence[Line]], path: Path) -> None:
    """Draw one chart a tag, one below the other, into the file ``path``.

    Raises OSError if it cannot be written.
    """
    from matplotlib.figure import Figure  # takes a second

    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(charts)), layout="constrained")
    for row, (tag, lines) in enumerate(charts.items(), start=1):
        axes = figure.add_subplot(len(charts), 1, row)
        for line in lines:
            axes.plot(*thinned(line.scalars, int(_WIDTH * _DOTS)), linewidth=1)
        axes.set_title(tag, parse_math=False)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        if len(lines) <= _MOST_NAMES:
            legend = axes.legend(axes.lines, ["" for _ in lines])
            for text, line in zip(legend.get_texts(), lines, strict=True):
                text.set_text(line.name)  # a label that begins with _ would be left out
                text.set_parse_math(False)
    figure.savefig(path, format="png", dpi=_DOTS)
