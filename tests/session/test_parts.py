"""Variables are read and assigned between runs."""

import numpy as np
import optax
import pytest
import torch

import runhooks as rh


@pytest.fixture
def session(model):
    rh.Variable({"w": np.zeros((2, 2), np.float32), "rate": np.float32(0.5)}, name="state")
    with rh.Session() as session:
        yield session


@pytest.mark.every_engine
def test_a_part_of_a_variable(session, model):
    read = session.read("state/rate")
    assert {name: (it.dtype, it.tolist()) for name, it in read.items()} == {
        "state/rate": (np.float32, 0.5)
    }
    session.assign({"state/rate": 0.25, "weights": np.array([3, 4], np.float32)})
    assert session.read("state/rate")["state/rate"] == 0.25
    assert float(session.run(model.loss)) == 7
    session.run(model.train_op)
    assert float(session.run(model.loss)) == 9


@pytest.mark.every_engine
def test_all_parts_of_a_variable(session):
    assert session.read("state").keys() == {"state/rate", "state/w"}
    assert session.read("global_step") == {"global_step": 0}
    session.assign({"global_step": 5})
    assert session.global_step == 5


@pytest.mark.every_engine
def test_what_is_read_does_not_change_later(session, model):
    before = session.read("weights")["weights"]
    session.run(model.train_op)
    assert before.tolist() == [0, 0]


@pytest.mark.every_engine
def test_what_was_assigned_is_not_the_array_of_the_caller(session):
    given = np.array([3, 4], np.float32)
    session.assign({"weights": given})
    given[:] = 9
    assert session.read("weights")["weights"].tolist() == [3, 4]


@pytest.mark.every_engine
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("state/w", np.zeros(3, np.float32), r"'state/w' keeps its shape and dtype"),
        ("state/rate", np.float64(0.1), r"'state/rate' keeps its shape and dtype"),
        ("global_step", 0.5, "'global_step'"),
        ("state/raet", 0.5, r"named 'state/raet'; did you mean 'state/rate'"),
    ],
)
def test_nothing_is_assigned_if_one_value_does_not_fit(session, name, value, message):
    with pytest.raises(ValueError, match=message):
        session.assign({"weights": np.ones(2, np.float32), name: value})
    assert session.read("weights")["weights"].tolist() == [0, 0]


@pytest.mark.every_engine
def test_an_unknown_name(session):
    with pytest.raises(ValueError, match="named 'sate'; did you mean"):
        session.read("sate")


@pytest.mark.every_engine
def test_an_assignment_is_a_change(session, tmp_path):
    saver = rh.Saver()
    path = session.save_checkpoint(saver, tmp_path / "model.ckpt", 0, save_graph_def=False)
    session.checkpoint = path
    assert session.is_saved_as(path)
    session.assign({"state/rate": 0.25})
    assert not session.is_saved_as(path)


def test_a_hyperparameter_of_optax_and_nothing_is_compiled_again():
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)
    traced = []

    def update(state):
        traced.append(1)
        updates, opt_state = optimizer.update({"w": np.ones(2, np.float32)}, state["opt_state"])
        return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}

    params = {"w": np.zeros(2, np.float32)}
    with rh.Graph(engine="jax").as_default():
        state = rh.Variable({"params": params, "opt_state": optimizer.init(params)}, name="state")
        train_op = state.assign(rh.call(update, state)).op
        with rh.Session() as session:
            session.run(train_op)
            name = "state/opt_state/hyperparams/learning_rate"
            session.assign({name: 0.25})
            session.run(train_op)
            assert session.read("state/params/w")["state/params/w"].tolist() == [-0.75, -0.75]
    assert len(traced) == 1


@pytest.fixture
def torch_session():
    model = torch.nn.Linear(2, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.01}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    graph = rh.torch.graph(lambda x: None, model=model, optimizer=optimizer)
    with graph.as_default(), rh.Session() as session:
        yield session, model, optimizer


def test_the_objects_of_torch(torch_session):
    session, model, optimizer = torch_session
    rates = session.read("learning_rate")
    assert rates == {"optimizer/learning_rate/0": 0.1, "optimizer/learning_rate/1": 0.01}
    session.assign({"learning_rate/1": 0.5, "model/bias": np.array([3], np.float32)})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    assert model.bias.tolist() == [3.0]
    assert session.read("model").keys() == {"model/weight", "model/bias"}


def test_the_objects_of_torch_are_left_alone_if_one_value_does_not_fit(torch_session):
    session, _, optimizer = torch_session
    with pytest.raises(ValueError, match="model/bias"):
        session.assign({"learning_rate/0": 0.5, "model/bias": np.zeros(2, np.float32)})
    with pytest.raises(ValueError, match="several parts"):
        session.assign({"learning_rate": 0.5})
    with pytest.raises(ValueError, match=r"named 'model/wieght'; did you mean 'model/weight'"):
        session.assign({"learning_rate/0": 0.5, "model/wieght": 0.0})
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_learning_rate_that_is_a_tensor():
    model = torch.nn.Linear(2, 1)
    rate = torch.tensor(0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    graph = rh.torch.graph(lambda x: None, model=model, optimizer=optimizer)
    with graph.as_default(), rh.Session() as session:
        session.assign({"learning_rate/0": 0.25})
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == 0.25
