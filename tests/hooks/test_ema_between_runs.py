"""Averages where one run has an EmaHook and the other has not, or has another."""

import logging

import numpy as np
import pytest
import torch
from torch import nn

import runhooks as rh


class Variables:
    """A program whose steps add 1 to its weights, which are 0 at first."""

    part, weight = "state/params", "state/params/w"

    def __init__(self, engine):
        self.engine = engine

    def graph(self):
        def step(state):
            return {"params": {"w": state["params"]["w"] + 1}, "rest": state["rest"]}, {}

        state = {"params": {"w": np.zeros(2, np.float32)}, "rest": np.ones(1, np.float32)}
        return rh.graph(step, engine=self.engine, state=state)


class Modules:
    """The same of a module in which two names are of one parameter."""

    part, weight = "model", "model/head.weight"

    def graph(self):
        model = nn.Module()
        model.embedding, model.head = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
        model.head.weight = model.embedding.weight
        nn.init.zeros_(model.head.weight)

        @torch.no_grad()
        def step():
            model.head.weight.add_(1)

        return rh.torch.graph(step, model=model)


@pytest.fixture(params=["python", "jax", "torch", "modules"])
def program(request):
    return Modules() if request.param == "modules" else Variables(request.param)


def train(program, folder, *hooks, init_from=None):
    """Make 2 more steps; return what the weights and their averages are then, where there are."""
    with (
        program.graph().as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=folder,
            hooks=[*hooks, rh.StopAtStepHook(num_steps=2)],
            scaffold=rh.Scaffold(init_from=init_from),
        ) as sess,
    ):
        while not sess.should_stop():
            sess.run("train_op")
    names = [f"{it}{program.weight}" for it in ("", "ema/", "slow/")]
    return {name: rh.load(folder, name).flat[0] for name in names if has(folder, name)}


def has(folder, name):
    return name.partition("/")[0] in rh.load(folder)


def ema(program, **options):
    return rh.EmaHook(program.part, decay=0.5, **options)


def values(program, weight, **averages):
    found = {f"{name}/{program.weight}": value for name, value in averages.items()}
    return pytest.approx({program.weight: weight, **found}, rel=1e-6)


# The averages of the steps 1 and 2, and of 3 and 4 that begin anew, without their bias.
FIRST, ANEW = 5 / 3, 11 / 3


@pytest.fixture
def runs(program, tmp_path):
    """The directories of a run of 2 steps without averages, and of one with them."""
    plain, averaged = tmp_path / "plain", tmp_path / "averaged"
    assert train(program, plain) == values(program, 2)
    assert train(program, averaged, ema(program)) == values(program, 2, ema=FIRST)
    return plain, averaged


def test_a_new_run_takes_the_weights_and_averages_begin_anew(runs, program, tmp_path, caplog):
    plain, averaged = runs
    new = tmp_path / "new"
    with caplog.at_level(logging.INFO, "runhooks"):
        assert train(program, new / "a", init_from=averaged) == values(program, 4)
    assert "not used: ema" in caplog.text
    expected = values(program, 4, ema=ANEW)
    assert train(program, new / "b", ema(program), init_from=plain) == expected
    assert train(program, new / "c", ema(program), init_from=averaged) == expected
    kept = rh.InitFrom(averaged, missing="keep")
    assert train(program, new / "d", ema(program), init_from=kept) == expected


def test_averages_are_taken_for_the_weights_where_rename_says_so(runs, program, tmp_path):
    _, averaged = runs
    part = program.part
    init_from = rh.InitFrom(averaged, f"ema/{part}", rename={f"ema/{part}": part}, missing="keep")
    found = train(program, tmp_path / "new", ema(program), init_from=init_from)
    assert found == values(program, FIRST + 2, ema=FIRST + 5 / 3)
    with pytest.raises(ValueError, match="no place for ema/.* averages begin anew") as caught:
        train(program, tmp_path / "other", init_from=rh.InitFrom(averaged, "ema"))
    assert f"give rename={{'ema/{part}': '{part}'}}" in str(caught.value)


def warnings(caplog):
    return [it.message for it in caplog.records if it.levelname == "WARNING"]


def test_a_hook_that_is_added_begins_anew(runs, program, caplog):
    plain, _ = runs
    assert train(program, plain, ema(program)) == values(program, 4, ema=ANEW)
    (line,) = warnings(caplog)
    assert "the checkpoint has no states for EmaHook, which start over" in line
    assert train(program, plain, ema(program)) == values(program, 6, ema=79 / 15)


def test_a_hook_that_is_removed_is_named_and_the_run_goes_on(runs, program, caplog):
    _, averaged = runs
    assert train(program, averaged) == values(program, 4)
    (line,) = warnings(caplog)
    assert "states that belong to nothing here (EmaHook)" in line
    assert "Later checkpoints lack" in line


def test_averages_of_another_name_begin_anew(runs, program, caplog):
    _, averaged = runs
    found = train(program, averaged, ema(program, name="slow"))
    assert found == values(program, 4, slow=ANEW)
    (line,) = warnings(caplog)
    assert f"no averages called slow/{program.part}, which start over, but ema/" in line


@pytest.mark.every_engine
def test_a_loop_whose_state_is_added_or_removed(engine, tmp_path, caplog):
    program, loop = Variables(engine), {"patience": 3}
    train(program, tmp_path)
    train(program, tmp_path, rh.SavedStateHook(loop=loop))
    train(program, tmp_path)
    added, removed = warnings(caplog)
    assert "no states for loop, which start over" in added
    assert "states that belong to nothing here (loop)" in removed
