"""Checkpoints of modules and optimizers: what they hold, what they refuse, exact resume."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch import nn

import runhooks as rh
from runhooks.arrays.torch import ARRAYS
from runhooks.checkpoint import read_checkpoint
from runhooks.errors import PeerFailedError
from runhooks.ranks import LocalGroup, entered
from tests.checkpoint.sealing import forge


def saved(sess, tmp_path):
    return rh.Saver().save(sess, tmp_path / "model.ckpt")


def assert_same_state(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same_state(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same_state(a, b)
    else:
        assert one == other


class Kept:
    """An object that keeps ``state``."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def round_trip(state, tmp_path):
    """What comes back of ``state``."""
    with rh.Session(rh.torch.graph(lambda: None, kept=Kept(state))) as sess:
        path = saved(sess, tmp_path)
    kept = Kept(None)
    with rh.Session(rh.torch.graph(lambda: None, kept=kept)) as sess:
        rh.Saver().restore(sess, path)
    return kept.state


STATES = {
    "dtypes": {
        str(dtype): torch.arange(3).to(dtype)
        for dtype in (
            *(torch.bfloat16, torch.float16, torch.float32, torch.float64),
            *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
            *(torch.complex64, torch.complex128, torch.float8_e4m3fn),
        )
    },
    "shapes": {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 3), "t": torch.ones(2, 3).T},
    "nested": {"a": [{"b": torch.ones(1)}, (1, None, "x")], 0: {1.5: True}},
    "arrays": {"n": np.arange(3), "in a tuple": (np.ones(2), 3)},
    "counter": {"milestones": Counter([3, 6, 6])},
    "nothing": {},
}


@pytest.mark.parametrize("what", STATES)
def test_states_come_back_as_they_were(what, tmp_path):
    assert_same_state(round_trip(STATES[what], tmp_path), STATES[what])


def test_tensors_come_back_as_they_lay_in_memory(tmp_path):
    image = torch.arange(48.0).reshape(2, 3, 2, 4)
    channels_last = image.to(memory_format=torch.channels_last)
    state = {
        "in C order": image,
        "transposed": image.mT.clone(),
        "channels last": channels_last,
        "the same": channels_last,
        "of one channel": torch.rand(2, 1, 3, 3).to(memory_format=torch.channels_last),
        "conjugate": torch.complex(image, image).mT.conj(),
        "bfloat16": channels_last.bfloat16(),
        "a slice": image[:, :2],
    }
    got = round_trip(state, tmp_path)
    assert_same_state(got, state)
    strides = {name: it.stride() for name, it in state.items()}
    strides["a slice"] = (16, 8, 4, 1)  # there is nothing to keep in between
    assert {name: it.stride() for name, it in got.items()} == strides
    assert got["channels last"] is got["the same"]


def convolutions(optimizer, every):
    """A model in channels_last, its optimizer, and a step that updates in ``every``-th runs."""
    torch.manual_seed(0)
    layers = nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 1)
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    updates = optimizer(model.parameters(), lr=0.01, fused=True)
    images = torch.randn(8, 4, 8, 4, 4)

    def step(step):
        batch = images[int(step)].to(memory_format=torch.channels_last)
        model(batch).square().mean().backward()
        if (int(step) + 1) % every == 0:
            updates.step()
            updates.zero_grad()

    return model, updates, step


@pytest.mark.parametrize(
    ("optimizer", "every"), [(torch.optim.AdamW, 1), (torch.optim.SGD, 4)], ids=["moments", "grads"]
)
def test_fused_optimizers_resume_in_another_order_of_memory(optimizer, every, tmp_path):
    plain, _, step = convolutions(optimizer, every)
    for number in range(8):
        step(number)
    for last in (3, 8):
        model, updates, step = convolutions(optimizer, every)
        with rh.torch.graph(step, model=model, optimizer=updates).as_default():
            rh.train.train("train_op", tmp_path, max_steps=last)
    assert_same_state(model.state_dict(), plain.state_dict())


