"""An evaluation in the middle of a training leaves the training as it was."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import runhooks as rh


def as_a_summary(tensor, tmp_path):
    summary = rh.summary.scalar("drawn", tensor)
    return rh.SummarySaverHook(2, output_dir=tmp_path, summary_op=summary), "train_op"


def in_the_log(tensor, tmp_path):
    return rh.LoggingTensorHook([tensor], every_n_iter=2), "train_op"


def for_an_evaluation(tensor, tmp_path):
    return rh.EvaluationHook({"drawn": tensor}, every_n_steps=2), "train_op"


def for_the_loop(tensor, tmp_path):
    return rh.StopAtStepHook(99), ["train_op", tensor]


def between_steps(tensor, tmp_path):
    class Between(rh.SessionRunHook):
        def after_run(self, run_context, run_values):
            run_context.session.run(tensor)

    return Between(), "train_op"


def test_an_evaluation_over_a_shuffled_loader_leaves_training_as_it_was(make_training):
    def train(training, evaluates):
        def mean(x):
            training.model.eval()
            return training.model(x).mean()  # the mode is not put back

        torch.manual_seed(1)
        with training.graph().as_default():
            batch = rh.inputs(DataLoader(torch.ones(8, 4), 4, shuffle=True))
            hook = rh.EvaluationHook({"mean": rh.call(mean, batch)}, every_n_steps=2)
            with rh.MonitoredSession(hooks=[hook] if evaluates else []) as sess:
                for _ in range(6):
                    sess.run("train_op", training.batch)
        return training.losses

    evaluated = make_training()
    assert train(evaluated, True) == train(make_training(), False)
    assert evaluated.model.training


WAYS = [as_a_summary, in_the_log, for_an_evaluation, for_the_loop, between_steps]


def draws_and_changes_modes(training, generator):
    def function(*values):
        torch.manual_seed(3)
        training.model.eval()
        training.model[2].train()
        drawn = torch.rand(()) + np.random.random() + random.random()
        return drawn + torch.rand((), generator=generator)

    return function


@pytest.mark.parametrize(
    ("way", "takes"),
    [
        *((way, takes) for way in WAYS for takes in ([], ["model/0.bias"])),
        *((way, [of]) for way in WAYS[:2] for of in ("loss", "gradients/model/0.bias")),
    ],
)
def test_function_that_is_no_step_leaves_training_as_it_was(way, takes, make_training, tmp_path):
    losses, nexts = [], []
    for way_or_none in (None, way):
        training, generator = make_training(), torch.Generator().manual_seed(5)
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        with training.graph(noise=generator).as_default() as graph:
            hooks, fetches = [], "train_op"
            if way_or_none is not None:
                function = draws_and_changes_modes(training, generator)
                drawn = rh.call(function, *[graph[name] for name in takes], name="drawn")
                hook, fetches = way_or_none(drawn, tmp_path)
                hooks = [hook]
            with rh.MonitoredSession(hooks=hooks) as session:
                for _ in range(6):
                    session.run(fetches, training.batch)
        assert all(it.training for it in training.model.modules())
        losses.append(training.losses)
        drawn_next = [torch.rand(()), np.random.random(), random.random()]
        nexts.append([*drawn_next, torch.rand((), generator=generator)])
    assert losses[0] == losses[1]
    assert nexts[0] == nexts[1]


def test_function_draws_the_same_whatever_else_is_asked_for(training):
    def numbers(*others):
        with training.graph().as_default():
            torch.manual_seed(1)
            first, second = rh.call(torch.rand, 2), rh.call(torch.rand, 2)
            with rh.MonitoredSession() as session:
                return session.run([second, *[first] * len(others)])[0].tolist()

    assert numbers() == numbers("another")


def test_evaluation_of_several_runs_draws_other_numbers_in_each(training):
    drawn = []
    with training.graph().as_default():
        noise = rh.call(lambda: drawn.append(torch.rand(()).item()) or 1.0)
        hook = rh.EvaluationHook({"noise": noise}, every_n_steps=2, steps=3)
        with rh.MonitoredSession(hooks=[hook]) as session:
            for _ in range(4):
                session.run("train_op", training.batch)
    assert len(set(drawn)) == len(drawn) == 6


def test_function_that_a_step_or_an_assignment_needs_draws_as_in_the_programs_own_loop():
    def noisy(x):
        return x + torch.rand(())

    def train(x):
        seen.append(x.item())

    torch.manual_seed(0)
    expected = [(noisy(torch.zeros(())).item(), torch.rand(()).item()) for _ in range(4)]
    seen, kept = [], []
    with rh.torch.Graph(model=torch.nn.Linear(1, 1)).as_default():
        x = rh.placeholder("x")
        step = rh.torch.step(train, name="step", args=[rh.call(noisy, x)])
        variable = rh.Variable(torch.zeros(()), name="noise", collections=["local_variables"])
        assigned = variable.assign(rh.call(lambda: torch.rand(())))
        rh.group(step, assigned, name="train_op")
        torch.manual_seed(0)
        with rh.MonitoredSession() as session:
            for _ in range(4):
                kept.append(session.run(["train_op", assigned], {"x": torch.zeros(())})[1].item())
    assert list(zip(seen, kept, strict=True)) == expected


def test_mode_and_generators_are_put_back_after_an_error(training):
    def broken(x):
        training.model.eval()
        torch.rand(())
        raise RuntimeError("broken")

    graph = training.graph()
    with graph.as_default():
        hook = rh.EvaluationHook({"x": rh.call(broken, 1)}, every_n_steps=1)
        states = []
        hook.on_exception = lambda *_: states.append(torch.get_rng_state())
        with pytest.raises(RuntimeError, match="broken"):
            with rh.MonitoredSession(hooks=[hook]) as sess:
                training.model[2].p = 0.0  # dropout then draws nothing
                states.append(torch.get_rng_state())
                sess.run("train_op", training.batch)
    assert training.model.training
    assert torch.equal(*states)


@pytest.mark.parametrize("name", ["loss", "gradients/model/0.bias", "global_gradient_norm"])
def test_metric_that_only_a_step_has_is_refused_before_training(name, training):
    hook = rh.EvaluationHook({"metric": name}, every_n_steps=1)
    with training.graph().as_default():
        with pytest.raises(ValueError, match="must not train"):
            rh.MonitoredSession(hooks=[hook])
    assert training.losses == []
