"""Several sessions of one graph, as those of a sweep: none changes what the next one trains."""

import logging
import weakref

import numpy as np
import pytest

import runhooks as rh

DATA = [np.ones((4, 2), np.float32), np.ones((3, 2), np.float32)]


def train_step(w, rate, x):
    return w + rate * x.mean(), rate, {"loss": x.sum() - w.sum()}


def test_step(w, x):
    return {"error": (x @ w).mean()}


test_step.__test__ = False  # it is no test of pytest


def hooks_of_a_trial(folder):
    """What a sweep makes anew for each trial."""
    test = rh.EvaluationHook(test_step, DATA, every_n_epochs=1, output_dir=f"{folder}/test")
    mean = rh.epoch_mean("loss")
    return [
        test,
        rh.CallHook(lambda *it: None, [mean, rh.epoch_mean("loss", 1.0)], every_n_epochs=1),
        rh.LoggingTensorHook([mean], every_n_iter=2),
        rh.EmaHook("w", decay=0.5),
        rh.NanTensorHook("loss"),
        rh.ReduceOnPlateauHook(test.metric("error"), "rate", patience=9),
        rh.ProgressHook(8, "loss"),
    ]


def sweep_graph(engine):
    states = {"w": np.zeros(2, np.float32), "rate": np.float32(1)}
    graph = rh.graph(train_step, **states, data=DATA, epochs=4, engine=engine)
    with graph.as_default():
        rh.reset_each_epoch("w")
        rh.summary.scalar("loss")
        rh.summary.histogram("w")
    return graph


def train(graph, folder, last_step):
    with graph.as_default():
        hooks = [*hooks_of_a_trial(folder), rh.StopAtStepHook(last_step=last_step)]
        rh.reset_each_epoch("w")
        return rh.train.train(
            "train_op", folder, hooks, save_checkpoint_steps=1, save_summaries_steps=2
        )


@pytest.mark.every_engine
def test_hooks_of_each_session_add_nothing_to_what_the_first_has_added(engine, tmp_path):
    graph = sweep_graph(engine)
    train(graph, tmp_path / "0", 3)
    added = [op.name for op in graph.get_operations()]
    for trial in "12":
        train(graph, tmp_path / trial, 3)
        assert [op.name for op in graph.get_operations()] == added
        assert [*rh.load(tmp_path / trial)] == [*rh.load(tmp_path / "0")]


@pytest.mark.every_engine
def test_a_trial_of_a_sweep_resumes_alone_in_another_process(engine, tmp_path):
    graph = sweep_graph(engine)
    for trial in "012":
        train(graph, tmp_path / trial, 3)
    assert train(sweep_graph(engine), tmp_path / "2", 5) == 5  # its graph never had another session


def test_a_second_session_compiles_nothing(tmp_path, caplog):
    caplog.set_level(logging.INFO, "runhooks")
    graph = sweep_graph("jax")
    train(graph, tmp_path / "0", 8)
    assert "compiled" in caplog.text
    caplog.clear()
    train(graph, tmp_path / "1", 8)
    assert "compiled" not in caplog.text


@pytest.mark.every_engine
def test_a_mean_of_another_weight_or_name_is_another(engine):
    with sweep_graph(engine).as_default() as graph:
        mean = rh.epoch_mean("loss")
        assert rh.epoch_mean(graph["loss"]) is mean
        assert rh.epoch_mean("loss", weight=1) is not mean
        assert rh.epoch_mean("loss", name="mean") is not mean
        assert rh.epoch_mean("loss", name="mean") is rh.epoch_mean("loss", name="mean")


def test_an_evaluation_of_other_data_or_outputs_is_another():
    with sweep_graph("python").as_default():
        first, again, others = (
            rh.EvaluationHook(test_step, data, every_n_epochs=1) for data in (DATA, DATA, DATA[:1])
        )
        assert first["error"].op.inputs[0] is again["error"].op.inputs[0]
        assert first["error"].op.inputs[0] is not others["error"].op.inputs[0]


def add(w, x):
    return w + x, {"loss": w}


def count(w):
    return w + 1, {"loss": w}


@pytest.mark.every_engine
def test_a_function_that_makes_a_state_is_called_for_each_session(engine):
    trial = {"w": 1.0}
    graph = rh.graph(add, w=lambda: np.float32(trial["w"]), data=[np.float32(1)] * 2, engine=engine)
    for start in (5.0, 7.0):
        trial["w"] = start
        with graph.as_default(), rh.MonitoredSession() as session:
            assert float(session.run("w", hooks=False)) == start
            session.run("train_op")
            assert float(session.run("w", hooks=False)) == start + 1


