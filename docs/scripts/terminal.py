"""Runs a command in a terminal of its own, and draws as SVG what the terminal shows at the end."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import pyte

COLUMNS, ROWS = 96, 48
WIDTH, HEIGHT = 7.8, 17  # pixels of a character
FONT = 'ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace'
PAPER, INK = "#0d1117", "#d6dde6"
COLORS = {
    "default": INK,
    "black": "#6e7681",
    "red": "#ff7b72",
    "green": "#7ee787",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": "#f0f6fc",
}


def shown(command: Sequence[str], folder: Path, rows: int = ROWS) -> pyte.Screen:
    """Run ``command`` in ``folder`` and return the screen of its terminal when it has ended."""
    screen = pyte.Screen(COLUMNS, rows)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ):
        os.close(theirs)
        written = b"".join(iter(lambda: read(ours), b""))
    os.close(ours)
    stream.feed(written.replace(f"{folder}/".encode(), b""))
    return screen


def read(terminal: int) -> bytes:
    """Return what a terminal is given next, or nothing when it has been closed."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def picture(screen: pyte.Screen, prompt: str) -> str:
    """Return the SVG of ``screen`` below the command ``prompt``."""
    filled = [number for number, line in enumerate(screen.display) if line.strip()]
    lines = [line_of(screen, number, number + 1) for number in range(max(filled, default=-1) + 1)]
    command = text_of(f"$ {prompt}", 0, 0, COLORS["white"], is_bold=True)
    width, height = COLUMNS * WIDTH + 24, (len(lines) + 1) * HEIGHT + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height}" '
        f'viewBox="0 0 {width:g} {height}">\n<title>What {escape(prompt)} shows</title>\n'
        f'<rect width="{width:g}" height="{height}" rx="8" fill="{PAPER}"/>\n'
        f"<g font-family='{FONT}' font-size='13'>\n"
        + "\n".join([command, *lines])
        + "\n</g></svg>\n"
    )


def line_of(screen: pyte.Screen, number: int, row: int) -> str:
    """Return a line of the screen as text elements, one for each run of characters of a style."""
    cells = [screen.buffer[number][column] for column in range(COLUMNS)]
    parts, column = [], 0
    for (color, is_bold), group in groupby(cells, key=lambda it: (it.fg, it.bold)):
        words = "".join(cell.data for cell in group)
        if words.strip():
            parts.append(text_of(words, column, row, COLORS.get(color, f"#{color}"), is_bold))
        column += len(words)
    return "".join(parts)


def text_of(words: str, column: int, row: int, color: str, is_bold: bool) -> str:
    """Return characters at their place, whatever the width of the reader's font."""
    left = len(words) - len(words.lstrip())
    words = words.strip()
    weight = ' font-weight="bold"' if is_bold else ""
    return (
        f'<text x="{12 + (column + left) * WIDTH:g}" y="{12 + row * HEIGHT + 13}" '
        f'textLength="{len(words) * WIDTH:g}" fill="{color}"{weight} xml:space="preserve">'
        f"{escape(words)}</text>"
    )
