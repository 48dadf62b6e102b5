"""Draws docs/pictures/*.svg: the life cycle from the table that the tests use, and five sequences.

``python docs/scripts/diagrams.py`` writes them; a test compares them with what this file draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from drawing import LINE, Drawing, Point, sequence, tell
from runhooks import contract

PICTURES = Path(__file__).parents[1] / "pictures"

# --- The life cycle

#: Where the box of each phase stands: its column and its row.
PLACES = {
    "open": (0, 0),
    "run": (0, 1),
    "end": (0, 2),
    "recovery": (1, 0),
    "bad-run": (1, 1),
    "failure": (1, 2),
}
KINDS = {"recovery": "warn", "bad-run": "warn", "failure": "bad", "raises": "bad", "end": "good"}
BOX, ROW, LEFT = 262, 152, 50
WIDTH = 800


def tables() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the phases and the lives that the contract lists: the words of each, by name."""
    phases, lives = (
        {words[0]: words[1:] for words in map(str.split, part.strip().splitlines())}
        for part in (contract.__doc__ or "").split("\n\n")[-2:]
    )
    return phases, lives


def life_cycle() -> str:
    """Return the picture of the phases, and of what follows what in the lives of the table."""
    phases, lives = tables()
    drawing = Drawing(WIDTH, "The life cycle of hooks: phases, and what follows what")
    for phase, events in phases.items():
        x, y = corner(phase)
        height = 34 + LINE * len(events)
        kind = KINDS.get(phase)
        drawing.box(x, y, BOX, height, f"{kind}-fill" if kind else "box")
        drawing.text(x + 12, y + 20, phase, "bold")
        for number, event in enumerate(events):
            drawing.text(x + 12, y + 42 + LINE * number, said(event), "code")
    followed = {
        pair for words in lives.values() for pair in pairwise(words) if phases.keys() >= set(pair)
    }
    for before, after in sorted(followed):
        draw_edge(drawing, before, after, len(phases[before]), (after, before) in followed)
    return drawing.svg()


def corner(phase: str) -> Point:
    """Return the upper left corner of the box of a phase."""
    column, row = PLACES[phase]
    return Point(LEFT + column * (BOX + 150), 6 + row * ROW)


def said(event: str) -> str:
    """Return an event of the table in the words of the picture."""
    which, _, method = event.partition(":")
    return f"{method} of each hook" if which == "each" else event.replace("-", " ")


def draw_edge(drawing: Drawing, before: str, after: str, events: int, is_mutual: bool) -> None:
    """Draw the arrow from one phase to one that follows it."""
    start, end = corner(before), corner(after)
    height, aside = 34 + LINE * events, 16 if is_mutual else 0
    kind = KINDS.get(after, "") if after != "end" else ""
    if before == after:
        y = start.y + 22
        path = (Point(start.x, y), Point(start.x - 32, y), Point(start.x - 32, y + 34))
        drawing.arrow(*path, Point(start.x, y + 34))
    elif start.x == end.x:
        middle = start.x + BOX / 2 + (aside if start.y < end.y else -aside)
        if start.y < end.y:
            drawing.arrow(Point(middle, start.y + height), Point(middle, end.y), kind=kind)
        else:
            below = end.y + 34 + LINE * len(tables()[0][after])
            drawing.arrow(Point(middle, start.y), Point(middle, below), kind=kind)
    else:
        draw_across(drawing, before, after, kind)


def draw_across(drawing: Drawing, before: str, after: str, kind: str) -> None:
    """Draw the arrow from a phase of one column to one of the other."""
    start, end = corner(before), corner(after)
    to_the_right = start.x < end.x
    down = (PLACES[after][1] - PLACES[before][1]) * 14
    leave = Point(start.x + (BOX if to_the_right else 0), start.y + 40 + down)
    reach = Point(end.x + (0 if to_the_right else BOX), end.y + 40 - down)
    drawing.arrow(leave, reach, kind=kind)


def lives() -> str:
    """Return the picture of all lives: a row each, its phases in order."""
    phases, all_lives = tables()
    drawing = Drawing(WIDTH, "All lives of a session and its hooks")
    y = 4.0
    for name, words in all_lives.items():
        drawing.text(0, y + 17, name, "code")
        x = 222.0
        for word in words:
            width = 7.3 * len(word) + 14
            if x + width > WIDTH:
                x, y = 222.0, y + 30
            kind = KINDS.get(word)
            is_phase = word in phases or word == "raises"
            drawing.box(x, y, width, 25, f"{kind}-fill" if kind and is_phase else "box", 12)
            drawing.text(x + 7, y + 17, word, "code" if is_phase else "code quiet")
            x += width + 6
        y += 34
    return drawing.svg()


