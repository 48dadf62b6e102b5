"""Compiled modules and steps: off-steps run what was compiled, hooks have nothing compiled."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

import runhooks as rh

ASKED = ["activations/model/0", "gradients/model/0.weight", "global_gradient_norm", "train_op"]

# Torch's own, out of its compiler.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compile_module(training, backend):
    compiled = torch.compile(training.model, backend=backend, fullgraph=True)

    def step(images, labels):
        training.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(compiled(images), labels)
        loss.backward()
        training.optimizer.step()
        return {"loss": loss}

    return rh.torch.graph(step, ["loss"], model=compiled, optimizer=training.optimizer)


def compile_module_by_name(training, backend):
    def step(model, optimizer, images, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    model = torch.compile(training.model, backend=backend, fullgraph=True)
    return rh.torch.graph(step, ["loss"], model=model, optimizer=training.optimizer)


class Net(nn.Sequential):
    def forward(self, x):  # torch's own is not compiled in place
        for part in self:
            x = part(x)
        return x


def compile_module_in_place(training, backend):
    training.model = Net(*training.model)
    training.model.compile(backend=backend)
    return training.graph()


def compile_step(training, backend):
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)

    def step(images, labels):
        training.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(training.model(images), labels)
        loss.backward()
        training.optimizer.step()
        return {"loss": loss}

    objects = {"model": training.model, "optimizer": training.optimizer}
    return rh.torch.graph(torch.compile(step, backend=backend), ["loss"], **objects)


COMPILERS = [compile_module, compile_module_by_name, compile_module_in_place, compile_step]
KINDS = {it.__name__: it for it in COMPILERS}


@pytest.mark.parametrize("kind", KINDS)
def test_runs_that_ask_get_it_and_nothing_is_compiled_for_them(kind, training, hooks_left):
    backend = CompileCounter()
    graph = KINDS[kind](training, backend)
    with rh.Session(graph) as sess:
        for _ in range(3):
            sess.run("train_op", training.batch)
        compiled, stats = backend.frame_count, dict(counters["stats"])
        breaks = dict(counters["graph_break"])
        assert compiled > 0
        for _ in range(3):
            hidden, gradient, norm, _ = sess.run(ASKED, training.batch)
            assert hidden.shape == (16, 8)
            assert gradient.shape == (8, 4)
            assert norm > 0
            sess.run(["loss", "train_op"], training.batch)
            sess.run("train_op", training.batch)
    assert backend.frame_count == compiled
    assert counters["stats"] == stats
    assert counters["graph_break"] == breaks
    assert hooks_left(training.model) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_off_steps_run_what_was_compiled(kind, training):
    ran = []

    def backend(graph_module, example_inputs):
        def compiled(*args):
            ran.append(True)
            return graph_module.forward(*args)

        return compiled

    with rh.Session(KINDS[kind](training, backend)) as sess:
        sess.run("train_op", training.batch)
        each = len(ran)
        sess.run("train_op", training.batch)
        assert len(ran) == 2 * each > 0
        sess.run(ASKED, training.batch)
        assert len(ran) == 2 * each
        sess.run("train_op", training.batch)
        assert len(ran) == 3 * each


def test_gradients_are_those_of_the_compiled_module(training):
    training.model.eval()
    graph = compile_module(training, "aot_eager")
    with rh.Session(graph) as sess:
        sess.run("train_op", training.batch)
        gradient, _ = sess.run(["gradients/model/3.bias", "train_op"], training.batch)
        torch.testing.assert_close(gradient, training.model[3].bias.grad, rtol=0, atol=0)


def train_compiled(training, asked, every=2):
    torch.manual_seed(1)

    def a_little_off(graph_module, example_inputs):  # as a compiler is, if far more so
        return lambda *args: tuple(out * 1.001 for out in graph_module.forward(*args))

    graph = compile_module(training, a_little_off)
    hooks = [rh.LoggingTensorHook(asked, every_n_iter=every)] if asked else []
    losses = []
    with graph.as_default(), rh.MonitoredSession(hooks=hooks) as sess:
        for _ in range(6):
            losses.append(sess.run(["loss", "train_op"], training.batch)[0].item())
    return losses


def test_logged_gradients_change_no_number_of_a_compiled_module(make_training, caplog):
    caplog.set_level("INFO", "runhooks")
    plain = train_compiled(make_training(), [])
    torch._dynamo.reset()
    assert train_compiled(make_training(), ["gradients/model", "global_gradient_norm"]) == plain
    assert not [message for message in caplog.messages if "eagerly" in message]


@pytest.mark.parametrize("kind", ["compile_module", "compile_module_in_place"])
def test_gradients_of_a_compiled_module_run_it_compiled(kind, training):
    backend = CompileCounter()
    ran = []

    def counting(graph_module, example_inputs):
        compiled = backend(graph_module, example_inputs)
        return lambda *args: ran.append(True) or compiled(*args)

    names = ["gradients/model/0.weight", "global_gradient_norm", "train_op"]
    with rh.Session(KINDS[kind](training, counting)) as sess:
        sess.run(names, training.batch)  # the very first run is compiled as any other
        each, compiled = len(ran), backend.frame_count
        assert each > 0
        for number in range(2, 5):
            sess.run("train_op" if number % 2 else names, training.batch)
            assert len(ran) == number * each
    assert backend.frame_count == compiled


def test_optimizer_that_is_compiled_alone_is_not_compiled_again(training):
    backend = CompileCounter()
    optimizer = torch.optim.SGD(training.model.parameters(), lr=0.1)
    update = torch.compile(lambda: optimizer.step(), backend=backend)

    def step(images, labels):
        optimizer.zero_grad()
        nn.functional.cross_entropy(training.model(images), labels).backward()
        update()

    graph = rh.torch.graph(step, model=training.model, optimizer=optimizer)
    with rh.Session(graph) as sess:
        sess.run("train_op", training.batch)
        compiled = backend.frame_count
        for _ in range(3):
            gradient, _ = sess.run(["gradients/model/0.weight", "train_op"], training.batch)
            assert gradient.shape == (8, 4)
            sess.run("train_op", training.batch)
    assert backend.frame_count == compiled > 0


def test_what_runs_eagerly_is_said_once_a_session(training, caplog):
    caplog.set_level("INFO", "runhooks")
    graph = compile_module(training, "eager")
    for sessions in (1, 2):
        with graph.as_default(), rh.MonitoredSession() as sess:
            for _ in range(3):
                sess.run("train_op", training.batch)
                sess.run(["activations/model/0", "train_op"], training.batch)
        assert len([it for it in caplog.messages if "torch.compile" in it]) == sessions


def test_gradients_are_saved_where_a_compiled_optimizer_may_have_left_them(training, tmp_path):
    update = torch.compile(training.optimizer.step, backend="eager")

    def step(images, labels):
        training.optimizer.zero_grad()
        nn.functional.cross_entropy(training.model(images), labels).backward()
        update()

    with rh.Session(rh.torch.graph(step, **training.objects)) as sess:
        for number in range(3):
            sess.run("train_op", training.batch)
            rh.Saver().save(sess, tmp_path / "model.ckpt", number)
            assert "gradients" in rh.load(tmp_path)
