"""``runhooks plot``: curves in the terminal; and ``sparkline``."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from runhooks.cli import output
from runhooks.cli.runs import Higher, Json, Lower, NamedRun, RunPaths, Tags, read_runs
from runhooks.cli.summary import Goals, best_first, summarized
from runhooks.events import Scalars

_COLORS = (6, 3, 5, 2, 1, 4, 14, 11, 13, 10, 9, 12)  # that every terminal has
_LINES = len(_COLORS)
_HEIGHT = range(8, 21)
_NARROWEST = 24
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
_BLOCKS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "✕"
_LARGEST = float(np.finfo(np.float64).max)

_Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


class _Line(NamedTuple):
    name: str
    scalars: Scalars

    @property
    def non_finite(self) -> int:
        return int(np.count_nonzero(~np.isfinite(self.scalars.values)))


def plot(
    run: RunPaths,
    tag: Tags = None,
    lower: Lower = None,
    higher: Higher = None,
    json: Json = False,
) -> None:
    """Plot scalars: one chart per tag, one line per run.

    --tag may be left out if the runs have only one scalar tag. Values that are not finite are left
    out. A chart has the best 12 runs if there are more.
    """
    runs = read_runs(run, tag, "scalar")
    by_tag = {it: _lines(runs, it) for it in _tags(runs, bool(tag))}
    if json:
        output.write_json([_as_json(it, line) for it, lines in by_tag.items() for line in lines])
        return
    every = [line for lines in by_tag.values() for line in lines]
    if all(line.non_finite == len(line.scalars.steps) for line in every):
        raise output.CommandError(f"there is no finite value of {output.listed([*by_tag])} to plot")
    _write_charts(by_tag, Goals(lower, higher))


def _tags(runs: Sequence[NamedRun], chosen: bool) -> list[str]:
    tags = sorted(
        {tag for it in runs for tag, scalars in it.run.scalars.items() if len(scalars.steps)}
    )
    if len(tags) > 1 and not chosen:
        raise output.CommandError(f"choose what to plot with --tag: {output.listed(tags)}")
    return tags


def _lines(runs: Sequence[NamedRun], tag: str) -> list[_Line]:
    found = [(it.name, it.run.scalars.get(tag)) for it in runs]
    return [_Line(name, it) for name, it in found if it is not None and len(it.steps)]


def _as_json(tag: str, line: _Line) -> dict[str, Any]:
    columns = {name: column.tolist() for name, column in line.scalars._asdict().items()}
    return {"tag": tag, "run": line.name, **columns}


def _write_charts(by_tag: Mapping[str, Sequence[_Line]], goals: Goals) -> None:
    goals.check(by_tag)
    chosen = {tag: _best(tag, lines, goals) for tag, lines in by_tag.items()}
    for index, (tag, lines) in enumerate(chosen.items()):
        if index:
            output.write()
        _write_chart(output.tag(tag), lines)
        if len(lines) < (count := len(by_tag[tag])):
            which = "lowest" if goals.of(tag) == "min" else "highest"
            output.say(
                f"the {len(lines)} of {count} runs with the {which} {output.tag(tag)}", "dim"
            )


def _best(tag: str, lines: Sequence[_Line], goals: Goals) -> list[_Line]:
    if len(lines) <= _LINES:
        return list(lines)
    goal = goals.decided(tag)
    best = best_first(lines, goal, lambda line: summarized(tag, line.scalars, goal))[:_LINES]
    chosen = set(map(id, best))
    return [line for line in lines if id(line) in chosen]


def _write_chart(title: str, lines: Sequence[_Line]) -> None:
    console = output.console()
    colored = console.color_system is not None and not console.no_color
    width = max(_NARROWEST, console.width)
    height = min(_HEIGHT[-1], max(_HEIGHT[0], console.height - len(lines) - 3))
    curves = [_thinned(line.scalars, 2 * width) for line in lines]
    letters = string.ascii_lowercase if len(lines) > 1 and not colored else None
    output.write(title, "bold")
    if any(len(steps) for steps, _ in curves):
        output.write(_drawn(curves, letters, width, height, colored))
    for index, line in enumerate(lines):
        mark = letters[index] if letters else "━━" if output.has_blocks() else "--"
        legend = Text(mark, f"color({_COLORS[index]})")
        legend.append(f" {output.printable(line.name)}", "default")
        if line.non_finite:
            legend.append(f", {line.non_finite} not finite", "red")
        output.write(legend)


def sparkline(scalars: Scalars, width: int) -> str:
    """Return ``width`` characters from the first step to the last, each the mean of its steps.

    A space stands for no point, a cross for none that is finite.
    """
    steps, values = scalars.steps.astype(np.float64), scalars.values
    columns = np.round(_scaled(steps) * (width - 1)).astype(np.int64)
    finite = np.isfinite(values)
    counts = np.bincount(columns[finite], minlength=width)
    sums = np.bincount(columns[finite], _scaled(values[finite]), minlength=width)
    used = np.bincount(columns, minlength=width)
    means = np.divide(sums, counts, out=np.zeros(width), where=counts > 0)
    blocks = np.array(list(_BLOCKS))[np.round(means * (len(_BLOCKS) - 1)).astype(np.int64)]
    return "".join(np.where(counts > 0, blocks, np.where(used > 0, _NOT_FINITE, " "))).rstrip()


def _thinned(scalars: Scalars, columns: int) -> _Curve:
    """Return steps and finite values in the order of steps, at most four points to a column."""
    order = np.argsort(scalars.steps, kind="stable")
    order = order[np.isfinite(scalars.values[order])]
    steps, values = scalars.steps[order].astype(np.float64), scalars.values[order]
    if len(steps) <= 4 * columns:
        return steps, values
    column = np.minimum(_scaled(steps) * columns, columns - 1).astype(np.int64)
    by_value = np.lexsort((values, column))
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    ends = np.append(starts[1:], len(column)) - 1
    # First, last, lowest and highest: nothing visible is lost.
    kept = np.unique(np.concatenate([starts, ends, by_value[starts], by_value[ends]]))
    return steps[kept], values[kept]


class _Axis(NamedTuple):
    low: float
    high: float
    ticks: NDArray[np.float64]

    @classmethod
    def over(cls, data: Sequence[NDArray[np.float64]], ticks: int, whole: bool = False) -> _Axis:
        together = np.concatenate(data)
        low, high = float(together.min()), float(together.max())
        if low / 2 == high / 2:
            room = max(abs(low) / 10, 1.0) if whole else abs(low) / 10 or 1.0
            low, high = max(low - room, -_LARGEST), min(low + room, _LARGEST)
        return cls(low, high, _round_numbers(low, high, ticks, whole))

    def placed(self, values: NDArray[np.float64]) -> list[float]:
        placed: list[float] = _between(self.low, self.high, values).tolist()
        return placed


def _drawn(
    curves: Sequence[_Curve], letters: str | None, width: int, height: int, colored: bool
) -> Text:
    import plotext  # slow

    x = _Axis.over([steps for steps, _ in curves], max(2, width // 12), whole=True)
    y = _Axis.over([values for _, values in curves], max(2, height // 3))
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.theme("simple")
    figure.plot_size(width, height)
    for axis, name, side in ((x, "x", "lower"), (y, "y", "left")):
        labels = [output.number(float(it)) for it in axis.ticks]
        figure.ruler(name, side).lim(0, 1).ticks(axis.placed(axis.ticks), labels)
    for index, (steps, values) in enumerate(curves):
        shape = letters[index] if letters else "braille" if output.has_blocks() else "*"
        marker = plotext.marker(shape, pixel=plotext.pixel(_COLORS[index]))
        signal = figure.signal(x.placed(steps), y.placed(values), marker=marker)
        figure.draw(signal.lines())
    drawn: str = figure.build().string(not colored).rstrip("\n")
    return Text.from_ansi(drawn if output.has_blocks() else drawn.translate(_ASCII))


def _round_numbers(low: float, high: float, ticks: int, whole: bool) -> NDArray[np.float64]:
    rough = high / ticks - low / ticks
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 0.0
    if not power:  # too close to zero to be divided
        return np.array([low, high])
    step = next(it * power for it in (1, 2, 5, 10) if it * power >= rough)
    step = max(step, 1.0) if whole else step
    first, last = math.ceil(low / step), math.floor(high / step)
    return np.array([it * step for it in range(first, last + 1)])


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return _between(values.min(), values.max(), values) if len(values) else values


def _between(low: float, high: float, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where finite ``values`` are: from 0 to 1, or 0.5 if ``low`` is ``high``."""
    low, high = low / 2, high / 2  # half: the difference may overflow
    return (values / 2 - low) / (high - low) if high > low else np.full(len(values), 0.5)
