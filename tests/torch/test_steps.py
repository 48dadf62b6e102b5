"""Steps: what they are called with, what they return, how they count, and several in a graph."""

import dataclasses
import functools
import itertools
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import runhooks as rh


def test_step_is_called_with_what_is_fed_as_it_is(training):
    got = []

    def step(images, labels, scale=2.0):
        got.append((images, labels, scale))

    images, labels = object(), {"a": training.labels}
    with rh.Session(rh.torch.graph(step, model=training.model)) as sess:
        assert sess.run("train_op", {"images": images, "labels": labels}) is None
    assert got[0][0] is images
    assert got[0] == (images, labels, 2.0)


def test_steps_share_placeholders_in_any_order(training):
    got = []
    with rh.torch.Graph(model=training.model).as_default() as graph:
        rh.torch.step(lambda x, y: got.append((x, y)), name="one")
        rh.torch.step(lambda y, z, x: got.append((y, z, x)), name="other")
        three = [3, {"three": graph["z"]}, "text"]
        rh.torch.step(lambda *args: got.append(args), name="constants", args=three)
    with rh.Session(graph) as sess:
        sess.run("one", {"x": 1, "y": 2})
        sess.run("other", {"x": 1, "y": 2, "z": 3})
        sess.run("constants", {"z": 3})
    assert got == [(1, 2), (2, 3, 1), (3, {"three": 3}, "text")]


RETURNED = {
    "None": (None, "it returned None"),
    "a tuple": ((1, 2), "it returned 2 without names"),
    "another name": ({"los": 1.0}, "it names 'los'"),
    "nothing": ({}, "it names nothing"),
}


@pytest.mark.parametrize("what", RETURNED)
def test_output_that_is_not_returned_is_told_in_the_first_run(what, training):
    returned, message = RETURNED[what]
    graph = rh.torch.graph(lambda: returned, outputs=["loss"], model=training.model)
    with rh.Session(graph) as sess:
        with pytest.raises(ValueError, match="'train_op'.*'loss'") as caught:
            sess.run("train_op")
    assert message in str(caught.value)


class Returned(NamedTuple):
    norm: float
    loss: float


@pytest.mark.parametrize(
    "returned",
    [
        {"norm": 2.0, "loss": 1.0, "more": 3.0},
        Returned(2.0, 1.0),
        dataclasses.make_dataclass("Returned", ["norm", "loss"])(2.0, 1.0),
        (1.0, 2.0),
        [1.0, 2.0],
    ],
)
@pytest.mark.parametrize("names", [["loss", "norm"], ["loss"]])
def test_outputs_are_returned_by_name_or_in_order(names, returned, training):
    graph = rh.torch.graph(lambda: returned, names, model=training.model)
    with rh.Session(graph) as sess:
        if names == ["loss"] and type(returned) in (tuple, list):
            with pytest.raises(ValueError, match=r"\['loss'\], .* it returned 2 without names"):
                sess.run(["train_op", *names])
        else:
            got = [sess.run(["train_op", *names])[1:] for _ in range(3)]
            assert got == [[1.0, 2.0][: len(names)]] * 3


def test_one_output_may_be_returned_alone(training):
    graph = rh.torch.graph(lambda: torch.ones(2), ["loss"], model=training.model)
    with rh.Session(graph) as sess:
        assert [sess.run(["train_op", "loss"])[1].tolist() for _ in range(2)] == [[1, 1]] * 2


STEPS_AND_KEYS = ["step", "global_step", "rng", "key"]


@pytest.mark.parametrize("kind", ["{}", "{}=None", "*, {}", "scale=1.0, {}=None"])
@pytest.mark.parametrize("data", [True, False])
@pytest.mark.parametrize("name", STEPS_AND_KEYS)
def test_step_and_key_are_given_and_the_directory_is_that_of_any_name(
    name, kind, data, training, tmp_path
):
    seen = []
    step = eval(
        f"lambda x, {kind.format(name)}: seen.append({name}) or {{'loss': x}}", {"seen": seen}
    )
    batches = {"data": [1.0] * 9} if data else {}
    feeds = None if data else {"x": 1.0}
    for last_step in (2, 3):
        graph = rh.torch.graph(step, ["loss"], model=training.model, **batches)
        hooks = [rh.StopAtStepHook(last_step=last_step)]
        with (
            graph.as_default(),
            rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as sess,
        ):
            while not sess.should_stop():
                sess.run("train_op", feeds)
    if name in ("step", "global_step"):
        assert seen == [0, 1, 2]
        assert {type(it) for it in seen} == {int}
    else:
        assert {type(it) for it in seen} == {torch.Generator}
        assert len({it.initial_seed() for it in seen}) == 3
    assert rh.load(tmp_path)["global_step"] == 3


