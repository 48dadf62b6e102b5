"""Names: which are refused where they clash, what is told of those that mean nothing."""

import numpy as np
import pytest
import torch
from torch import nn

import runhooks as rh


@pytest.mark.parametrize(
    "outputs", [["loss", "loss"], ["model"], ["learning_rate"], ["gradients/model"], ["extra"]]
)
def test_outputs_that_clash_are_refused(outputs, training):
    with pytest.raises(ValueError, match="outputs must"):
        rh.torch.graph(training.step, outputs, extra=nn.Linear(1, 1), **training.objects)


def test_names_of_steps_that_clash_are_refused(training):
    with training.graph().as_default():
        with pytest.raises(ValueError, match="name.*'train_op'"):
            rh.torch.step(training.step)
        with pytest.raises(ValueError, match="^name must .*'model'"):
            rh.torch.step(training.step, name="model")
        with pytest.raises(ValueError, match="parameter.*'learning_rate'"):
            rh.torch.step(lambda learning_rate: None, name="other")


def test_parameter_with_a_default_is_no_placeholder(training):
    graph = rh.torch.graph(lambda x, scale=1.0: None, model=training.model)
    with rh.Session(graph) as sess:
        with pytest.raises(ValueError, match="placeholder"):
            sess.run("train_op", {"x": 1, "scale": 2.0})


def test_values_of_parts_cannot_be_fed(training):
    with rh.Session(training.graph()) as sess:
        for name in ("model/0.weight", "gradients/model/0.weight", "learning_rate"):
            with pytest.raises(ValueError, match=f"'{name}:0' .*cannot be fed"):
                sess.run("train_op", {**training.batch, name: torch.zeros(8, 4)})
    assert training.losses == []


def test_parts_without_a_value_are_told_apart_from_nothing(training):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with rh.Session(training.graph(scaler=scaler)) as sess:
        with pytest.raises(ValueError, match="'optimizer/learning_rate'"):
            sess.run("optimizer")
        with pytest.raises(ValueError, match="StepLR"):
            sess.run("scheduler")
        with pytest.raises(ValueError, match="'scaler/scale'"):
            sess.run("scaler")
        scaler.scale(torch.ones(1))
        assert sess.run("scaler/scale") == 8.0


def test_summaries_take_names(training):
    graph = training.graph()
    with graph.as_default():
        made = [
            rh.summary.scalar("a", "loss"),
            rh.summary.histogram("b", "gradients/model/0.weight"),
            rh.summary.tensor_summary("c", "model/0.bias"),
            rh.summary.scalar("loss"),
            rh.summary.histogram("gradients/model/0"),
            rh.summary.scalars("optimizer/learning_rate"),
        ]
        with pytest.raises(ValueError, match="'los'.*'loss'"):
            rh.summary.scalar("d", "los")
        with pytest.raises(ValueError, match="'nothing' has no value"):
            rh.summary.scalar("d", rh.group(name="nothing").name)
    with rh.Session(graph) as sess:
        *summaries, _ = sess.run([*made, "train_op"], training.batch)
    tags = [value.tag for summary in summaries for value in summary]
    gradients = ["gradients/model/0/weight", "gradients/model/0/bias"]
    assert tags == ["a", "b", "c", "loss", *gradients, "optimizer/learning_rate"]


VALUES = [
    "learning_rate",
    "optimizer/learning_rate",
    "global_gradient_norm",
    "model/0.bias",
    "gradients/model/0.bias",
    "activations/model/0",
]


@pytest.mark.parametrize("name", VALUES)
def test_a_summary_does_not_hide_the_value_that_it_is_named_after(name, training):
    with rh.Session(training.graph()) as sess:
        expected = sess.run([name, "train_op"], training.batch)[0]
    graph = training.graph()
    with graph.as_default():
        summary = rh.summary.histogram(name)
        with rh.Session() as sess:
            names = [name, graph[name], summary, "train_op"]
            found, same_found, written, _ = sess.run(names, training.batch)
    assert type(found) is type(same_found) is type(expected)
    assert np.shape(found) == np.shape(same_found) == np.shape(expected)
    assert written[0].tag == name


def test_a_summary_does_not_hide_a_parameter_drawn_from_data(training):
    graph = rh.torch.graph(lambda x: None, data=[1.0, 2.0], **training.objects)
    with graph.as_default():
        rh.summary.scalar("x")
        with rh.Session() as sess:
            assert sess.run(["train_op", "x"])[1] == 1.0


def test_what_is_no_summary_is_refused_before_training(training, tmp_path):
    hook = rh.SummarySaverHook(1, output_dir=tmp_path, summary_op="loss")
    with training.graph().as_default():
        with pytest.raises(ValueError, match="'loss'"):
            rh.MonitoredSession(hooks=[hook])


def test_sparse_gradients_are_counted_logged_and_watched(caplog, tmp_path):
    caplog.set_level("INFO", "runhooks")
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()))

    def step(numbers):
        optimizer.zero_grad()
        model(numbers).square().mean().backward()
        optimizer.step()

    graph = rh.torch.graph(step, model=model, optimizer=optimizer)
    name = "gradients/model/weight"
    hooks = [rh.NanTensorHook(name), rh.LoggingTensorHook([name], every_n_iter=1)]
    with graph.as_default():
        summary = rh.summary.histogram("gradients", name)
        with rh.MonitoredSession(hooks=hooks) as sess:
            _, counted = sess.run(["train_op", summary], {"numbers": torch.tensor([1, 1, 3])})
    assert counted[0].tag == "gradients"
    assert any(line.startswith(name) for line in caplog.messages)


def test_a_feed_of_no_placeholder_says_which_there_are(training):
    with rh.Session(training.graph()) as sess:
        with pytest.raises(
            ValueError, match=r"named 'x'.*\['images', 'labels'\]; not fed: 'images'$"
        ):
            sess.run("train_op", {"x": 1, "labels": 2})
        with pytest.raises(ValueError, match="named 'image'.*mean 'images'.*not fed: 'images'$"):
            sess.run("train_op", {"image": 1, "labels": 2})


def test_what_the_step_returns_has_a_name_if_it_is_among_the_outputs(training):
    graph = rh.torch.graph(training.step, **training.objects)
    with pytest.raises(ValueError, match=r"nothing is named 'loss'.*graph\(step, \['loss'\]"):
        graph["loss"]
    with pytest.raises(TypeError, match="outputs must be a list of names"):
        rh.torch.graph(training.step, None, **training.objects)


def test_objects_that_were_forgotten_are_noticed(training, caplog):
    rh.torch.graph(training.step, optimizer=training.optimizer)
    assert "'optimizer' updates parameters of a module that is no object" in caplog.text
    rh.torch.graph(training.step)
    assert "the graph has no objects" in caplog.text
    caplog.clear()
    training.graph()
    assert not caplog.records


def test_an_optimizer_that_was_forgotten_is_noticed(training, caplog):
    optimizer = torch.optim.SGD(training.model.parameters(), 0.1)

    def train_step(images, labels):
        optimizer.step()

    rh.torch.graph(training.step, ["loss"], model=training.model)
    assert "'train_op' uses the optimizer 'self.optimizer', which is no object" in caplog.text
    assert "such as optimizer=self.optimizer" in caplog.text
    for step in (train_step, torch.compile(train_step, backend="eager")):
        caplog.clear()
        rh.torch.graph(step, model=training.model)
        assert "'train_op' uses the optimizer 'optimizer', which is no object" in caplog.text
        caplog.clear()
        rh.torch.graph(step, model=training.model, optimizer=optimizer)
        assert not caplog.records