# --- Sequences


def run() -> str:
    """Return the picture of a run in which a hook is due."""
    return sequence(
        "One run in which a hook is due",
        ["your loop", "session", "hooks", "engine"],
        [
            tell(0, 1, 'run("train_op")'),
            tell(1, 2, "before_run"),
            tell(2, 1, 'SessionRunArgs("loss")'),
            tell(1, 1, "one list of", "fetches and feeds", code=False),
            tell(1, 3, "train_op, loss: one call"),
            tell(3, 3, "stores new values", "of variables", code=False),
            tell(3, 1, "results"),
            tell(1, 2, "after_run(results)"),
            tell(2, 1, "next_due: step 200"),
            tell(1, 0, "what the loop asked for", code=False),
        ],
        WIDTH,
    )


def off_step() -> str:
    """Return the picture of a run in which no hook is due."""
    return sequence(
        "A run in which no hook is due",
        ["your loop", "session", "hooks", "engine"],
        [
            tell(0, 1, 'run("train_op")'),
            tell(1, 1, "step 101 < 200:", "no hook is due", code=False),
            tell(1, 3, "train_op: one call"),
            tell(2, 2, "not called,", "nothing fetched", code=False),
            tell(3, 1, "result"),
            tell(1, 0, "what the loop asked for", code=False),
        ],
        WIDTH,
    )


def recovery() -> str:
    """Return the picture of a lost session that is replaced."""
    return sequence(
        "A recovery",
        ["your loop", "monitored session", "raw session", "hooks"],
        [
            tell(0, 1, 'run("train_op"), step 130'),
            tell(1, 2, "run"),
            tell(2, 1, "AbortedError", kind="bad"),
            tell(1, 2, "close", kind="warn"),
            tell(1, 1, "waits, as the", "RecoveryPolicy says", kind="warn", code=False),
            tell(1, 2, "a new one", kind="good", code=False),
            tell(2, 2, "restores the latest", "checkpoint: step 100", kind="good", code=False),
            tell(1, 3, "load_state_dict, after_create_session"),
            tell(1, 2, "the same run again, as step 101", kind="good", code=False),
            tell(2, 1, "result"),
            tell(1, 0, "the loop notices nothing", code=False),
        ],
        WIDTH,
    )


def checkpoint() -> str:
    """Return the picture of the commit of a checkpoint."""
    return sequence(
        "The commit of a checkpoint",
        ["saver", "disk", "if killed here"],
        [
            tell(0, 1, "writes a temporary file", code=False),
            tell(2, 2, "model.ckpt-100 is the latest;", "the file is removed", code=False),
            tell(0, 1, "fsync of the file", code=False),
            tell(2, 2, "model.ckpt-100 is the latest", code=False),
            tell(0, 1, "moves it to model.ckpt-200", kind="good", code=False),
            tell(0, 1, "fsync of the directories", code=False),
            tell(2, 2, "model.ckpt-200 is the latest", kind="good", code=False),
            tell(0, 1, "deletes old checkpoints", code=False),
        ],
        WIDTH,
    )


def agreement() -> str:
    """Return the picture of ranks that agree on the run before which they stop."""
    return sequence(
        "Ranks agree on the run before which they stop",
        ["loop of rank 0", "its thread", "store", "thread of rank 1", "loop of rank 1"],
        [
            tell(4, 4, "SIGTERM in", "run 41", kind="warn", code=False),
            tell(4, 3, "stop?", kind="warn", code=False),
            tell(3, 2, "entry 1: stop", kind="warn", code=False),
            tell(2, 1, "entry 1: stop", kind="warn", code=False),
            tell(1, 0, "wait before", "the next run", code=False),
            tell(3, 4, "wait before", "the next run", code=False),
            tell(1, 2, "has begun run 42", code=False),
            tell(3, 2, "has begun run 41", code=False),
            tell(1, 0, "stop before 43", kind="good", code=False),
            tell(3, 4, "stop before 43", kind="good", code=False),
            tell(0, 0, "run 42, saves", kind="good", code=False),
            tell(4, 4, "run 42, saves", kind="good", code=False),
        ],
        860,
    )


def pictures() -> Mapping[str, str]:
    """Return all pictures by the names of their files."""
    drawn = (life_cycle, lives, run, off_step, recovery, checkpoint, agreement)
    return {f"{it.__name__.replace('_', '-')}.svg": it() for it in drawn}


def outdated() -> Iterator[str]:
    """Yield the names of the pictures in docs/pictures that are not what this file draws."""
    for name, svg in pictures().items():
        file = PICTURES / name
        if not file.exists() or file.read_text(encoding="utf-8") != svg:
            yield name


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (PICTURES / name).write_text(svg, encoding="utf-8")
