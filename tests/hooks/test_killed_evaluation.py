"""A training that is killed or stopped in an evaluation goes on as if nothing had happened."""

import signal
from pathlib import Path

import pytest

from tests.hooks import evaluation_program
from tests.hooks.evaluation_program import LENGTH, TESTED

PROGRAM = Path(evaluation_program.__file__)


@pytest.fixture
def run(plain_launcher, tmp_path):
    """Runs the program in a process of its own; returns its status and what it has returned."""

    def run(folder="run", **arguments):
        return plain_launcher.outcome(tmp_path, PROGRAM, folder=tmp_path / folder, **arguments)

    return run


#: Batches of the first two evaluations, of the fourth, whose value is NaN, and of the last; and the
#: steps from one save to the next.
KILLED = [(1, 3), (TESTED + 1, LENGTH), (2 * TESTED, 5), (3 * TESTED + 2, 3), (6 * TESTED, LENGTH)]


@pytest.mark.parametrize(("ended_at", "save"), KILLED)
def test_killed(ended_at, save, run):
    _, undisturbed = run("undisturbed", save=save)
    assert undisturbed["step"] == 6 * LENGTH
    assert undisturbed["why"].startswith("stop_if_no_decrease_hook(score)")
    assert (undisturbed["best"], undisturbed["rate"]) == ([3 * LENGTH, 2.0], 0.5)
    assert run(save=save, ended_at=ended_at)[0] == -signal.SIGKILL
    assert run(save=save, ended_at=TESTED + 1)[0] in (0, -signal.SIGKILL)
    assert run(save=save) == (0, undisturbed)


@pytest.mark.parametrize("ended_at", [1, TESTED + 1, 2 * TESTED + 1, 3 * TESTED + 2])
def test_stopped(ended_at, run):
    _, undisturbed = run("undisturbed", save=3)
    assert run(save=3, ended_at=ended_at, number=signal.SIGTERM)[0] == 0
    _, resumed = run(save=3)
    steps = "steps"  # saves are counted from the last one, that of the stop
    assert {**resumed, steps: None} == {**undisturbed, steps: None}
