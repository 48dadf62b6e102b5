"""Checkpoints of a model whose names have changed, or that has grown since."""

import logging

import numpy as np
import pytest

import runhooks as rh


def saved(directory, **variables):
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        for name, value in variables.items():
            rh.Variable(value, name=name)
        with rh.Session() as session:
            return rh.Saver().save(session, directory / "model.ckpt", global_step=0)


def restored(path, saver, **variables):
    with rh.Graph().as_default():
        rh.train.get_or_create_global_step()
        tensors = {name: rh.Variable(value, name=name) for name, value in variables.items()}
        with rh.Session() as session:
            saver.restore(session, path)
            return session.run(tensors)


def ones(n):
    return np.ones(n, np.float32)


def zeros(n):
    return np.zeros(n, np.float32)


def test_a_variable_of_another_name(tmp_path):
    path = saved(tmp_path, old=ones(2), body=ones(3))
    found = restored(path, rh.Saver(rename={"old": "new"}), new=zeros(2), body=zeros(3))
    assert found["new"].tolist() == [1, 1]
    assert found["body"].tolist() == [1, 1, 1]


def test_a_leaf_of_a_pytree_of_another_name(tmp_path):
    path = saved(tmp_path, state={"body": ones(2), "head": {"kernel": ones(3)}})
    saver = rh.Saver(rename={"state/head": "state/classifier"})
    new = {"body": zeros(2), "classifier": {"kernel": zeros(3)}}
    found = restored(path, saver, state=new)["state"]
    assert found["classifier"]["kernel"].tolist() == [1, 1, 1]


def test_a_checkpoint_that_has_the_new_name_is_restored_as_it_is(tmp_path):
    path = saved(tmp_path, new=ones(2))
    assert restored(path, rh.Saver(rename={"old": "new"}), new=zeros(2))["new"].tolist() == [1, 1]


def test_a_name_that_is_not_there_is_an_error_with_the_near_ones(tmp_path):
    path = saved(tmp_path, kernel=ones(2))
    with pytest.raises(ValueError, match="kernel") as caught:
        restored(path, rh.Saver(rename={"kernal": "new"}), new=zeros(2))
    assert "rename" in str(caught.value)


def test_two_arrays_cannot_get_one_name(tmp_path):
    path = saved(tmp_path, a=ones(2), b=ones(2))
    with pytest.raises(ValueError, match="one name"):
        restored(path, rh.Saver(rename={"a": "b"}), b=zeros(2))


def test_what_the_checkpoint_lacks_keeps_its_value_and_is_named(tmp_path, caplog):
    path = saved(tmp_path, body=ones(2))
    with pytest.raises(ValueError, match="head"):
        restored(path, rh.Saver(), body=zeros(2), head=zeros(3))
    with caplog.at_level(logging.INFO, "runhooks"):
        found = restored(path, rh.Saver(missing="keep"), body=zeros(2), head=zeros(3))
    assert found["body"].tolist() == [1, 1]
    assert found["head"].tolist() == [0, 0, 0]
    assert "['head']" in caplog.text


def test_keep_does_not_excuse_another_shape(tmp_path):
    path = saved(tmp_path, body=ones(2))
    with pytest.raises(ValueError, match="body"):
        restored(path, rh.Saver(missing="keep"), body=zeros(3))


@pytest.mark.parametrize(
    ("argument", "value"), [("missing", "ignore"), ("missing", None), ("rename", ["a"])]
)
def test_arguments_are_checked(argument, value):
    with pytest.raises((TypeError, ValueError), match=argument):
        rh.Saver(**{argument: value})


@pytest.fixture
def nn():
    return pytest.importorskip("torch").nn


def train(directory, saver, **objects):
    import torch

    model = objects["net"] if "net" in objects else objects["model"]
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        sum(p.sum() for p in model.parameters()).backward()
        optimizer.step()

    graph = rh.torch.graph(step, optimizer=optimizer, **objects)
    scaffold = rh.Scaffold(saver=saver)
    with (
        graph.as_default(),
        rh.MonitoredTrainingSession(checkpoint_dir=directory, scaffold=scaffold) as session,
    ):
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        session.run("train_op")
        return session.global_step, before, optimizer.state_dict()


def test_a_renamed_module_and_object_of_torch(nn, tmp_path):
    import torch

    class Old(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(2, 2), nn.BatchNorm1d(2)

    class New(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.classifier = nn.Linear(2, 2), nn.BatchNorm1d(2)

    old = Old()
    train(tmp_path, rh.Saver(), model=old)
    saver = rh.Saver(rename={"model": "net", "model/head": "net/classifier"})
    step, before, _ = train(tmp_path, saver, net=New())
    assert step == 2
    assert torch.equal(before["classifier.weight"], old.head.weight)
    assert torch.equal(before["body.weight"], old.body.weight)
    # Again: the newest checkpoint has the new names.
    step, _, state = train(tmp_path, saver, net=New())
    assert step == 3
    assert all(it["step"] == 3 for it in state["state"].values())


def test_an_object_and_a_buffer_that_were_added_to_a_torch_program(nn, tmp_path):
    import torch

    class Grown(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.register_buffer("scale", torch.full((2,), 3.0))

    old = nn.Linear(2, 2)
    train(tmp_path, rh.Saver(), model=old)
    with pytest.raises(ValueError, match="scale|generator"):
        train(tmp_path, rh.Saver(), model=Grown(), generator=torch.Generator())
    grown = Grown()
    step, before, _ = train(
        tmp_path, rh.Saver(missing="keep"), model=grown, generator=torch.Generator()
    )
    assert step == 2
    assert torch.equal(before["weight"], old.weight)
    assert grown.scale.tolist() == [3, 3]
