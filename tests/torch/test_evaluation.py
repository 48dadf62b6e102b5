"""An evaluation in the middle of a training leaves the training as it was."""

import pytest
import torch
from torch.utils.data import DataLoader

import runhooks as rh


def train(training, *hooks):
    with training.graph().as_default() as graph:
        made = [hook(graph) for hook in hooks]
        with rh.MonitoredSession(hooks=made) as sess:
            for _ in range(6):
                sess.run("train_op", training.batch)
    return training.losses


def evaluates_by_inputs(training):
    def mean(x):
        training.model.eval()
        return training.model(x).mean()  # the mode is not put back

    def make(graph):
        batch = rh.inputs(DataLoader(torch.ones(8, 4), 4, shuffle=True))
        return rh.EvaluationHook({"mean": rh.call(mean, batch)}, every_n_steps=2)

    return make


def evaluates_by_feeds(training):
    def make(graph):
        x = rh.placeholder("x")
        noisy = rh.call(lambda x: training.model(x + torch.rand(())).mean(), x)
        feeds = lambda: ({x: batch} for batch in DataLoader(torch.ones(8, 4), 4))  # noqa: E731
        return rh.EvaluationHook({"mean": noisy}, feeds, every_n_steps=2)

    return make


def evaluates_in_a_graph_of_its_own(training):
    class Estimator:
        def model_fn(self, features):
            return Spec(
                rh.call(lambda x: training.model.eval()(x + torch.rand(())).mean(), features)
            )

    class Spec:
        def __init__(self, loss):
            self.loss, self.eval_metric_ops = loss, None

    def make(graph):
        batches = lambda: [(torch.ones(4, 4), 0)] * 2  # noqa: E731
        return rh.InMemoryEvaluatorHook(Estimator(), batches, every_n_iter=2)

    return make


KINDS = [evaluates_by_inputs, evaluates_by_feeds, evaluates_in_a_graph_of_its_own]


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same_with_it(kind, make_training):
    alone, evaluated = make_training(), make_training()
    torch.manual_seed(1)
    expected = train(alone)
    torch.manual_seed(1)
    assert train(evaluated, kind(evaluated)) == expected
    assert evaluated.model.training


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


@pytest.mark.parametrize("calls_eval", [False, True])
def test_an_evaluation_that_moves_batch_statistics_is_noticed_once(calls_eval, caplog):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))

    @torch.no_grad()
    def evaluate():
        if calls_eval:
            model.eval()
        return model(torch.ones(2, 4)).mean()

    with rh.torch.graph(lambda x: model(x).sum().backward(), model=model).as_default():
        hook = rh.EvaluationHook({"mean": rh.call(evaluate)}, every_n_steps=1)
        with rh.MonitoredSession(hooks=[hook]) as session:
            for _ in range(3):
                session.run("train_op", {"x": torch.randn(2, 4)})
    messages = [it for it in caplog.messages if "an evaluation has changed" in it]
    assert len(messages) == (not calls_eval)
    assert calls_eval or "changed 'model/1." in messages[0]
    assert calls_eval or "call model.eval()" in messages[0]


def test_an_evaluation_with_averages_changes_nothing(training, caplog):
    with training.graph().as_default():
        averages = rh.EmaHook("model", decay=0.5)
        mean = rh.call(lambda: training.model.eval()(torch.ones(2, 4)).mean())
        evaluation = rh.EvaluationHook({"mean": mean}, every_n_steps=1, averages=averages)
        with rh.MonitoredSession(hooks=[averages, evaluation]) as session:
            for _ in range(3):
                session.run("train_op", training.batch)
    assert "an evaluation has changed" not in caplog.text
