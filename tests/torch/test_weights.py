"""Weights of torch: into a module, from another run, from and to files."""

import logging

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import runhooks as rh
from runhooks.checkpoint import read_checkpoint


@pytest.fixture
def run(training, tmp_path):
    """The directory of a run of two steps."""
    train(training, tmp_path / "run")
    return tmp_path / "run"


def train(training, directory, last_step=2, init_from=None, hooks=(), **objects):
    scaffold = rh.Scaffold(init_from=init_from)
    hooks = [rh.StopAtStepHook(last_step=last_step), *hooks]
    with (
        training.graph(**objects).as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=directory, scaffold=scaffold, hooks=hooks
        ) as session,
    ):
        before = {name: it.detach().clone() for name, it in training.model.state_dict().items()}
        while not session.should_stop():
            session.run("train_op", training.batch)
    return before


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


def test_into_a_module(run, training, make_training):
    other = make_training(1).model
    other.load_state_dict(rh.load(run, "model", like=other.state_dict()))
    assert_equal(other.state_dict(), training.model.state_dict())


def test_into_a_part_of_a_module_by_the_name_that_fetches_it(run, training, make_training):
    layer = make_training(1).model[3]
    layer.load_state_dict(rh.load(run, "model/3", like=layer.state_dict()))
    assert_equal(layer.state_dict(), training.model[3].state_dict())
    weight = rh.load(run, "model/0.weight")
    np.testing.assert_array_equal(weight, training.model[0].weight.detach().numpy())


def test_dtypes_devices_and_versions_are_those_of_like(run, training):
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)).bfloat16()
    like = model.state_dict()
    found = rh.load(run, "model", like=like)
    assert type(found) is type(like)
    assert found._metadata == like._metadata
    model.load_state_dict(found, assign=True)
    assert model[0].weight.dtype == torch.bfloat16
    torch.testing.assert_close(model[0].weight, training.model[0].weight.bfloat16())


def test_the_states_of_an_optimizer(run, training, make_training):
    arrays = rh.load(run, "optimizer")
    expected = training.optimizer.state_dict()["state"]
    np.testing.assert_array_equal(arrays["state"]["0"]["exp_avg"], expected[0]["exp_avg"].numpy())
    like = training.optimizer.state_dict()
    found = rh.load(run, "optimizer", like=like)
    torch.testing.assert_close(found["state"][3]["exp_avg_sq"], expected[3]["exp_avg_sq"])
    assert found["param_groups"] == like["param_groups"]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight


def tied(path, init_from=None):
    model = Tied()
    with (
        rh.torch.graph(lambda: None, model=model).as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=path, scaffold=rh.Scaffold(init_from=init_from)
        ) as session,
    ):
        session.run("train_op")
    return model


def test_a_parameter_that_two_modules_share(tmp_path):
    first = tied(tmp_path / "a")
    saved = read_checkpoint(tmp_path / "a/model.ckpt-1").arrays
    assert [name for name in saved if name.startswith("model")] == ["model/embed.weight"]
    found = rh.load(tmp_path / "a", "model")
    assert found.keys() == {"embed.weight", "out.weight"}
    other = Tied()
    other.load_state_dict(rh.load(tmp_path / "a", "model", like=other.state_dict()))
    torch.testing.assert_close(other.out.weight, first.embed.weight, rtol=0, atol=0)
    np.testing.assert_array_equal(found["out.weight"], rh.load(tmp_path / "a", "model/out.weight"))
    rh.export(tmp_path / "a", tmp_path / "tied.safetensors", "model")
    assert_equal(safetensors.torch.load_file(tmp_path / "tied.safetensors"), first.state_dict())


@pytest.mark.parametrize("names", [["embed.weight", "out.weight"], ["out.weight"]])
def test_a_shared_parameter_from_a_file(names, tmp_path):
    weight = torch.arange(20.0).reshape(5, 4)
    torch.save(dict.fromkeys(names, weight), tmp_path / "a.pt")
    init = rh.InitFrom(tmp_path / "a.pt", rename={"": "model/"})
    model = tied(tmp_path / "a", init)
    torch.testing.assert_close(model.embed.weight.detach(), weight)


