"""Checkpoints of modules and optimizers: what they hold, what they refuse, exact resume."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch import nn

import runhooks as rh
from runhooks.checkpoint import read_checkpoint
from runhooks.errors import PeerFailedError
from runhooks.ranks import LocalGroup, entered


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
