"""The programs of the gallery, run as a user runs them, and what they leave."""

import io
import itertools
import re
import signal
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

import runhooks as rh
from tests.gallery.lines import PROGRAMS, counts

KILLED = Path(__file__).with_name("killed.py")
PRINTED = re.compile(r"epoch \d+: ")  # the rest is logged


class Runs(NamedTuple):
    """The directories of a plain run, of a hooked one, and of one that was killed and resumed."""

    plain: Path
    hooked: Path
    resumed: Path
    printed: list[str]  # by the hooked run
    printed_again: list[str]  # by the one that was killed, and after that by the resumed one


def all_runs(launcher, folders, name, kill, *arguments):
    """Run a program three times: by hand, hooked, and hooked, killed and resumed.

    Args:
        launcher: Starts processes that find its framework loaded.
        folders: Makes temporary folders.
        name: The name of the program.
        kill: A function of the program, and which call of it is the one where it is killed.
        arguments: For the program.
    """
    program, folder = PROGRAMS / f"{name}.py", folders.mktemp(name)

    def start(directory, *words):
        log = folder / f"{next(numbers)}.log"
        return launcher.start(log, *words, "--dir", directory, *arguments), log

    def printed_by(process, log, status=0):
        assert launcher.wait(process) == status, log.read_text()
        return [line for line in log.read_text().splitlines() if PRINTED.match(line)]

    numbers = itertools.count()
    plain, hooked, resumed = (folder / it for it in ("plain", "hooked", "resumed"))
    printed = printed_by(*start(hooked, program))  # what JAX compiles, others find
    killed, by_hand = start(resumed, KILLED, *kill, program), start(plain, program, "--plain")
    first = printed_by(*killed, -signal.SIGKILL)
    rest = printed_by(*start(resumed, program))
    printed_by(*by_hand)
    return Runs(plain, hooked, resumed, printed, [*first, *rest])


def as_bytes(tree):
    """Return the arrays of a tree of arrays, in the order of their names, by these."""
    return {path: np.asarray(leaf).tobytes() for path, leaf in flat(tree)}


def flat(tree, path=""):
    for name, it in sorted(tree.items()):
        if isinstance(it, dict):
            yield from flat(it, f"{path}{name}/")
        else:
            yield f"{path}{name}", it


def pictures(points):
    """Return the pictures of one tag, by the step."""
    return {step: pixels_of(io.BytesIO(images[0].encoded)) for step, _, images in points}


def pixels_of(file):
    return np.asarray(Image.open(file))


def check_same_end(runs):
    """What was killed has ended with the bits of the undisturbed run, and has printed its lines."""
    assert as_bytes(rh.load(runs.resumed)) == as_bytes(rh.load(runs.hooked))
    assert list(dict.fromkeys(runs.printed_again)) == runs.printed


def check_resumed(runs):
    """As ``check_same_end``, with the same evaluations; return these."""
    check_same_end(runs)
    tested = rh.read_eval_metrics(runs.hooked / "test")
    assert rh.read_eval_metrics(runs.resumed / "test") == tested
    return tested


def check_shorter(name):
    plain, hooked = counts(PROGRAMS / f"{name}.py")
    assert hooked < plain