def test_fine_tuning_with_a_new_head(run, training, make_training, tmp_path, caplog):
    body = {name: it.clone() for name, it in training.model.state_dict().items()}
    other = make_training(1)
    other.model[3] = nn.Linear(8, 7)
    optimizer = torch.optim.Adam(other.model.parameters())
    init = rh.InitFrom(run, "!model/3")
    with caplog.at_level(logging.INFO, "runhooks"):
        before = train(other, tmp_path / "b", 2, init, optimizer=optimizer)
    for name in ("0.weight", "0.bias"):
        assert torch.equal(before[name], body[name])
    assert before["3.weight"].shape == (7, 8)
    assert f"initialized from {run}/model.ckpt-2: model/0 (2 arrays); not from there: model/3" in (
        caplog.text
    )
    assert rh.load(tmp_path / "b", "global_step") == 2
    again = make_training(2)
    again.model[3] = nn.Linear(8, 7)
    optimizer = torch.optim.Adam(again.model.parameters())
    before = train(again, tmp_path / "b", 3, init, optimizer=optimizer)
    assert_equal(before, other.model.state_dict())


def test_a_state_dict_saved_by_torch(training, make_training, tmp_path):
    torch.save(training.model.state_dict(), tmp_path / "model.pt")
    body = {name: it.clone() for name, it in training.model.state_dict().items()}
    init = rh.InitFrom(tmp_path / "model.pt", rename={"": "model/"})
    assert_equal(train(make_training(1), tmp_path / "b", 1, init), body)


def test_modules_are_taken_and_nothing_else(training, make_training, tmp_path, caplog):
    ema = rh.EmaHook("model", decay=0.5)
    train(training, tmp_path / "a", 2, hooks=[ema])
    body = {name: it.clone() for name, it in training.model.state_dict().items()}
    other = make_training(1)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    with caplog.at_level(logging.INFO, "runhooks"):
        before = train(other, tmp_path / "b", 1, tmp_path / "a", hooks=[rh.EmaHook("model")])
    assert_equal(before, body)
    (line,) = (it.message for it in caplog.records if it.message.startswith("initialized from"))
    taken = "model (4 arrays); not used: ema (4 arrays)"
    assert line == f"initialized from {tmp_path}/a/model.ckpt-2: {taken}"
    assert other.optimizer.state_dict()["state"][0]["step"] == 1
    seen = rh.load(tmp_path / "b/model.ckpt-0", "random")
    assert any(np.array_equal(it, state.numpy()) for it in seen.values())


@pytest.fixture
def group():
    """A process group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def test_a_module_of_which_each_rank_holds_a_part(group, tmp_path):
    from torch.distributed.fsdp import fully_shard

    arrays = {"weight": np.arange(6, dtype=np.float32).reshape(3, 2), "bias": np.ones(3)}
    np.savez(tmp_path / "a.npz", **arrays)
    model = fully_shard(nn.Linear(2, 3))
    scaffold = rh.Scaffold(init_from=rh.InitFrom(tmp_path / "a.npz", rename={"": "model/"}))
    with (
        rh.torch.graph(lambda: None, model=model).as_default(),
        rh.MonitoredTrainingSession(checkpoint_dir=tmp_path / "b", scaffold=scaffold) as session,
    ):
        session.run("train_op")
    assert model.weight.full_tensor().tolist() == arrays["weight"].tolist()
    other = fully_shard(nn.Linear(2, 3))
    state = rh.load(tmp_path / "b", "model", like=other.state_dict())
    assert type(state["weight"]) is type(other.state_dict()["weight"])
    other.load_state_dict(state)
    assert other.weight.full_tensor().tolist() == arrays["weight"].tolist()


def test_export_is_what_load_state_dict_takes(run, training, make_training, tmp_path):
    rh.export(run, tmp_path / "model.safetensors", "model")
    other = make_training(1).model
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert_equal(other.state_dict(), training.model.state_dict())
