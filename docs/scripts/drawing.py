"""Draws boxes, arrows and sequences as SVG that follows the light or dark scheme of its page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

# In a page of the site the colours are those of its theme; elsewhere those of the reader's system.
STYLE = """
svg.drawing { --ink: var(--md-default-fg-color, #24292f); --soft: #8b949e; --paper: #8b949e1f;
  --page: var(--md-default-bg-color, #fff);
  font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
  svg.drawing { --ink: var(--md-default-fg-color, #e6edf3);
    --page: var(--md-default-bg-color, #0d1117); } }
svg.drawing text { fill: var(--ink); }
svg.drawing .over { paint-order: stroke; stroke: var(--page); stroke-width: 4; }
svg.drawing .code { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace;
  font-size: 12px; }
svg.drawing .bold { font-weight: 600; }
svg.drawing .quiet { fill: var(--soft); }
svg.drawing .page { fill: var(--page); }
svg.drawing .box { fill: var(--paper); stroke: var(--soft); }
svg.drawing .line { stroke: var(--soft); fill: none; stroke-width: 1.5; }
svg.drawing .life { stroke: var(--soft); stroke-dasharray: 3 4; }
svg.drawing .head { fill: var(--soft); }
svg.drawing .good { stroke: #2da44e; } svg.drawing .good-fill { fill: #2da44e2b; stroke: #2da44e; }
svg.drawing .bad { stroke: #cf222e; } svg.drawing .bad-fill { fill: #cf222e2b; stroke: #cf222e; }
svg.drawing .warn { stroke: #d4831a; } svg.drawing .warn-fill { fill: #d4831a2b; stroke: #d4831a; }
svg.drawing .good.head { fill: #2da44e; } svg.drawing .bad.head { fill: #cf222e; }
svg.drawing .warn.head { fill: #d4831a; }
"""
LINE = 18  # pixels from one line of text to the next


class Point(NamedTuple):
    """A place in a drawing, in pixels from its upper left corner."""

    x: float
    y: float


class Drawing:
    """A picture that is built up and then asked for its SVG.

    Args:
        width: In pixels.
        title: What the picture shows, for those who cannot see it.
    """

    def __init__(self, width: int, title: str) -> None:
        self.width, self.height = width, 0.0
        self._title = title
        self._behind: list[str] = []
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Write a line with its base at ``y``; ``anchor`` is start, middle or end."""
        self._reach(y + 6)
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._parts.append(f'<text {place} class="{kind}">{escape(words)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "box", radius: int = 6
    ) -> None:
        """Draw a rectangle with round corners."""
        self._reach(y + height + 2)
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" '
            f'class="{kind}"/>'
        )

    def line_behind(self, start: Point, end: Point, kind: str = "line") -> None:
        """Draw a straight line behind all else."""
        self._reach(max(start.y, end.y))
        ends = f'x1="{start.x:g}" y1="{start.y:g}" x2="{end.x:g}" y2="{end.y:g}"'
        self._behind.append(f'<line {ends} class="{kind}"/>')

    def arrow(self, *path: Point, kind: str = "") -> None:
        """Draw a line through ``path`` with a head at its end."""
        (before, end) = path[-2:]
        length = ((end.x - before.x) ** 2 + (end.y - before.y) ** 2) ** 0.5
        dx, dy = (end.x - before.x) / length, (end.y - before.y) / length
        neck = Point(end.x - 8 * dx, end.y - 8 * dy)
        points = " ".join(f"{it.x:g},{it.y:g}" for it in (*path[:-1], neck))
        head = " ".join(
            f"{x:g},{y:g}"
            for x, y in (
                end,
                (neck.x - 4 * dy, neck.y + 4 * dx),
                (neck.x + 4 * dy, neck.y - 4 * dx),
            )
        )
        self._reach(max(it.y for it in path))
        self._parts.append(f'<polyline points="{points}" class="line {kind}"/>')
        self._parts.append(f'<polygon points="{head}" class="head {kind}"/>')

    def svg(self) -> str:
        """Return the picture as it is written to a file."""
        height = self.height + 4
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" role="img" '
            f'viewBox="0 0 {self.width} {height:g}" width="{self.width}" height="{height:g}">\n'
            f"<title>{escape(self._title)}</title>\n<style>{STYLE}</style>\n"
            + "\n".join([*self._behind, *self._parts])
            + "\n</svg>\n"
        )

    def _reach(self, y: float) -> None:
        self.height = max(self.height, y)


class Message(NamedTuple):
    """An arrow of a sequence: who tells whom what. To oneself, it is a box with words.

    Attributes:
        sender: The number of the lane it starts in.
        receiver: The number of the lane it ends in.
        words: What is told, a line each.
        kind: "", "good", "bad" or "warn".
        code: Whether the words are code.
    """

    sender: int
    receiver: int
    words: Sequence[str]
    kind: str = ""
    code: bool = True


def tell(
    sender: int, receiver: int, *words: str, kind: str = "", code: bool | None = None
) -> Message:
    """Return a message, in code between lanes and in words within one, unless ``code`` says it."""
    return Message(sender, receiver, words, kind, sender != receiver if code is None else code)


def sequence(title: str, lanes: Sequence[str], messages: Sequence[Message], width: int) -> str:
    """Return the SVG of ``messages``, from above to below, between ``lanes`` side by side."""
    drawing = Drawing(width, title)
    lane_width = width / len(lanes)
    middles = [lane_width * (number + 0.5) for number in range(len(lanes))]
    y = 52.0
    for message in messages:
        draw = _note if message.sender == message.receiver else _arrow
        y = draw(drawing, message, middles, lane_width, y)
    for name, middle in zip(lanes, middles, strict=True):
        drawing.box(middle - lane_width * 0.42, 2, lane_width * 0.84, 30)
        drawing.text(middle, 22, name, "bold", "middle")
        drawing.line_behind(Point(middle, 32), Point(middle, y - 14), "life")
    return drawing.svg()


def _arrow(
    drawing: Drawing, message: Message, middles: Sequence[float], lane: float, y: float
) -> float:
    start, end = middles[message.sender], middles[message.receiver]
    for words in message.words:
        font = "over code" if message.code else "over"
        drawing.text((start + end) / 2, y, words, font, "middle")
        y += LINE
    y -= LINE - 8
    drawing.arrow(Point(start, y), Point(end, y), kind=message.kind)
    return y + 24


def _note(
    drawing: Drawing, message: Message, middles: Sequence[float], lane: float, y: float
) -> float:
    middle, y = middles[message.sender], y - 10
    height = LINE * len(message.words) + 10
    kind = f"{message.kind}-fill" if message.kind else "box"
    drawing.box(middle - lane * 0.47, y, lane * 0.94, height, "page")
    drawing.box(middle - lane * 0.47, y, lane * 0.94, height, kind)
    for number, words in enumerate(message.words):
        font = "code" if message.code else ""
        drawing.text(middle, y + LINE * (number + 1) - 1, words, font, "middle")
    return y + height + 22