def test_steps_share_the_key_and_the_step_of_a_run(training):
    seen = []
    with rh.torch.Graph(model=training.model).as_default() as graph:
        rh.torch.step(lambda step, rng: seen.append((step, rng.initial_seed())), name="one")
        rh.torch.step(
            lambda rng, step: seen.append((step, rng.initial_seed())), name="two", counts=False
        )
    with rh.Session(graph) as sess:
        for _ in range(2):
            sess.run(["one", "two"])
    assert seen[0] == seen[1] != seen[2] == seen[3]
    assert [step for step, _ in seen] == [0, 0, 1, 1]


@pytest.mark.parametrize("when", ["before", "in", "after"])
def test_error_says_whether_a_step_had_begun_which_cannot_be_undone(when, training):
    def step(images):
        training.losses.append(0)
        return {"loss": 0} if when == "after" else {}[images]

    graph = rh.torch.graph(step, ["loss"], model=training.model)
    with graph.as_default():
        inputs = {"before": [], "in": [0], "after": [graph["loss"]]}[when]
        other = rh.call(lambda *inputs: 0 if when == "in" else {}["lost"], *inputs)
    with rh.Session(graph) as sess:
        with pytest.raises(KeyError) as caught:
            sess.run(["train_op", other], {"images": 1})
        assert sess.global_step == 0
    notes = " ".join(caught.value.__notes__)
    assert len(training.losses) == (when != "before")
    assert ("what it changed in place (model)" in notes) == (when != "before")
    assert ("in the operation 'train_op'" in notes) == (when == "in")


