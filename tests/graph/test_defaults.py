"""A parameter of a step that a hook feeds now and then, and that has a default in other runs."""

import numpy as np
import pytest

import runhooks as rh

DATA = [np.float32(it) for it in range(1, 5)]


def noisy_step(w, x, noise=0.0):
    return w + x + noise, {"loss": w, "used": noise}


class EverySecond(rh.SessionRunHook):
    """Feeds ``noise`` at every second step, and only then."""

    def before_run(self, run_context):
        due = run_context.next_step % 2 == 0
        return rh.SessionRunArgs(None, {"noise": np.float32(100)}) if due else None


def step_graph(engine, **more):
    return rh.graph(noisy_step, w=np.float32(0), data=DATA, engine=engine, **more)


def torch_graph(**more):
    import torch

    module = torch.nn.Linear(1, 1)

    def step(w, module, x, noise=0.0):
        return noisy_step(w, x, noise)

    states = {"w": torch.tensor(0.0), "module": module}
    data = [torch.tensor(it) for it in DATA]
    return rh.torch.graph(step, ["loss", "used"], data=data, **states, **more)


def objects_graph(**more):
    """Of a step that carries no value."""
    import torch

    module = torch.nn.Linear(1, 1)

    def step(x, noise=0.0):
        total.append(float(x + noise))
        return {"used": noise}

    total = []
    graph = rh.torch.graph(step, ["used"], data=DATA, module=module, **more)
    return graph, total


def train(graph, hooks):
    used = []
    hooks = [*hooks, rh.CallHook(lambda it: used.append(float(it)), ["used"], every_n_steps=1)]
    with graph.as_default(), rh.MonitoredSession(hooks=hooks) as session:
        for _ in DATA:
            session.run("train_op")
        names = [op.name for op in graph.get_operations()]
        return used, session.run("w", hooks=False) if "w" in names else None


def default():
    return rh.placeholder_with_default(np.float32(1))


@pytest.mark.every_engine
def test_a_hook_feeds_a_default_only_when_it_is_due(engine):
    used, w = train(step_graph(engine, noise=default), [EverySecond()])
    assert used == [1, 100, 1, 100]
    assert float(w) == sum(DATA) + sum(used)


def test_a_step_of_torch_objects_has_defaults_that_are_fed_too():
    used, w = train(torch_graph(noise=default), [EverySecond()])
    assert used == [1, 100, 1, 100]
    assert float(w) == sum(DATA) + sum(used)
    graph, total = objects_graph(noise=default)
    assert train(graph, [EverySecond()])[0] == [1, 100, 1, 100]
    assert total == [2, 102, 4, 104]


@pytest.mark.every_engine
def test_feeding_a_parameter_with_a_default_is_answered_with_the_line_to_write(engine):
    with pytest.raises(ValueError, match="noise=lambda: rh.placeholder_with_default"):
        train(step_graph(engine), [EverySecond()])


def test_torch_objects_answer_with_that_line_too():
    for graph in (torch_graph(), objects_graph()[0]):
        with pytest.raises(ValueError, match="noise=lambda: rh.placeholder_with_default"):
            train(graph, [EverySecond()])


def test_a_default_is_a_tensor_like_any_other(graph):
    rate = rh.placeholder_with_default(0.5, name="rate")
    row = rh.placeholder_with_default(np.zeros((1, 2)), [None, 2], "row")
    with rh.Session() as session:
        assert session.run(rate * 2) == 1.0
        assert session.run(rate * 2, {"rate:0": 4}) == 8
        assert session.run(row, {row: np.ones((3, 2))}).shape == (3, 2)
        with pytest.raises(ValueError, match=r"'row:0' must have the shape \[any, 2\]"):
            session.run(row, {row: np.ones(2)})


def test_a_function_may_return_a_value_or_a_tensor_to_a_step_of_torch_objects():
    import torch

    module, trial = torch.nn.Linear(1, 1), {"w": 1.0}

    def step(w, at, x):
        return w + x, {"used": at}

    graph = rh.torch.graph(
        step,
        ["used"],
        data=DATA,
        module=module,
        w=lambda: torch.tensor(trial["w"]),
        at=rh.train.get_or_create_global_step,
    )
    trial["w"] = 5.0
    used, w = train(graph, [])
    assert used == [0, 1, 2, 3]
    assert float(w) == 5 + sum(DATA)


def test_a_function_that_makes_a_module_is_an_error():
    import torch

    with pytest.raises(TypeError, match="module is a function that returns a Linear.* itself"):
        rh.torch.graph(lambda module, x: None, module=lambda: torch.nn.Linear(1, 1))
    with pytest.raises(TypeError, match="module must be an object with state_dict, a value, or a"):
        rh.torch.graph(lambda module, x: None, module=lambda x: x)
