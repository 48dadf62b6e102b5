"""The programs of the gallery, run as a user runs them, and what they leave."""

import io
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

import runhooks as rh
from tests.gallery.lines import PROGRAMS, counts

KILLED = Path(__file__).with_name("killed.py")
RANK = Path(__file__).parents[1] / "torch" / "example_rank.py"


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


class Forked:
    """Programs of the gallery in processes of a launcher, which find modules loaded.

    Args:
        launcher: A ``Launcher`` with the modules.
        folder: Where their logs go.
    """

    def __init__(self, launcher, folder):
        self.launcher, self.folder = launcher, folder
        self.started = 0

    def start(self, name, directory, *arguments, kill=(), ranks=1):
        """Start the program, on so many ranks as ``torchrun`` does; return its processes.

        Args:
            name: The program.
            directory: Of its run.
            arguments: For the program.
            kill: A function of it, and which call of that is the one where the last rank is killed.
            ranks: How many.
        """
        self.started += 1
        words = [PROGRAMS / f"{name}.py", "--dir", directory, *arguments]
        folder = self.folder / f"ranks-{self.started}"
        folder.mkdir()
        found = []
        for rank in range(ranks):
            command = [KILLED, *kill, *words] if kill and rank == ranks - 1 else words
            if ranks > 1:
                command = [RANK, str(rank), str(ranks), folder, *command]
            log = folder / f"{rank}.log"
            found.append((log, self.launcher.start(log, *command)))
        return found

    def ends(self, started):
        """Wait for the end of what was started; return each one's status, and what it printed."""
        return [(self.launcher.wait(process), log.read_text()) for log, process in started]

    def printed(self, started):
        """Return what the first has printed, after the good ends of all."""
        ends = self.ends(started)
        assert {status for status, _ in ends} == {0}, ends
        return ends[0][1].splitlines()


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
