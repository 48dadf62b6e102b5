"""A training process that is killed, stopped, damaged and starved ends as if nothing had happened.

Each test repeats one history of misfortunes: which, and when, follows from a seed, which a failure
prints; ``SOAK_SEED=... pytest`` plays it again, as closely as a scheduler lets it.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from runhooks.checkpoint import checkpoint_step, checkpoints, latest_checkpoint, read_checkpoint
from runhooks.errors import DataLossError

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("program.py")
SUMMARY_STEPS = 3

START_UP_SECS = {"python": 0.4, "jax": 2.0, "torch": 2.0}
# When a process is killed: after which word of its own, and how many seconds later, at the most.
MOMENTS = {
    "in start-up": (None, None),
    "in training": ("training", 0.2),
    "while it saves": ("saving", 0.01),
    "after it saved": ("saved", 0.01),
    "while it ends": ("ending", 0.02),
}


class Life:
    """One process, from its start to its end: what it told, how it ended, what it complained of."""

    def __init__(self, folder, *options):
        self.options = [str(option) for option in options]
        self.command = [sys.executable, str(PROGRAM), str(folder), *self.options]
        self.told = []
        self.fate = lambda process, word: None

    def live(self):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(self.command, **pipes) as process:
            complaints = []
            reader = threading.Thread(target=lambda: complaints.extend(process.stderr))
            reader.start()
            self.fate(process, None)
            for line in process.stdout:
                if line.endswith("\n"):  # else it was killed in the middle of it
                    self.told.append(line.split())
                    self.fate(process, self.told[-1][0])
            reader.join()
        self.exit = process.returncode
        self.complaints = "".join(complaints)
        return self

    def struck(self, number, word, delay, *, times=1):
        """It gets the signal ``delay`` seconds after it has told ``word`` so many times.

        SIGTERM not before it trains: from then on it is prepared for it.
        """
        left = times
        prepared = number == signal.SIGKILL

        def fate(process, told):
            nonlocal left, prepared
            prepared = prepared or told == "training"
            if prepared and told == word:
                left -= 1
                if left == 0:
                    threading.Timer(delay, process.send_signal, [number]).start()

        before = self.fate
        self.fate = lambda process, told: (before(process, told), fate(process, told))
        return self


class History:
    """A run directory, the processes that trained in it, and what must be true after each."""

    def __init__(self, folder, engine="python"):
        seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32))
        print(f"SOAK_SEED={seed}")
        self.chance = random.Random(seed)
        self.folder, self.engine = folder, engine
        folder.mkdir()
        self.saved = -1  # the last step that a process told to be saved
        self.damaged = set()
        self.curves = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        self.complete = True  # whether every summary of a saved step must be there

    def life(self, *options):
        """A process with faults of its own, that saves in the way that chance chooses."""
        more = ["--engine", self.engine, "--faults", self.chance.randrange(1, 2**32)]
        if self.chance.random() < 0.5:
            more.append("--asynchronous")
        return Life(self.folder, *more, *options)

    def lived(self, life):
        """Hold what is on the disk against what the process told. Returns it."""
        life.live()
        print(*life.options, "->", life.exit, life.told[-2:])
        for word, step, *_ in life.told:
            if word == "saved":
                self.saved = int(step)
            elif word == "start":
                assert int(step) >= self.saved, f"step {self.saved} was saved and is lost"
        self.check_checkpoints()
        self.check_curves()
        return life

    def check_checkpoints(self):
        for path in map(Path, checkpoints(self.folder)):
            try:
                read_checkpoint(path)
            except DataLossError:
                assert path in self.damaged, f"{path} cannot be loaded"
            else:
                self.damaged.discard(path)
        assert newest_step(self.folder, self.damaged) >= self.saved

    def check_curves(self):
        self.curves.Reload()
        for tag in self.curves.Tags()["scalars"]:
            steps = [event.step for event in self.curves.Scalars(tag)]
            assert steps == sorted(set(steps)), f"{tag} folds back"
            if tag == "loss" and self.complete:
                due = range(1, self.saved + 1, SUMMARY_STEPS)
                assert steps[: len(due)] == list(due), "summaries of saved steps are lost"

    # what may happen

    def kill(self):
        """Kill a process, now or when it is asked to end; whether it lived to see it."""
        moment = self.chance.choice([*MOMENTS])
        word, longest = MOMENTS[moment]
        life = self.life()
        if moment == "while it ends":
            life.struck(signal.SIGTERM, "training", self.chance.uniform(0, 0.05))
        times = self.chance.randint(1, 10) if word in ("saving", "saved") else 1
        delay = self.chance.uniform(0, longest or START_UP_SECS[self.engine])
        life.struck(signal.SIGKILL, word, delay, times=times)
        print(moment, end=": ")
        self.lived(life)
        assert life.exit in (-signal.SIGKILL, 0), life.complaints
        return life.exit != 0

    def terminate(self):
        """SIGTERM: the step in hand is finished and saved, and the process ends well."""
        word = self.chance.choice(["training", "saving", "saved"])
        life = self.life().struck(signal.SIGTERM, word, self.chance.uniform(0, 0.1))
        self.lived(life)
        if life.exit == 1 and "giving up (SIGTERM)" in life.complaints:
            return False  # a session was lost too, and then another: nobody waits any longer
        assert life.exit == 0, life.complaints
        word, step, reason = life.told[-1]
        assert (word, reason) == ("ended", "SIGTERM")
        assert int(step) == self.saved == checkpoint_step(latest_checkpoint(self.folder))
        return True

    def damage(self):
        """Damage the newest checkpoint, if there are others to go back to."""
        sound = [Path(path) for path in checkpoints(self.folder) if Path(path) not in self.damaged]
        if len(sound) < 3:
            return False
        newest = sound[-1]
        victim = self.chance.choice(sorted(newest.iterdir()))
        way = self.chance.choice([truncate, flip_a_bit])
        print(f"{way.__name__} {victim}")
        way(victim, self.chance)
        self.damaged.add(newest)
        self.saved = checkpoint_step(sound[-2])
        life = self.lived(self.life().struck(signal.SIGTERM, "training", 0.1))
        assert str(newest) in life.complaints, "nobody was told of the damage"
        return True

    def starve(self, *options):
        """A process that finds the disk full fails, and says so; what was saved is still there."""
        self.complete = False  # the summaries that found no room are lost
        life = self.lived(self.life(*options))
        assert life.exit == 1, life.complaints
        assert "OSError: [Errno" in life.complaints
        return True

    def starve_by_a_limit(self):
        """No file may have more than so many bytes: the least is not enough for a checkpoint."""
        return self.starve("--file-limit", self.chance.randrange(2_000, 12_000))

    def starve_by_a_full_disk(self):
        """Some thousand bytes are left on the disk; then there is room again."""
        filler = self.folder.with_name("filler")
        disk = os.statvfs(self.folder.parent)
        left = self.chance.randrange(50_000)
        filler.write_bytes(bytes(max(0, disk.f_bavail * disk.f_bsize - left)))
        self.starve()
        filler.unlink()
        return True

    def finish(self, steps=40):
        """Let it end by itself, as a run of the same length does that nobody disturbs."""
        last_step = str(max(self.saved, 0) + steps)
        life = self.lived(self.life("--last-step", last_step))
        assert (life.exit, life.told[-1][:2]) == (0, ["ended", last_step]), life.complaints
        assert not list(self.folder.glob("*/attempt-*"))
        options = ["--engine", self.engine, "--last-step", last_step]
        with tempfile.TemporaryDirectory() as folder:  # its disk is another, if ours is small
            undisturbed = Life(folder, *options).live()
            assert undisturbed.exit == 0, undisturbed.complaints
            self.assert_as(folder)

    def assert_as(self, undisturbed):
        """Parameters, states of hooks and inputs, and the curve of the loss: bit for bit."""
        expected, got = (
            read_checkpoint(Path(latest_checkpoint(folder)))
            for folder in (undisturbed, self.folder)
        )
        assert got.arrays.keys() == expected.arrays.keys()
        for name, array in expected.arrays.items():
            assert got.arrays[name].tobytes() == array.tobytes(), name
        np.testing.assert_equal(got.states, expected.states)
        curve = EventAccumulator(str(undisturbed), size_guidance={"scalars": 0}).Reload()
        expected, got = (
            [(event.step, event.value) for event in events.Scalars("loss")]
            for events in (curve, self.curves)
        )
        assert set(got) <= set(expected)
        assert len(got) == len(expected) or not self.complete


def truncate(path, chance):
    os.truncate(path, chance.randrange(path.stat().st_size))


def flip_a_bit(path, chance):
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def newest_step(folder, damaged):
    steps = [checkpoint_step(path) for path in checkpoints(folder) if Path(path) not in damaged]
    return max(steps, default=-1)


def soak(history, **happenings):
    """Let each happen so often, in an order left to chance, and the run end as it should."""
    plan = [name for name, times in happenings.items() for _ in range(times)]
    history.chance.shuffle(plan)
    happened = Counter()
    while plan:
        name = plan.pop()
        if getattr(history, name)():
            happened[name] += 1
        else:  # it came too late, or too early: once more, at another time
            plan.insert(history.chance.randrange(len(plan) + 1), name)
            if len(plan) == plan.count("damage"):
                history.terminate()
    assert happened == happenings
    history.finish()


@pytest.fixture(autouse=True)
def _quiet_tensorboard():
    # It warns of each START in the files.
    logger = logging.getLogger("tensorboard")
    logger.disabled = True
    yield
    logger.disabled = False


def on_a_small_disk(folder, **happenings):
    """``soak`` on a disk of 16 MB at ``folder``, in a process that has a mount of its own."""
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = 'mount -t tmpfs -o size=16m none "$0"'
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed here")
    tried = subprocess.run([*alone, "sh", "-c", mount, folder], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"a disk cannot be mounted here: {tried.stderr}")
    command = [*alone, "sh", "-c", mount + ' && exec "$@"', folder]
    command += [sys.executable, __file__, folder, *(f"{k}={v}" for k, v in happenings.items())]
    played = subprocess.run(command, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr


def test_run_that_is_killed_stopped_and_damaged_ends_as_an_undisturbed_one(tmp_path):
    soak(History(tmp_path / "run"), kill=4, terminate=1, damage=1)


def test_run_that_finds_no_room_goes_on_when_there_is_some(tmp_path):
    on_a_small_disk(tmp_path, starve_by_a_full_disk=1, starve_by_a_limit=1)


@pytest.mark.soak
def test_run_whose_files_may_not_grow_many_times_goes_on(tmp_path):
    soak(History(tmp_path / "run"), starve_by_a_limit=30, kill=10, terminate=10)


@pytest.mark.soak
def test_run_whose_disk_is_full_many_times_goes_on(tmp_path):
    on_a_small_disk(tmp_path, starve_by_a_full_disk=30, kill=10, terminate=10)


@pytest.mark.soak
def test_run_that_is_killed_hundreds_of_times_ends_as_an_undisturbed_one(tmp_path):
    soak(History(tmp_path / "run"), kill=200, terminate=50, damage=20)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["jax", "torch"])
def test_run_on_a_framework_that_is_killed_ends_as_an_undisturbed_one(tmp_path, engine):
    soak(History(tmp_path / "run", engine), kill=10, terminate=3, damage=2)


if __name__ == "__main__":  # see on_a_small_disk
    # TensorBoard reads without TensorFlow, too, which takes seconds to import.
    sys.modules["tensorboard.compat.notf"] = ModuleType("notf")
    soak(
        History(Path(sys.argv[1]) / "run"),
        **{name: int(times) for name, times in (word.split("=") for word in sys.argv[2:])},
    )