@pytest.mark.every_engine
def test_a_variable_whose_form_was_asked_for_begins_with_what_its_function_then_returns(engine):
    trial = {"w": 1.0}
    with rh.Graph(engine).as_default() as graph:
        w = rh.Variable(lambda: np.float32(trial["w"]), name="w")
        graph.form_of(w)
        trial["w"] = 5.0
        with rh.Session() as session:
            assert float(session.run(w)) == 5.0


@pytest.mark.every_engine
def test_the_first_session_draws_the_numbers_of_the_users_own_program(engine):
    def numbers():
        own = np.random.default_rng(3)
        np.random.seed(3)
        return lambda: np.float32([own.normal(), np.random.normal()])

    expected = numbers()()
    graph = rh.graph(count, w=numbers(), engine=engine)
    with graph.as_default(), rh.MonitoredSession() as session:
        np.testing.assert_array_equal(np.asarray(session.run("w", hooks=False)), expected)


def test_the_graph_keeps_nothing_of_the_state_that_a_function_makes():
    class Part(np.ndarray):
        pass

    made = []

    def make():
        value = np.zeros(2).view(Part)
        made.append(weakref.ref(value))
        return value

    graph = rh.graph(count, w=make)
    assert made[0]() is None, "it was made for its form alone"
    assert graph["w"] is not None


@pytest.mark.every_engine
@pytest.mark.parametrize("feed", [{"xx": 1.0, "x": 1.0}, {"xx": 1.0}, {"x": 1.0}])
def test_a_run_that_fails_leaves_no_name_in_the_graph(feed, engine):
    graph = rh.graph(add, w=np.float32(0), engine=engine)
    fetches = "train_op" if "xx" in feed else ["train_op", "los"]
    with graph.as_default():
        with pytest.raises(ValueError, match="'xx'|'los'"), rh.MonitoredSession() as session:
            session.run(fetches, feed)
        for make in (rh.MonitoredSession, rh.Session):
            with make() as session:
                assert float(session.run(["train_op", "loss"], {"x": np.float32(1)})[1]) == 0


@pytest.mark.every_engine
def test_a_run_may_follow_one_that_has_failed(engine):
    graph = rh.graph(add, w=np.float32(0), engine=engine)
    with graph.as_default(), rh.Session() as session:
        for wrong in ({"xx": 1.0, "y": 1.0}, {"x": 1.0, "xx": 1.0}):
            with pytest.raises(ValueError, match="'xx'"):
                session.run("train_op", wrong)
        session.run("train_op", {"x": np.float32(1)})


@pytest.mark.every_engine
@pytest.mark.parametrize("fails", ["begin", "first run"])
def test_a_name_that_a_hook_got_wrong_does_not_stop_a_session_without_it(fails, engine):
    class Failing(rh.SessionRunHook):
        def begin(self):
            if fails == "begin":
                raise OSError

    graph = rh.graph(count, w=np.float32(0), engine=engine)
    with graph.as_default():
        hooks = [rh.LoggingTensorHook(["los"], every_n_iter=100), Failing()]
        with pytest.raises((OSError, ValueError)), rh.MonitoredSession(hooks=hooks) as session:
            session.run("train_op")
        with rh.MonitoredSession() as session:
            session.run("train_op")
            assert session.global_step == 1


class Shuffled:
    """In another order in each epoch."""

    def __init__(self):
        self.random = np.random.default_rng(0)

    def __len__(self):
        return 6

    def __iter__(self):
        return iter(self.random.permutation(6).astype(np.float32))


def shuffled_loader():
    import torch

    generator = torch.Generator().manual_seed(3)
    data = np.arange(6, dtype=np.float32)
    return torch.utils.data.DataLoader(data, batch_size=None, shuffle=True, generator=generator)


def seen_in(graph, hooks=()):
    seen = []
    asked = rh.CallHook(lambda it: seen.append(float(it)), ["x"], every_n_steps=1)
    with graph.as_default(), rh.MonitoredSession(hooks=[asked, *hooks]) as session:
        while not session.should_stop():
            session.run("train_op")
    return seen


@pytest.mark.parametrize("make", [Shuffled, shuffled_loader])
def test_each_session_begins_the_data_anew(make):
    graph = rh.graph(add, w=np.float32(0), data=make(), epochs=2)
    first = seen_in(graph)
    assert first[:6] != first[6:], "each epoch has an order of its own"
    assert seen_in(graph) == first


def test_an_evaluation_of_the_data_of_the_training_does_not_repeat_its_order():
    data = Shuffled()
    graph = rh.graph(add, w=np.float32(0), data=data, epochs=3)
    with graph.as_default():
        test = rh.EvaluationHook(lambda w, x: {"x": x}, data, every_n_steps=3)
    seen = seen_in(graph, [test])
    orders = {tuple(seen[at : at + 6]) for at in (0, 6, 12)}
    assert len(orders) == 3