def test_two_steps_with_an_optimizer_each():
    torch.manual_seed(0)
    generator, discriminator = nn.Linear(2, 3), nn.Linear(3, 1)
    g_optimizer = torch.optim.SGD(generator.parameters(), 0.1)
    d_optimizer = torch.optim.SGD(discriminator.parameters(), 0.2)

    def update(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    def d_step(real, noise):
        fake = generator(noise).detach()
        return update(d_optimizer, discriminator(fake).mean() - discriminator(real).mean())

    def g_step(noise):
        return update(g_optimizer, -discriminator(generator(noise)).mean())

    objects = {"g_optimizer": g_optimizer, "d_optimizer": d_optimizer}
    graph = rh.torch.Graph(generator=generator, discriminator=discriminator, **objects)
    with graph.as_default():
        rh.torch.step(d_step, ["loss"], name="d_op", counts=False)
        rh.torch.step(g_step, ["loss"], name="g_op")
        with rh.name_scope("eval"):
            rh.torch.step(lambda: {"loss": 0}, ["loss"], name="again", counts=False)
    batch = {"real": torch.ones(4, 3), "noise": torch.ones(4, 2)}
    with rh.Session(graph) as sess:
        before = discriminator.weight.detach().clone()
        d_loss, gradient, norm = sess.run(
            ["loss", "gradients/discriminator/weight", "global_gradient_norm"], batch
        )
        torch.testing.assert_close(before - 0.2 * gradient, discriminator.weight.detach())
        bias_gradient = discriminator.bias.grad
        assert norm.item() == pytest.approx(float((gradient**2).sum() + bias_gradient**2) ** 0.5)
        g_loss, _ = sess.run(["g_op/loss", "g_op"], {"noise": batch["noise"]})
        assert d_loss != g_loss
        assert sess.run("eval/loss") == 0
        assert sess.run(["d_optimizer/learning_rate", "g_optimizer/learning_rate"]) == [0.2, 0.1]
        assert sess.global_step == 1
        with pytest.raises(ValueError, match="d_optimizer/learning_rate"):
            sess.run("learning_rate")
    placeholders = [op.name for op in graph.get_operations() if op.type == "Placeholder"]
    assert placeholders == ["real", "noise"]


def test_a_session_that_is_lost_between_the_runs_of_a_step_is_not_replaced():
    accumulated = torch.zeros(())

    def update():
        raise rh.errors.AbortedError("lost")

    graph = rh.torch.Graph()
    with graph.as_default():
        rh.torch.step(lambda: accumulated.add_(1), name="accumulate", counts=False)
        rh.torch.step(update)
        with rh.MonitoredSession() as session, pytest.raises(rh.errors.AbortedError) as raised:
            session.run("accumulate")
            session.run("train_op")
    assert "between the runs of one step" in raised.value.__notes__[-1]
    assert session.recoveries == 0


def two_steps(data):
    """A graph of a step that draws from ``data``, and does not count, and of one that does."""
    made = itertools.count(1.0)
    graph = rh.torch.Graph(model=nn.Linear(1, 1))
    with graph.as_default():
        numbers = {"data": data, "epochs": 3}
        rh.torch.step(lambda x: {"drawn": x}, ["drawn"], "draw", counts=False, **numbers)
        rh.torch.step(lambda: {"made": torch.tensor(next(made))}, ["made"], "make")
    return graph


class WithoutLength:
    def __iter__(self):
        return (torch.tensor(float(number)) for number in range(4))


@pytest.mark.parametrize("data", [list(WithoutLength()), WithoutLength()], ids=["list", "stream"])
@pytest.mark.parametrize("runs", [["draw", "make"], ["draw", ["draw", "make"]], [["draw", "make"]]])
def test_means_of_several_steps_over_an_epoch_that_one_of_them_draws(runs, data):
    reported = []
    with two_steps(data).as_default():
        means = [rh.epoch_mean("drawn"), rh.epoch_mean("made")]
        hooks = [
            rh.CallHook(lambda *it: reported.append([*map(float, it)]), means, every_n_epochs=1),
            rh.CallHook(lambda: reported.append("epoch"), every_n_epochs=1),
        ]
        with rh.MonitoredTrainingSession(hooks=hooks) as sess:
            while not sess.should_stop():
                with sess.iteration():
                    for fetches in runs:
                        sess.run(fetches)
    per_epoch = 2 if runs == ["draw", ["draw", "make"]] else 4
    expected = [(per_epoch + 1) / 2 + per_epoch * epoch for epoch in range(3)]
    assert reported == [it for made in expected for it in ([1.5, made], "epoch")]


def test_hook_that_asks_for_outputs_of_steps_that_no_run_makes_together_is_told(caplog):
    with two_steps(WithoutLength()).as_default():
        hooks = [rh.CallHook(print, ["drawn", "made"], every_n_epochs=1)]
        with rh.MonitoredTrainingSession(hooks=hooks) as sess:
            while not sess.should_stop():
                sess.run("draw")
                sess.run("make")
    assert "as in session.run(['draw', 'make'])" in caplog.text


def test_step_with_both_arguments_and_data():
    with rh.torch.Graph(model=nn.Linear(1, 1)).as_default():
        with pytest.raises(ValueError, match="args must be left out"):
            rh.torch.step(lambda x: None, args=[1], data=[1])


def test_reads_and_evaluations_in_the_run_of_a_step_come_before_it(training):
    graph = training.graph()
    with graph.as_default():
        total = rh.call(lambda: sum(p.sum() for p in training.model.parameters()), name="total")
    before = sum(p.detach().sum() for p in training.model.parameters())
    with rh.Session(graph) as sess:
        got, _ = sess.run([total, "train_op"], training.batch)
        torch.testing.assert_close(got, before, rtol=0, atol=0)


def test_at_end_refuses_what_only_a_step_has(training):
    for name in ("loss", "gradients/model/0.weight", "global_gradient_norm"):
        hook = rh.LoggingTensorHook([name], at_end=True)
        with training.graph().as_default():
            with pytest.raises(ValueError, match="at_end"):
                rh.MonitoredSession(hooks=[hook])
    hook = rh.LoggingTensorHook(["model/0.weight"], at_end=True)
    with training.graph().as_default(), rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run("train_op", training.batch)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fn": 3}, TypeError, "fn must be a callable, got 3"),
        ({"fn": lambda *batch: None}, TypeError, r"\*batch"),
        ({"fn": lambda **batch: None}, TypeError, "plain parameters"),
        ({"fn": lambda: None, "outputs": "loss"}, TypeError, "must be a list of names"),
        ({"fn": lambda: None, "outputs": ["a b"]}, ValueError, "got 'a b'"),
        ({"fn": lambda: None, "model": 3}, TypeError, "'model' is not a parameter of lambda"),
        ({"fn": lambda: None, "model": object()}, TypeError, "model must have state_dict"),
        (
            {"fn": lambda: None, "loader": DataLoader([1])},
            TypeError,
            "loader must have state_dict.*as data, .*StatefulDataLoader",
        ),
        ({"fn": lambda: None, "random": nn.Linear(1, 1)}, ValueError, "got 'random'"),
    ],
)
def test_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        rh.torch.graph(**arguments)


