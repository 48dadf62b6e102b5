"""What can be fetched by name: when it is read, whose it is, and what is left behind."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import runhooks as rh
from runhooks.testing import RecordingHook, read_events


def same(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_outputs_stand_under_their_names(training):
    with rh.Session(training.graph()) as sess:
        assert sess.run("train_op", training.batch) is None
        by_name, by_tensor_name = sess.run(["loss", "loss:0"], training.batch)
        assert by_name.item() == by_tensor_name.item() == training.losses[-1]
        assert len(training.losses) == sess.global_step == 2


def test_parameters_and_rates_are_those_of_the_beginning_of_the_run(training):
    before = copy.deepcopy(training.model.state_dict())
    names = ["model/0.weight", "model/3.bias:0", "learning_rate", "optimizer/learning_rate"]
    with rh.Session(training.graph()) as sess:
        weight, bias, rate, same_rate = sess.run([*names, "train_op"], training.batch)[:4]
        same(weight, before["0.weight"])
        same(bias, before["3.bias"])
        assert rate == same_rate == 0.1
        sess.run("train_op", training.batch)
        assert sess.run("learning_rate") == 0.05
        same(sess.run("model/0.weight"), training.model[0].weight.detach())


def test_fetched_values_are_detached_and_do_not_change_later(training):
    graph = training.graph()
    names = ["model/0.weight", "gradients/model/0.weight", "activations/model/1", "loss"]
    with rh.Session(graph) as sess:
        fetched = sess.run(names, training.batch)
        assert not any(value.requires_grad for value in fetched)
        kept = copy.deepcopy(fetched)
        for _ in range(3):
            sess.run("train_op", training.batch)
        for now, then in zip(fetched, kept, strict=True):
            same(now, then)


@pytest.mark.parametrize(
    "asked", [[], ["model/weight"], ["array"], ["global_step"], ["activations/model"], ["nested"]]
)
def test_outputs_are_copies_of_the_types_that_the_step_returned(asked):
    model = nn.Linear(1, 1, bias=False)

    def step(x):
        with torch.no_grad():
            model(x)
            model.weight += 1
        weight = model.weight.detach()
        return {
            "array": weight.numpy(),
            "view": weight.numpy()[0],
            "nested": {"list": [weight.numpy(), weight], "scalar": np.float32(2)},
            "tensor": model.weight,
            "number": 1.5,
            "text": "a",
            "none": None,
        }

    nn.init.zeros_(model.weight)
    names = ["array", "view", "nested", "tensor", "number", "text", "none"]
    graph = rh.torch.graph(step, names, model=model)
    hooks = [RecordingHook(fetches=asked)] if asked else []
    parts = [graph["nested"]["list"], graph["nested"]["list"][0], graph["nested"]["scalar"]]
    with graph.as_default(), rh.MonitoredSession(hooks=hooks) as session:
        feeds = {"x": torch.ones(1)}
        alone = [session.run(["train_op", *names], feeds)[1:] for _ in range(3)]
        in_parts = [session.run(["train_op", *parts], feeds)[1:] for _ in range(3)]
    for value, (array, view, nested, tensor, *others) in enumerate(alone, start=1):
        kinds = [type(it) for it in (array, view, nested["list"][0], nested["scalar"])]
        assert kinds == [np.ndarray, np.ndarray, np.ndarray, np.float32]
        assert type(tensor) is type(nested["list"][1]) is torch.Tensor
        assert [array.item(), view.item(), tensor.item()] == [value] * 3
        assert [it.item() for it in nested["list"]] == [value] * 2
        assert others == [1.5, "a", None]
    for value, (both, array, scalar) in enumerate(in_parts, start=4):
        assert [type(it) for it in (*both, array)] == [np.ndarray, torch.Tensor, np.ndarray]
        assert [it.item() for it in (*both, array)] == [value] * 3
        assert type(scalar) is np.float32


def test_activation_that_is_a_view_of_a_parameter_is_a_copy():
    class Shows(nn.Linear):
        def forward(self, x):
            return {"out": super().forward(x), "weight": self.weight.detach().numpy()}

    model = Shows(1, 1)

    def step(x):
        model(x)
        with torch.no_grad():
            model.weight.fill_(7)

    nn.init.zeros_(model.weight)
    with rh.torch.graph(step, model=model).as_default(), rh.MonitoredSession() as session:
        seen = session.run(["train_op", "activations/model"], {"x": torch.ones(1)})[1]
    assert seen["weight"].tolist() == [[0]]


def test_gradients_are_those_that_the_optimizer_applies(training):
    def clipped_step(images, labels):
        loss = nn.functional.cross_entropy(training.model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1e-3)
        optimizer.step()
        optimizer.zero_grad()  # at the end: nothing is left to be read

    optimizer = torch.optim.SGD(training.model.parameters(), lr=1.0)
    graph = rh.torch.graph(clipped_step, model=training.model, optimizer=optimizer)
    before = training.model[3].weight.detach().clone()
    with rh.Session(graph) as sess:
        names = ["gradients/model/3.weight", "global_gradient_norm", "train_op"]
        gradient, norm, _ = sess.run(names, training.batch)
    torch.testing.assert_close(before - gradient, training.model[3].weight.detach())
    torch.testing.assert_close(norm, torch.tensor(1e-3), rtol=1e-3, atol=0)


def test_gradients_that_a_closure_computes_are_those_of_the_same_step(training):
    model, optimizer, norms = training.model.eval(), training.optimizer, []

    def train(images, labels):
        def closure():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            norms.append(model[3].weight.grad.norm())
            return loss

        loss = optimizer.step(closure)
        optimizer.zero_grad()
        return {"loss": loss}

    graph = rh.torch.graph(train, outputs=["loss"], model=model, optimizer=optimizer)
    with graph.as_default(), rh.Session() as session:
        for _ in range(3):
            names = ["gradients/model/3.weight", "global_gradient_norm", "train_op"]
            gradient, norm, _ = session.run(names, training.batch)
            assert gradient.norm() == norms[-1]
            assert norm > norms[-1]
    assert len(set(norms)) == 3


class SharpnessAware(torch.optim.Optimizer):
    """Applies the gradient of a point nearby through the optimizer that it wraps."""

    def __init__(self, params, **kwargs):
        super().__init__(params, kwargs)
        self.base_optimizer = torch.optim.SGD(self.param_groups, **kwargs)

    def step(self, closure):
        parameters = [p for group in self.param_groups for p in group["params"]]
        before = [p.detach().clone() for p in parameters]
        with torch.no_grad():
            for p in parameters:
                p.add_(p.grad, alpha=0.1)
        self.zero_grad()
        torch.enable_grad()(closure)()
        with torch.no_grad():
            for p, value in zip(parameters, before, strict=True):
                p.copy_(value)
        self.base_optimizer.step()


def test_norm_counts_what_an_optimizer_applies_through_another_once(training):
    model, norms = training.model.eval(), []
    optimizer = SharpnessAware(model.parameters(), lr=0.1)

    def train(images, labels):
        def closure():
            nn.functional.cross_entropy(model(images), labels).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9))

        closure()
        optimizer.step(closure)
        optimizer.zero_grad()

    graph = rh.torch.graph(train, model=model, optimizer=optimizer)
    names = ["global_gradient_norm", "gradients/model", "train_op"]
    with rh.Session(graph) as sess:
        norm, gradients, _ = sess.run(names, training.batch)
    near, applied = norms
    assert near != applied
    torch.testing.assert_close(norm, applied)
    torch.testing.assert_close(nn.utils.get_total_norm(gradients.values()), applied)


def test_norm_is_of_all_that_several_optimizers_apply_in_one_run(training):
    def train(images, labels):
        nn.functional.cross_entropy(training.model(images), labels).backward()
        norms.append(nn.utils.clip_grad_norm_(training.model.parameters(), 1e9))
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad()

    norms = []
    optimizers = {
        f"optimizer_{i}": torch.optim.SGD(training.model[i].parameters(), lr=0.1) for i in (0, 3)
    }
    with rh.Session(rh.torch.graph(train, model=training.model, **optimizers)) as sess:
        norm, _ = sess.run(["global_gradient_norm", "train_op"], training.batch)
    torch.testing.assert_close(norm, norms[0])


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_gradients_have_a_norm(dtype):
    model = nn.Linear(3, 3, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []

    def train(x):
        optimizer.zero_grad()
        model(x).abs().square().sum().backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9))
        optimizer.step()

    with rh.Session(rh.torch.graph(train, model=model, optimizer=optimizer)) as sess:
        norm, _ = sess.run(
            ["global_gradient_norm", "train_op"], {"x": torch.ones(1, 3, dtype=dtype)}
        )
    torch.testing.assert_close(norm, norms[0])


def test_gradients_of_a_step_without_an_optimizer_are_what_it_leaves(training):
    def backward(images, labels):
        nn.functional.cross_entropy(training.model(images), labels).backward()

    with rh.Session(rh.torch.graph(backward, model=training.model)) as sess:
        names = ["gradients/model/3.bias", "global_gradient_norm", "train_op"]
        gradient, norm, _ = sess.run(names, training.batch)
    same(gradient, training.model[3].bias.grad)
    squares = sum(float((p.grad**2).sum()) for p in training.model.parameters())
    assert norm.item() == pytest.approx(squares**0.5)


def test_whole_modules_are_dicts_by_name(training):
    batch_norm = nn.BatchNorm1d(4)
    training.model.insert(0, batch_norm)
    with rh.Session(training.graph()) as sess:
        values, layer, gradients, _ = sess.run(
            ["model", "model/1", "gradients/model", "train_op"], training.batch
        )
    assert values.keys() == training.model.state_dict().keys()
    assert layer.keys() == {"weight", "bias"}
    assert gradients.keys() == {
        name for name, p in training.model.named_parameters() if p.grad is not None
    }


def test_activations_are_what_a_submodule_returned(training):
    training.model.eval()
    expected = training.model[0](training.images).detach()
    with rh.Session(training.graph()) as sess:
        before_relu, output, _ = sess.run(
            ["activations/model/0", "activations/model", "train_op"], training.batch
        )
    same(before_relu, expected)
    assert output.shape == (16, 3)


def test_activations_of_an_evaluation(training):
    graph = training.graph()
    with graph.as_default():
        scores = rh.call(training.model, training.images)
    with rh.Session(graph) as sess:
        hidden, scores = sess.run(["activations/model/1", scores])
        assert hidden.shape == (16, 8)
        assert not scores.requires_grad


def test_what_is_changed_in_place_after_a_module_returned_it_is_fetched_as_it_was(training):
    training.model[1] = nn.ReLU(inplace=True)
    training.model[2] = nn.Identity()
    expected = training.model[0](training.images).detach()
    with rh.Session(training.graph()) as sess:
        (got, _) = sess.run(["activations/model/0", "train_op"], training.batch)
    assert (expected < 0).any()
    same(got, expected)


def test_nothing_is_left_behind(training, hooks_left):
    asked = ["activations/model/0", "gradients/model/0.weight", "train_op"]
    with rh.Session(training.graph()) as sess:
        sess.run(asked, training.batch)
        assert hooks_left(training.model) == 0
        with pytest.raises(IndexError):
            sess.run(asked, {"images": training.images, "labels": torch.full((16,), 7)})
        assert hooks_left(training.model) == 0


def test_runs_that_do_not_ask_have_no_hooks(training, hooks_left):
    seen = []
    graph = rh.torch.graph(lambda: seen.append(hooks_left(training.model)), model=training.model)
    with rh.Session(graph) as sess:
        sess.run("train_op")
        with pytest.raises(ValueError, match="not called"):
            sess.run(["train_op", "activations/model/0"])
    assert seen == [0, 1]


def test_rates_of_groups(training):
    head = {"params": training.model[3].parameters(), "lr": 0.01}
    optimizer = torch.optim.SGD([{"params": training.model[0].parameters()}, head], lr=0.1)
    with rh.Session(training.graph(optimizer=optimizer)) as sess:
        assert sess.run("learning_rate") == [0.1, 0.01]
        assert sess.run("optimizer/learning_rate/1") == 0.01
        optimizer.param_groups[0]["lr"] = 0.01
        assert sess.run("learning_rate") == 0.01


def test_a_single_rate_is_not_compared(monkeypatch):
    weight = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1))

    def compare(self):
        raise AssertionError("it would wait for the device")

    with rh.Session(rh.torch.graph(lambda: None, optimizer=optimizer)) as sess:
        monkeypatch.setattr(torch.Tensor, "__bool__", compare)
        rate = sess.run("learning_rate")
    monkeypatch.undo()
    same(rate, torch.tensor(0.1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model/0.wieght", "did you mean 'model/0.weight'"),
        ("gradients/model/0.wieght", "did you mean 'gradients/model/0.weight'"),
        ("activations/model/9", "did you mean 'activations/model/[0-3]'"),
        ("modle/0.weight", "model"),
        ("lerning_rate", "learning_rate"),
        ("lr", "did you mean 'learning_rate'"),
        ("los", "did you mean 'loss'"),
        ("optimizer/learning_rate/7", "nothing is named"),
    ],
)
def test_unknown_names(training, name, message):
    with rh.Session(training.graph()) as sess:
        with pytest.raises(ValueError, match=message):
            sess.run(name)
    with pytest.raises(ValueError, match=message):
        training.graph()[name]


def test_frozen_parameter_has_no_gradient_and_the_step_is_not_made(training):
    training.model[0].requires_grad_(False)
    with rh.Session(training.graph()) as sess:
        with pytest.raises(ValueError, match=r"gradients/model/0.weight.*frozen"):
            sess.run(["train_op", "gradients/model/0.weight"], training.batch)
        assert training.losses == []
        gradients, _ = sess.run(["gradients/model", "train_op"], training.batch)
        assert gradients.keys() == {"3.weight", "3.bias"}


def test_gradients_without_a_step_are_an_error_before_anything_runs(training):
    with rh.Session(training.graph()) as sess:
        for name in ("gradients/model/0.weight", "global_gradient_norm"):
            with pytest.raises(ValueError, match=name):
                sess.run(name)


def test_shared_weights_have_both_names(training):
    training.model[0] = nn.Linear(4, 4)
    training.model[3] = nn.Linear(4, 4)
    training.model[3].weight = training.model[0].weight
    with rh.Session(training.graph()) as sess:
        one, other, _ = sess.run(
            ["gradients/model/0.weight", "gradients/model/3.weight", "train_op"], training.batch
        )
    same(one, other)


def test_model_of_ten_thousand_names_costs_nothing_until_they_are_asked_for():
    class Untouchable(nn.Module):
        def named_parameters(self, *args, **kwargs):
            raise AssertionError("listed")

        named_buffers = named_modules = named_parameters

    model = Untouchable()
    for number in range(10_000):
        model.register_parameter(f"p{number}", nn.Parameter(torch.zeros(1)))
    graph = rh.torch.graph(lambda: None, model=model)
    with rh.Session(graph) as sess:
        sess.run("train_op")
        assert sess.run("model/p9999").item() == 0.0
    assert len(graph.get_operations()) < 10


def test_scaled_gradients_are_fetched_unscaled(training):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(training.model.parameters(), lr=1.0)

    def step(images, labels):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(training.model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    before = training.model[3].bias.detach().clone()
    graph = rh.torch.graph(step, model=training.model, optimizer=optimizer, scaler=scaler)
    with rh.Session(graph) as sess:
        gradient, _ = sess.run(["gradients/model/3.bias", "train_op"], training.batch)
    torch.testing.assert_close(before - gradient, training.model[3].bias.detach())


class Scaled:
    """A model whose ``GradScaler`` skips the first step, and a loop that clears at its end."""

    def __init__(self, dtype=torch.float32):
        torch.manual_seed(0)
        self.model = nn.Linear(2, 1, dtype=dtype)
        self.model.bias.requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        self.x = torch.ones(3, 2, dtype=dtype)
        self.norms = []
        objects = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        self.graph = rh.torch.graph(self.step, ["loss"], **objects)

    def step(self):
        loss = self.model(self.x).square().mean()
        self.scaler.scale(loss).backward()
        if not self.norms:
            self.model.weight.grad[0, 0] = torch.inf
        self.scaler.unscale_(self.optimizer)
        self.norms.append(nn.utils.clip_grad_norm_(self.model.parameters(), 1e9))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return {"loss": loss}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_a_skipped_step_are_nan_once_they_are_cleared(dtype):
    scaled = Scaled(dtype)
    before = scaled.model.weight.detach().clone()
    hook = RecordingHook(
        fetches=["gradients/model/weight", "gradients/model", "global_gradient_norm"]
    )
    hooks = [hook, rh.NanTensorHook("loss"), rh.StopAtStepHook(last_step=3)]
    with scaled.graph.as_default(), rh.MonitoredSession(hooks=hooks) as sess:
        sess.run("train_op")
        same(scaled.model.weight.detach(), before)
        while not sess.should_stop():
            sess.run("train_op")
    assert scaled.norms[0].isinf()
    for (gradient, gradients, norm), true in zip(hook.results, scaled.norms, strict=True):
        assert gradients.keys() == {"weight"}  # the bias is frozen
        torch.testing.assert_close(gradient, gradients["weight"], equal_nan=True)
        assert gradient.shape == (1, 2)
        assert gradient.dtype == norm.dtype == dtype
        assert norm.shape == ()
        if true.isinf():
            assert gradient.isnan().all()
            assert norm.isnan()
        else:
            torch.testing.assert_close(gradient.norm(), true)
            torch.testing.assert_close(norm, true)


def test_summaries_of_the_gradients_of_a_skipped_step_do_not_end_the_training(tmp_path):
    scaled = Scaled()
    with scaled.graph.as_default():
        rh.summary.gradient_norms("gradients/model")
        rh.summary.histogram("gradients/model/weight")
        hooks = [
            rh.NanTensorHook("loss"),
            rh.SummarySaverHook(1, output_dir=tmp_path, summary_op=rh.summary.merge_all()),
            rh.StopAtStepHook(last_step=2),
        ]
        with rh.MonitoredSession(hooks=hooks) as sess:
            while not sess.should_stop():
                sess.run("train_op")
    events = read_events(tmp_path)
    norms = {event.step: event.value for event in events if event.tag == "gradient_norm"}
    assert norms == {
        1: pytest.approx(np.nan, nan_ok=True),
        2: pytest.approx(scaled.norms[1].item()),
    }
    nan_counts = {event.step: event.value for event in events if event.tag.endswith("/nan_count")}
    assert nan_counts == {1: 2.0}


def test_gradients_are_cleared_although_those_that_no_optimizer_holds_are_left(training):
    head = training.model[3]
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

    def step(images, labels):
        nn.functional.cross_entropy(training.model(images), labels).backward()
        optimizer.zero_grad()

    graph = rh.torch.graph(step, model=training.model, optimizer=optimizer)
    names = ["gradients/model", "gradients/model/3.bias", "global_gradient_norm", "train_op"]
    with rh.Session(graph) as sess:
        gradients, gradient, norm, _ = sess.run(names, training.batch)
    same(gradients["0.weight"], training.model[0].weight.grad)
    assert all(it.isnan().all() for it in (gradients["3.weight"], gradient, norm))


def test_gradients_that_a_skipped_step_leaves_are_those(training):
    model, scaler = training.model, torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def step(images, labels):
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(images), labels)).backward()
        model[3].bias.grad[0] = torch.inf
        scaler.step(optimizer)
        scaler.update()

    graph = rh.torch.graph(step, model=model, optimizer=optimizer, scaler=scaler)
    names = ["gradients/model/3.bias", "gradients/model/0.bias", "global_gradient_norm"]
    with rh.Session(graph) as sess:
        *found, norm, _ = sess.run([*names, "train_op"], training.batch)
    for gradient, layer in zip(found, (model[3], model[0]), strict=True):
        same(gradient, layer.bias.grad)
    assert norm.isinf()


@pytest.mark.parametrize("is_applied", [True, False])
def test_gradient_of_what_the_loss_does_not_depend_on_is_an_error(training, is_applied):
    model, norms = training.model, []
    model.append(nn.Linear(1, 1))

    def step(images, labels):
        nn.functional.cross_entropy(model[:4](images), labels).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1e9))
        if is_applied:
            optimizer.step()
            optimizer.zero_grad()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = ["gradients/model", "global_gradient_norm", "train_op"]
    with rh.Session(rh.torch.graph(step, model=model, optimizer=optimizer)) as sess:
        gradients, norm, _ = sess.run(names, training.batch)
        assert gradients.keys() == {"0.weight", "0.bias", "3.weight", "3.bias"}
        torch.testing.assert_close(norm, norms[0])
        with pytest.raises(ValueError, match="the loss did not depend on it"):
            sess.run(["gradients/model/4.weight", "train_op"], training.batch)


def test_bfloat16_model(training):
    training.model.to(torch.bfloat16)
    training.images = training.images.to(torch.bfloat16)
    graph = training.graph()
    with graph.as_default():
        rh.summary.histogram("weights", graph["model/0.weight"])
    with rh.Session(graph) as sess:
        weight, gradient, norm, _ = sess.run(
            ["model/0.weight", "gradients/model/0.weight", "global_gradient_norm", "train_op"],
            training.batch,
        )
        assert weight.dtype == gradient.dtype == torch.bfloat16
        assert norm.dtype == torch.float32
        summary = sess.run(graph.get_collection(rh.GraphKeys.SUMMARIES)[0])
        assert summary.SerializeToString()
