"""The programs of the gallery, run as a user runs them, and what they leave."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

import runhooks as rh
from tests.gallery.lines import PROGRAMS, counts

KILLED = Path(__file__).with_name("killed.py")


class Runs(NamedTuple):
    """The directories of a plain run, of a hooked one, and of one that was killed and resumed."""

    plain: Path
    hooked: Path
    resumed: Path
    printed: list[str]  # by the hooked run
    printed_again: list[str]  # by the one that was killed, and after that by the resumed one


def start(name, directory, *arguments, kill=()):
    command = [str(PROGRAMS / f"{name}.py"), "--dir", str(directory), *arguments]
    if kill:
        command = [str(KILLED), *map(str, kill), *command]
    return subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)


def output_of(process, code=0):
    printed, _ = process.communicate()
    assert process.returncode == code
    return printed.splitlines()


def all_runs(name, folder, kill, *arguments):
    """Run the program ``name`` in ``folder`` three times.

    Args:
        kill: A function of the program, and which call of it is the one where it is killed.
        arguments: For the program.
    """
    plain, hooked, resumed = (folder / it for it in ("plain", "hooked", "resumed"))
    undisturbed = start(name, hooked, *arguments)
    killed = start(name, resumed, *arguments, kill=kill)
    printed, first = output_of(undisturbed), output_of(killed, -9)
    by_hand, rest = start(name, plain, "--plain", *arguments), start(name, resumed, *arguments)
    output_of(by_hand)
    return Runs(plain, hooked, resumed, printed, [*first, *output_of(rest)])


def as_bytes(tree):
    """Return the arrays of a tree of arrays, in the order of their names, by these."""
    return {path: np.asarray(leaf).tobytes() for path, leaf in flat(tree)}


def flat(tree, path=""):
    for name, it in sorted(tree.items()):
        if isinstance(it, dict):
            yield from flat(it, f"{path}{name}/")
        else:
            yield f"{path}{name}", it


def check_resumed(runs):
    """What was killed has ended with the bits of the undisturbed run, and has printed its lines."""
    assert as_bytes(rh.load(runs.resumed)) == as_bytes(rh.load(runs.hooked))
    assert list(dict.fromkeys(runs.printed_again)) == runs.printed
    tested = rh.read_eval_metrics(runs.hooked / "test")
    assert rh.read_eval_metrics(runs.resumed / "test") == tested
    return tested


def check_shorter(name):
    plain, hooked = counts(PROGRAMS / f"{name}.py")
    assert hooked < plain
