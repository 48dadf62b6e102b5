"""Plots of a topic: a panel a table, each cost with its quartiles, and lines for growth."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from bench.table import Growth, Row, Table, by_size
from bench.text import number
from bench.topics import Topic

COLOURS = {"ours": "#1565c0", "peer": "#8d6e63", "limit": "#616161"}
PEERS = ["#8d6e63", "#ef6c00", "#2e7d32", "#6a1b9a", "#c2185b"]  # the lines of each
WIDTH, LINE, MARGIN, GROWTH = 8.0, 0.22, 0.45, 3.2  # inches

# The same results give the same file, in the reader's own font. What is clipped would not: its
# clip path is named by an address in memory.
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "runhooks", "font.size": 9}


def draw(topic: Topic, path: Path) -> None:
    """Draw all tables and growths of a topic, one below the other."""
    tables, growths = topic["tables"], topic["growths"]
    heights = [MARGIN + LINE * len(table["rows"]) for table in tables]
    heights += [GROWTH] * len(growths)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained", facecolor="white")
        panels = figure.subplots(
            len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights}
        )[:, 0]
        for panel, table in zip(panels, tables, strict=False):
            _draw_table(panel, table)
        for panel, growth in zip(panels[len(tables) :], growths, strict=True):
            _draw_growth(panel, growth)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _draw_table(panel: Any, table: Table) -> None:
    rows = list(reversed(table["rows"]))
    longest = max(row["cost"]["high"] for row in rows)
    for at, row in enumerate(rows):
        cost = row["cost"]
        panel.barh([at], [cost["median"]], height=0.6, color=_colour(row), clip_on=False)
        panel.plot([cost["low"], cost["high"]], [at, at], color="black", linewidth=1, clip_on=False)
        panel.text(cost["high"] + 0.01 * longest, at, number(cost["median"]), va="center")
    panel.set_yticks(range(len(rows)), [row["name"] for row in rows])
    panel.set_xlim(0, 1.12 * longest)
    panel.set_xticks([])
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    panel.set_title(f"{table['title']}, {table['unit']}", fontsize=9, loc="left", weight="bold")


def _draw_growth(panel: Any, growth: Growth) -> None:
    rows, costs = growth["tables"][0]["rows"], by_size(growth)
    peers = itertools.cycle(PEERS)
    for row in rows:
        (line,) = panel.plot(growth["sizes"], costs[row["name"]], marker=".", label=row["name"])
        colour = next(peers) if row["role"] == "peer" else _colour(row)
        line.set(color=colour, clip_on=False)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.minorticks_off()
    panel.set_xlabel(growth["axis"])
    unit = growth["tables"][0]["unit"]
    panel.set_title(f"{growth['title']}, {unit}", fontsize=9, loc="left", weight="bold")
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _colour(row: Row) -> str:
    return COLOURS[row["role"]]