def test_step_needs_a_graph_of_its_own_kind(training):
    with rh.Graph("torch").as_default():
        with pytest.raises(TypeError, match="rh.torch.Graph"):
            rh.torch.step(training.step, ["loss"])


def test_partial_functions_are_steps(training):
    step = functools.partial(training.step, labels=training.labels)
    graph = rh.torch.graph(step, ["loss"], **training.objects)
    with rh.Session(graph) as sess:
        sess.run("train_op", {"images": training.images})
    assert len(training.losses) == 1


def test_output_that_is_fed_is_not_taken_from_the_step(training):
    runs = []
    graph = rh.torch.graph(
        lambda: runs.append(1) or {"loss": 0.0, "name": "x"}, ["loss", "name"], model=training.model
    )
    with rh.Session(graph) as sess:
        results = [sess.run(["train_op", "loss", "name"], {"loss": 9.0}) for _ in range(3)]
    assert results == [[None, 9.0, "x"]] * 3
    assert len(runs) == 3


def test_error_in_a_later_run_names_the_output_or_the_step(training):
    returned = {"loss": 1.0}

    def step(x):
        if x == 0:
            raise KeyError("x")
        return returned

    graph = rh.torch.graph(step, outputs=["loss"], model=training.model)
    with rh.Session(graph) as sess:
        for _ in range(3):
            assert sess.run(["train_op", "loss"], {"x": 1}) == [None, 1.0]
        with pytest.raises(KeyError) as caught:
            sess.run(["train_op", "loss"], {"x": 0})
        assert any("'train_op'" in note for note in caught.value.__notes__)
        assert any("a step had begun" in note for note in caught.value.__notes__)
        returned.clear()
        with pytest.raises(ValueError, match="must return 'loss', one of its outputs") as caught:
            sess.run(["train_op", "loss"], {"x": 1})
        assert any("'loss'" in note for note in caught.value.__notes__)
        assert any("a step had begun" in note for note in caught.value.__notes__)


def modes_told(caplog):
    return [it for it in caplog.messages if "is in evaluation mode after a step" in it]


def evaluate_by_hand(training):
    training.model.eval()


def evaluate_and_go_on(training):
    training.model.eval()
    training.model.train()


@pytest.mark.parametrize(
    ("between", "told"), [(evaluate_by_hand, 1), (evaluate_and_go_on, 0)], ids=["eval", "train"]
)
def test_training_on_in_evaluation_mode_is_told_once(between, told, training, caplog):
    hook = rh.CallHook(lambda: between(training), every_n_steps=1)
    with training.graph().as_default(), rh.MonitoredSession(hooks=[hook]) as sess:
        sess.run("train_op", training.batch)
        assert modes_told(caplog) == []  # the first step was made in training mode
        for _ in range(3):
            sess.run("train_op", training.batch)
    assert len(modes_told(caplog)) == told


def test_evaluation_mode_of_what_no_optimizer_updates_is_not_told(training, caplog):
    teacher = nn.Linear(4, 3).eval()
    with rh.Session(training.graph(teacher=teacher)) as sess:
        sess.run("train_op", training.batch)
        assert modes_told(caplog) == []
        training.model.eval()
        sess.run("train_op", training.batch)
    (message,) = modes_told(caplog)
    assert message.startswith("'model'")