class Seen(nn.Module):
    """Keeps what it has seen in a buffer that grows, and loads one of any size, as torch's
    observers of quantization do."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.register_buffer("values", torch.zeros(0, dtype=dtype))

    def forward(self, x):
        seen = torch.cat([self.values, x.detach().mean().reshape(1).to(self.values.dtype)])
        self.values.resize_(len(seen)).copy_(seen)
        return x + self.values.float().mean()

    def _load_from_state_dict(self, state_dict, prefix, *args):
        self.values.resize_(len(state_dict[f"{prefix}values"]))
        super()._load_from_state_dict(state_dict, prefix, *args)


def growing(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 1), Seen(dtype))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = torch.randn(8, 4, 2)

    def step(step):
        optimizer.zero_grad()
        model(batches[int(step)]).square().mean().backward()
        optimizer.step()

    return model, optimizer, step


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool], ids=str)
def test_buffers_of_programs_that_are_saved_can_still_be_resized(dtype, asynchronous, tmp_path):
    plain, _, step = growing(dtype)
    for number in range(8):
        step(number)
    for last in (4, 8):
        model, optimizer, step = growing(dtype)
        scaffold = rh.Scaffold(saver=rh.Saver(asynchronous=asynchronous))
        with rh.torch.graph(step, model=model, optimizer=optimizer).as_default():
            with rh.MonitoredTrainingSession(
                checkpoint_dir=tmp_path,
                scaffold=scaffold,
                hooks=[rh.StopAtStepHook(last_step=last)],
                save_checkpoint_steps=1,
            ) as sess:
                while not sess.should_stop():
                    sess.run("train_op")
    assert_same_state(model.state_dict(), plain.state_dict())


def test_sparse_gradients_can_still_be_set_to_zero_after_a_save(tmp_path):
    def trained(saves):
        torch.manual_seed(0)
        model = nn.Embedding(10, 3, sparse=True)
        optimizer = torch.optim.SparseAdam(model.parameters(), 0.1)

        def step(step):
            model(torch.tensor([int(step), 2 * int(step)])).square().sum().backward()
            if step % 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)

        with rh.Session(rh.torch.graph(step, model=model, optimizer=optimizer)) as sess:
            for _ in range(5):
                sess.run("train_op")
                if saves:
                    saved(sess, tmp_path)
        return model.weight

    assert torch.equal(trained(True), trained(False))


def test_what_is_read_in_any_way_can_still_be_resized():
    model = Seen()
    with rh.Session(rh.torch.graph(lambda: None, model=model)) as sess:
        assert sess.read("model/values")["model/values"].shape == (0,)
    assert model(torch.ones(2)).tolist() == [2, 2]
    for read in (ARRAYS.pack, ARRAYS.histogram, lambda it: ARRAYS.to_host([it])):
        tensor = torch.zeros(2)
        read(tensor)
        assert tensor.resize_(1000).shape == (1000,)
    step = torch.tensor(3)
    assert ARRAYS.index(step) == 3
    assert step.resize_(1000).shape == (1000,)


def test_buffer_of_another_shape_is_refused_where_its_module_does_not_resize_it(tmp_path):
    def graph(features):
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(features, affine=False))
        return model, rh.torch.graph(lambda: None, model=model)

    with rh.Session(graph(2)[1]) as sess:
        path = saved(sess, tmp_path)
    model, wider = graph(3)
    before = model[0].weight.detach().clone()
    with rh.Session(wider) as sess, pytest.raises(ValueError, match=r"'model/1.running_mean' must"):
        rh.Saver().restore(sess, path)
    assert torch.equal(model[0].weight, before)


class Turned(nn.Module):
    """Its first version had the transposed weight, which it turns when it loads a state of that."""

    _version = 2

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.arange(9.0).reshape(3, 3))

    def _load_from_state_dict(self, state, prefix, metadata, *rest):
        if (metadata.get("version") or 1) < 2:
            state[f"{prefix}w"] = state[f"{prefix}w"].T
        super()._load_from_state_dict(state, prefix, metadata, *rest)


class Agent(nn.ModuleDict):
    """Its state has the states of modules inside."""

    def state_dict(self):
        return {"nets": [net.state_dict() for net in self.values()], "games": 3}

    def load_state_dict(self, state):
        for net, inner in zip(self.values(), state["nets"], strict=True):
            net.load_state_dict(inner)


@pytest.mark.parametrize("place", ["object", "inside an object", "hook", "inside a hook's state"])
def test_modules_are_told_the_version_of_the_state_they_load(place, tmp_path):
    for _ in range(2):
        turned = Turned()
        part = Agent({"net": turned}) if "inside" in place else turned
        objects, hooks = {"part": part}, []
        if "hook" in place:
            objects, hooks = {}, [rh.SavedStateHook(part=part)]
        with (
            rh.torch.graph(lambda: None, **objects).as_default(),
            rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as session,
        ):
            session.run("train_op")
    torch.testing.assert_close(turned.w, Turned().w, rtol=0, atol=0)


def test_tensors_stand_in_safetensors_under_their_names(training, tmp_path):
    with rh.Session(training.graph()) as sess:
        sess.run("train_op", training.batch)
        path = saved(sess, tmp_path)
    arrays = safetensors.numpy.load_file(f"{path}/checkpoint.safetensors")
    names = [f"model/{name}" for name in training.model.state_dict()]
    assert set(names) <= arrays.keys()
    assert {
        "optimizer/state/0/exp_avg",
        "optimizer/state/3/exp_avg_sq",
        "global_step",
    } < arrays.keys()
    np.testing.assert_array_equal(
        arrays["model/0.weight"], training.model[0].weight.detach().numpy()
    )


@pytest.mark.parametrize("saved_names", [None, ["model"]])
def test_one_object_alone(saved_names, training, make_training, tmp_path):
    with rh.Session(training.graph()) as sess:
        sess.run("train_op", training.batch)
        path = rh.Saver(saved_names).save(sess, tmp_path / "model.ckpt")
    names = read_checkpoint(tmp_path / "model.ckpt").arrays.keys()
    of_model = {f"model/{name}" for name in training.model.state_dict()}
    assert names == of_model if saved_names else names > of_model
    other = make_training(1)
    with rh.Session(other.graph()) as sess:
        rh.Saver(["model"]).restore(sess, path)
        assert sess.global_step == 0
    assert_same_state(other.model.state_dict(), training.model.state_dict())
    assert other.optimizer.state_dict()["state"] == {}


REFUSED = {
    "meta device": (nn.Linear(2, 2, device="meta").state_dict, r"'kept/weight'.*meta device"),
    "not initialized": (nn.LazyLinear(2).state_dict, r"'kept/weight'.*not initialized"),
    "sparse": (lambda: {"s": torch.eye(2).to_sparse()}, r"'kept/s'.*sparse"),
    "complex32": (
        lambda: {"c": torch.view_as_complex(torch.ones(3, 2, dtype=torch.float16))},
        r"'kept/c'.*torch.complex32.*: convert it to complex64",
    ),
    "bits": (
        lambda: {"b": torch.zeros(2, dtype=torch.uint8).view(torch.bits8)},
        r"'kept/b'.*torch.bits8.*: keep it as view\(torch.uint8\)",
    ),
    "object": (lambda: {"a": {"fn": len}}, r"kept/state/a/fn"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_saved_is_refused_by_its_key(what, tmp_path):
    state, message = REFUSED[what]
    with rh.Session(rh.torch.graph(lambda: None, kept=Kept(state()))) as sess:
        with pytest.raises(TypeError, match=message):
            saved(sess, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {"model": nn.Sequential(nn.Linear(4, 8), nn.Linear(9, 3))}, "missing.*model/1"),
        (
            lambda t: {"model": nn.Sequential(nn.Linear(4, 9), *list(t.model)[1:])},
            r"'model/0.weight' must be float32\[9, 4\], got float32\[8, 4\]",
        ),
        (lambda t: {"model": t.model.double()}, r"must be float64\[8, 4\], got float32"),
        (
            lambda t: {"optimizer": torch.optim.Adam(t.model[0].parameters())},
            r"'optimizer' must have groups of \[2\] parameters, got \[4\]",
        ),
        (
            lambda t: {"optimizer": torch.optim.SGD(t.model.parameters(), 0.1, momentum=0.9)},
            "'optimizer' is another kind of optimizer: .*'momentum'.*'betas'",
        ),
        (lambda t: {"averaged": nn.Linear(1, 1)}, "missing the object 'averaged'"),
    ],
)
def test_checkpoint_of_another_model_changes_nothing(
    change, message, training, make_training, tmp_path
):
    with rh.Session(training.graph()) as sess:
        sess.run("train_op", training.batch)
        path = saved(sess, tmp_path)
    other = make_training(1)
    graph = other.graph(**change(other))
    with rh.Session(graph) as sess:
        before, _ = graph.objects.save()
        before = {name: array.copy() for name, array in before.items()}
        with pytest.raises(ValueError, match=message):
            rh.Saver().restore(sess, path)
        after, _ = graph.objects.save()
        for name, array in before.items():
            np.testing.assert_array_equal(after[name], array)
        assert sess.global_step == 0


class Layers(nn.Module):
    def __init__(self, order):
        super().__init__()
        layers = {name: nn.Linear(3, 3, bias=False) for name in "ab"}
        for name in order:
            self.add_module(name, layers[name])

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def ordered(order="ab", optimizer=torch.optim.Adam, groups=""):
    """A session of layers of one shape, in an order, or in groups."""
    model = Layers(order)
    parameters = [{"params": getattr(model, it).parameters()} for it in groups]
    updates = optimizer(parameters or model.parameters(), 0.1)

    def step():
        updates.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        updates.step()

    return rh.Session(rh.torch.graph(step, model=model, updates=updates))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            {},
            {"order": "ba"},
            r"'model/a\.weight' was saved as number 0 of group 0, .* number 1 of group 0",
        ),
        ({"groups": "ab"}, {"groups": "ba"}, r"number 0 of group 0, .* number 0 of group 1"),
        ({}, {}, None),
        ({"optimizer": torch.optim.SGD}, {"optimizer": torch.optim.SGD, "order": "ba"}, None),
    ],
    ids=["layers", "groups", "same", "no state"],
)
def test_states_of_parameters_in_another_order_are_refused(before, after, words, tmp_path):
    with ordered(**before) as sess:
        sess.run("train_op")
        path = saved(sess, tmp_path)
    with ordered(**after) as sess:
        if words is None:
            rh.Saver().restore(sess, path)
            return
        with pytest.raises(ValueError, match=f"'updates' has parameters in another order.*{words}"):
            rh.Saver().restore(sess, path)
        assert sess.global_step == 0


def test_a_checkpoint_without_names_of_parameters_is_read(tmp_path):
    with ordered() as sess:
        sess.run("train_op")
        path = saved(sess, tmp_path)
    forge(Path(path), lambda it: it.update(states=it["states"].replace('"parameters"', '"other"')))
    with ordered() as sess:
        rh.Saver().restore(sess, path)
        assert sess.global_step == 1


def test_shared_parameters_may_change_places(tmp_path):
    def session(order):
        model = Layers(order)
        model.b.weight = model.a.weight
        updates = torch.optim.Adam(model.parameters(), 0.1)

        def step():
            updates.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            updates.step()

        return rh.Session(rh.torch.graph(step, model=model, updates=updates))

    with session("ab") as sess:
        sess.run("train_op")
        path = saved(sess, tmp_path)
    with session("ba") as sess:
        rh.Saver().restore(sess, path)
        assert sess.global_step == 1


def test_part_that_is_gone_is_named(training, tmp_path):
    with rh.Session(training.graph()) as sess:
        path = saved(sess, tmp_path)
    with rh.Session(rh.torch.graph(training.step, model=training.model)) as sess:
        with pytest.raises(ValueError, match="no object for 'optimizer'"):
            rh.Saver().restore(sess, path)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    ("device", "asynchronous"),
    [("cpu", False), ("cpu", True), pytest.param("cuda", False, marks=cuda)],
)
def test_resume_is_bit_for_bit(device, asynchronous, make_training, tmp_path):
    data = make_training(0, device)

    def train(it, folder, *lasts):
        for last in lasts:
            graph = it.graph()
            scaffold = rh.Scaffold(saver=rh.Saver(asynchronous=asynchronous))
            with (
                graph.as_default(),
                rh.MonitoredTrainingSession(
                    checkpoint_dir=folder,
                    scaffold=scaffold,
                    hooks=[rh.StopAtStepHook(last_step=last)],
                    save_checkpoint_steps=2,
                ) as sess,
            ):
                while not sess.should_stop():
                    order = torch.randperm(16)
                    shift = np.float32(np.random.normal() + random.random())
                    images, labels = data.images[order] + shift, data.labels[order]
                    sess.run("train_op", {"images": images, "labels": labels})
            state = {name: held.state_dict() for name, held in it.objects.items()}
            # As another process would: another model, other random states.
            it = make_training(7, device)
            random.seed(7)
            np.random.seed(7)
        return state

    random.seed(0)
    np.random.seed(0)
    undisturbed = train(make_training(0, device), tmp_path / "one", 9)
    random.seed(0)
    np.random.seed(0)
    resumed = train(make_training(0, device), tmp_path / "two", 3, 4, 9)
    assert_same_state(resumed, undisturbed)


def test_asynchronous_save_holds_the_step_that_was_saved(training, tmp_path, held_disk):
    saver = rh.Saver(asynchronous=True)
    with rh.Session(training.graph()) as sess:
        sess.run("train_op", training.batch)
        expected = training.model[0].weight.detach().clone()
        saver.save(sess, tmp_path / "model.ckpt")
        sess.run("train_op", training.batch)
        held_disk.release()
        saver.wait()
    got = read_checkpoint(tmp_path / "model.ckpt").arrays["model/0.weight"]
    np.testing.assert_array_equal(got, expected.numpy())


def test_compiled_module_has_the_names_of_the_module(training, tmp_path):
    compiled = torch.compile(training.model, backend="eager")
    with rh.Session(training.graph(model=compiled)) as sess:
        path = saved(sess, tmp_path)
        sess.run("model/0.weight")
    with rh.Session(training.graph()) as sess:
        rh.Saver().restore(sess, path)


def test_variable_and_part_of_one_name(training):
    graph = training.graph()
    with graph.as_default():
        rh.Variable({"0.weight": np.zeros(2)}, name="model")
    with rh.Session(graph) as sess:
        with pytest.raises(ValueError, match="'model/0.weight'"):
            sess.snapshot()


def session_and_saver(**objects):
    return rh.Session(rh.torch.graph(lambda: None, **objects)), rh.Saver()


def save_together(size, tmp_path, make):
    """Let ``size`` ranks, which are threads, save the objects that ``make(rank)`` returns."""

    def save(group):
        with entered(group):
            sess, saver = session_and_saver(**make(group.rank))
            return saver.save(sess, tmp_path / "model.ckpt")

    with ThreadPoolExecutor(size) as pool:
        path, *_ = pool.map(save, LocalGroup.together(size))
    return path


def test_random_states_are_derived_for_another_number_of_ranks(tmp_path):
    path = save_together(2, tmp_path, lambda rank: {"noise": torch.Generator().manual_seed(rank)})
    drawn = []
    for group in [*LocalGroup.together(3), LocalGroup.together(3)[1]]:
        with entered(group):
            noise = torch.Generator()
            sess, saver = session_and_saver(noise=noise)
            saver.restore(sess, path)
            drawn.append(
                (
                    torch.rand(1, generator=noise).item(),
                    torch.rand(1).item(),
                    np.random.rand(),
                    random.random(),
                )
            )
    assert drawn[3] == drawn[1]  # always the same
    assert len({number for numbers in drawn for number in numbers}) == 12
    for rank, group in enumerate(LocalGroup.together(2)):
        with entered(group):
            noise = torch.Generator()
            sess, saver = session_and_saver(noise=noise)
            saver.restore(sess, path)
        assert noise.initial_seed() == rank  # on as many ranks: each its own


def test_parameters_that_only_look_like_replicas_are_not_saved(tmp_path):
    models = [nn.Linear(40, 2), nn.Linear(40, 2)]
    with pytest.raises((ValueError, PeerFailedError), match="other values on rank 1"):
        save_together(2, tmp_path, lambda rank: {"model": models[rank]})
    assert list(tmp_path.iterdir()) == []


def settings_told(caplog):
    return [it for it in caplog.messages if "settings of the checkpoint" in it]


def resumed_with(tmp_path, rate, schedule, steps):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    objects = {"model": model, "optimizer": optimizer}
    if schedule:
        objects["schedule"] = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def step():
        optimizer.step()
        if schedule:
            objects["schedule"].step()

    with rh.torch.graph(step, **objects).as_default():
        hooks = [rh.StopAtStepHook(last_step=steps)]
        with rh.MonitoredTrainingSession(checkpoint_dir=tmp_path, hooks=hooks) as session:
            while not session.should_stop():
                session.run("train_op")
    return optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("schedule", [False, True])
def test_rate_of_the_program_that_gives_way_to_that_of_the_checkpoint_is_told(
    schedule, tmp_path, caplog
):
    caplog.set_level("INFO", logger="runhooks")
    resumed_with(tmp_path, 0.1, schedule, steps=2)
    resumed_with(tmp_path, 0.1, schedule, steps=3)
    assert settings_told(caplog) == []
    rate = resumed_with(tmp_path, 0.7, schedule, steps=4)
    assert rate == (0.1 * 0.5**4 if schedule else 0.1)
    (message,) = settings_told(caplog)
    assert "'optimizer'" in message
    assert "lr=0.1 " in message
    assert "lr=0.7 " in message


def test_adamw_takes_the_checkpoint_of_adam(training, make_training, tmp_path):
    with rh.Session(training.graph()) as sess:
        sess.run("train_op", training.batch)
        path = saved(sess, tmp_path)
    other = make_training(1)
    kin = torch.optim.AdamW(other.model.parameters())
    with rh.Session(other.graph(optimizer=kin)) as sess:
        rh.Saver().restore(sess, path)
    assert kin.state_dict()["state"].keys() == training.optimizer.state_dict()["state"].keys()


def test_tensors_come_back_where_torch_itself_would_place_them(tmp_path):
    """Sums of MKL, as LBFGS makes over its state, depend on that in the last bit."""
    state = {str(size): torch.arange(size, dtype=torch.float32) for size in range(1, 40)}
    found = round_trip(state, tmp_path)
    assert {it.data_ptr() % 64 for it in state.values()} == {0}
    assert {it.data_ptr() % 64 for it in found.values()} == {0}


def test_lbfgs_resumes_bit_for_bit(tmp_path):
    x = torch.randn(12, 16, 4, generator=torch.Generator().manual_seed(0))

    def trained(directory, last):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3)

        def train_step(step):
            def closure():
                optimizer.zero_grad()
                loss = (model(x[step]) - x[step].sum(1, keepdim=True)).square().mean()
                loss.backward()
                return loss

            optimizer.step(closure)

        with rh.torch.graph(train_step, model=model, optimizer=optimizer).as_default():
            rh.train.train("train_op", directory, max_steps=last)
        return torch.cat([it.flatten() for it in model.parameters()])

    undisturbed = trained(tmp_path / "undisturbed", 12)
    trained(tmp_path / "stopped", 5)
    assert torch.equal(trained(tmp_path / "stopped", 12), undisturbed)
