"""Exact resume: a program that is killed and resumed ends bit for bit where it would have ended.

Its state is everywhere: in variables, in random keys, in the position of a stateful input, in a
hook, and in an object that no graph knows. One checkpoint brings it all back.
"""

import os
import random
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from tests.graph.sources import Endless, uniform

pytestmark = pytest.mark.every_engine

STEPS = 20

KILLED = """
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.graph import test_resume
if sys.argv[2] == "mlx":
    import engine_mlx
test_resume.train(sys.argv[2], Path(sys.argv[3]), kill_at=int(sys.argv[4]))
"""


class Noise:
    """Randomness of the user's own, that is fed."""

    def __init__(self):
        self.random = random.Random(5)

    def state_dict(self):
        return {"state": self.random.getstate()}

    def load_state_dict(self, state):
        self.random.setstate(state["state"])


class Average(rh.SessionRunHook):
    """A moving average of the loss, in a hook; kills its process at ``kill_at``."""

    def __init__(self, loss, kill_at):
        self.loss, self.kill_at, self.value = loss, kill_at, 0.0

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.value = 0.9 * self.value + 0.1 * float(run_values.results)
        if run_context.next_step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def dropped(engine, key, values):
    """Half of ``values``."""
    return values * (uniform(engine, key, values.shape) < 0.5)


def train(engine, folder, *, stop_at=STEPS, kill_at=None):
    """Train to ``stop_at`` and return all that came of it as bytes."""
    noise = Noise()
    with rh.Graph(engine).as_default():
        weights = rh.Variable(np.ones(4, np.float32), name="weights")
        batch, fed = rh.inputs(Endless(7)) + np.arange(4, dtype=np.float32), rh.placeholder("noise")
        kept = rh.call(partial(dropped, engine), rh.random_key(), batch)
        turned = rh.call(partial(dropped, engine), rh.random_key(1), weights)
        new = 0.9 * weights + 0.01 * (kept + turned) + 0.001 * fed
        loss = rh.call(lambda w: (w * w).sum(), new)
        train_op = rh.group(weights.assign(new), rh.train.create_global_step().assign_add(1))
        average = Average(loss, kill_at)
        hooks = [average, rh.SavedStateHook(noise=noise), rh.StopAtStepHook(last_step=stop_at)]
        with rh.MonitoredTrainingSession(
            checkpoint_dir=str(folder), hooks=hooks, save_checkpoint_steps=3
        ) as sess:
            while not sess.should_stop():
                sess.run(train_op, {fed: np.float32(noise.random.random())})
            trained = sess.run(weights, hooks=False)
    result = [trained, average.value, noise.random.random()]
    return [np.asarray(value).tobytes() for value in result]


UNDISTURBED = {}


@pytest.fixture
def undisturbed(engine, tmp_path):
    """What comes of a training that nothing disturbs; it is made once on each engine."""
    if engine not in UNDISTURBED:
        UNDISTURBED[engine] = train(engine, tmp_path / "undisturbed")
    return UNDISTURBED[engine]


def test_it_matters_where_it_goes_on(engine, undisturbed, tmp_path):
    other = train(engine, tmp_path / "other", stop_at=STEPS + 1)
    assert all(one != another for one, another in zip(undisturbed, other, strict=True))


@pytest.mark.parametrize("stops", [[1], [8], [3, 4, 15]], ids=str)
def test_stopped_and_resumed_in_one_process(stops, engine, undisturbed, tmp_path):
    for stop_at in stops:
        train(engine, tmp_path / "resumed", stop_at=stop_at)
    assert train(engine, tmp_path / "resumed") == undisturbed


LAUNCHERS = {"jax": "jax_launcher", "torch": "torch_launcher"}


def test_killed_and_resumed_by_another_process(engine, undisturbed, request, tmp_path):
    launcher = request.getfixturevalue(LAUNCHERS.get(engine, "plain_launcher"))
    here, folder = str(Path(__file__).parents[2]), str(tmp_path / "killed")
    for kill_at in (8, 11):
        status, said = launcher.run(tmp_path, KILLED, here, engine, folder, kill_at)
        assert status == -signal.SIGKILL, said
    assert rh.latest_checkpoint(folder).endswith("-9")
    assert train(engine, folder) == undisturbed
