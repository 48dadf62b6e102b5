"""A new run that starts from the weights of another."""

import logging

import numpy as np
import pytest
import safetensors.numpy

import runhooks as rh
from runhooks.errors import NotFoundError

BODY = {"kernel": np.arange(4, dtype=np.float32).reshape(2, 2), "bias": np.ones(2, np.float32)}
NEW_BODY = {name: np.zeros_like(it) for name, it in BODY.items()}


def head(classes):
    return {"kernel": np.full((2, classes), 5, np.float32)}


def train(directory, state, steps, init_from=None, engine="python", **scaffold):
    """Train a model, which adds 1 to all it has, in steps; return its state at the first step."""

    def add(state):
        return {
            name: {key: array + 1 for key, array in part.items()} for name, part in state.items()
        }

    with rh.Graph(engine).as_default():
        variable = rh.Variable(state, name="state")
        rh.Variable(np.full(3, 9.0), name="momentum")
        step = rh.train.get_or_create_global_step()
        op = rh.group(variable.assign(rh.call(add, variable)), step.assign_add(1))
        with rh.MonitoredTrainingSession(
            checkpoint_dir=directory,
            scaffold=rh.Scaffold(init_from=init_from, **scaffold),
            hooks=[rh.StopAtStepHook(last_step=steps)],
            save_checkpoint_steps=2,
        ) as session:
            begun = session.global_step
            first = session.run(variable)
            while not session.should_stop():
                session.run(op)
    return begun, first


@pytest.fixture
def pretrained(tmp_path):
    """The directory of a run of 3 steps."""
    train(tmp_path / "a", {"body": BODY, "head": head(3)}, 3)
    return tmp_path / "a"


@pytest.mark.every_engine
def test_fine_tuning_with_a_new_head(pretrained, tmp_path, engine, caplog):
    state = {"body": NEW_BODY, "head": head(5)}
    init = rh.InitFrom(pretrained, only=iter(["state/body"]))
    with caplog.at_level(logging.INFO, "runhooks"):
        begun, first = train(tmp_path / "b", state, 4, init, engine)
    assert begun == 0
    np.testing.assert_array_equal(first["body"]["kernel"], BODY["kernel"] + 3)
    np.testing.assert_array_equal(first["head"]["kernel"], head(5)["kernel"])
    lines = [it.message for it in caplog.records if it.message.startswith("initialized from")]
    assert lines == [
        f"initialized from {pretrained}/model.ckpt-3: state/body (2 arrays); "
        "not from there: state/head, momentum"
    ]
    # A resumed run goes on from its own checkpoint, even if the other is gone.
    caplog.clear()
    init = rh.InitFrom(tmp_path / "gone", only="state/body")
    begun, first = train(tmp_path / "b", state, 6, init, engine)
    assert begun == 4
    np.testing.assert_array_equal(first["body"]["kernel"], BODY["kernel"] + 3 + 4)
    assert "initialized from" not in caplog.text


def test_all_of_another_run_but_its_step(pretrained, tmp_path):
    state = {"body": NEW_BODY, "head": head(3)}
    begun, first = train(tmp_path / "b", state, 2, pretrained)
    assert begun == 0
    np.testing.assert_array_equal(first["head"]["kernel"], head(3)["kernel"] + 3)
    assert rh.load(tmp_path / "b", "global_step") == 2


@pytest.mark.parametrize("before", [True, False])
def test_sums_of_an_epoch_are_not_taken_over(before, tmp_path):
    def trained(name, with_mean, **scaffold):
        data = [np.ones(1)] * 3
        graph = rh.graph(lambda w, x: (w + x[0], {"loss": x[0]}), w=0.0, data=data)
        with graph.as_default():
            if with_mean:
                rh.epoch_mean("loss")
            rh.train.train("train_op", tmp_path / name, scaffold=rh.Scaffold(**scaffold))
        return rh.load(tmp_path / name, "w")

    assert trained("a", before) == 3
    assert trained("b", not before, init_from=rh.InitFrom(tmp_path / "a")) == 6


def test_a_checkpoint_is_chosen_as_by_load(pretrained, tmp_path):
    state = {"body": NEW_BODY, "head": head(3)}
    _, first = train(tmp_path / "b", state, 1, rh.InitFrom(str(pretrained), step=2))
    np.testing.assert_array_equal(first["body"]["bias"], BODY["bias"] + 2)


def test_after_init_op_and_before_init_fn(pretrained, tmp_path):
    found = []

    def init_fn(scaffold, session):
        found.append(session.run("state:0")["body"]["bias"])

    state = {"body": NEW_BODY, "head": head(5)}
    train(tmp_path / "b", state, 1, rh.InitFrom(pretrained, "!state/head"), init_fn=init_fn)
    np.testing.assert_array_equal(found, [BODY["bias"] + 3])


def test_a_scaffold_that_is_copied(pretrained):
    init = rh.InitFrom(pretrained)
    base = rh.Scaffold(init_from=init)
    assert rh.Scaffold(copy_from_scaffold=base).init_from is init


STATE = {"body": NEW_BODY, "head": head(5)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"'state/head/kernel' is float32\[2, 5\], 'state/head/kernel' there float32\[2, 3\]"),
        ({"missing": "keep"}, r"float32\[2, 5\].*only='!state/head/kernel'"),
        (
            {"only": "state/bdy"},
            "only: .* has nothing named 'state/bdy'; did you mean 'state/body'",
        ),
        ({"rename": {"state/bdy": "x"}}, "rename: .* has nothing named 'state/bdy'"),
        (
            {"only": "state/body", "rename": {"state/body": "state/bodies"}},
            "the model has no place for state/bodies.*did you mean 'state/body",
        ),
        (
            {"only": "state/head", "rename": {"state/head": "nothing"}, "missing": "keep"},
            "no place for nothing/kernel",
        ),
        ({"only": "global_step"}, "nothing named 'global_step'"),
        (
            {"only": ["state/body", "state/head"], "rename": {"state/head": "state/body"}},
            "one name",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_before_training(arguments, message, pretrained, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "b", STATE, 1, rh.InitFrom(pretrained, **arguments))
    assert rh.latest_checkpoint(tmp_path / "b") is None


def test_a_body_that_has_grown(pretrained, tmp_path, caplog):
    state = {"body": {**NEW_BODY, "scale": np.full(2, 4.0)}, "head": head(5)}
    with pytest.raises(ValueError, match=r"it has nothing for state/body/scale.*missing='keep'"):
        train(tmp_path / "b", state, 1, rh.InitFrom(pretrained, "state/body"))
    with caplog.at_level(logging.INFO, "runhooks"):
        _, first = train(
            tmp_path / "b", state, 1, rh.InitFrom(pretrained, "!state/head", missing="keep")
        )
    assert first["body"]["scale"].tolist() == [4, 4]
    assert first["body"]["bias"].tolist() == [4, 4]
    assert "state/body/bias, " in caplog.text
    assert "not from there: state/body/scale, state/head" in caplog.text


def test_a_body_that_has_shrunk(pretrained, tmp_path, caplog):
    state = {"body": {"kernel": NEW_BODY["kernel"]}, "head": head(3)}
    with pytest.raises(ValueError, match="the model has no place for state/body/bias"):
        train(tmp_path / "b", state, 1, rh.InitFrom(pretrained))
    with caplog.at_level(logging.INFO, "runhooks"):
        train(tmp_path / "b", state, 1, rh.InitFrom(pretrained, missing="keep"))
    assert "not used: state/body/bias" in caplog.text


def test_names_of_a_file_from_elsewhere(tmp_path):
    names = {"bert.encoder.kernel": BODY["kernel"], "bert.encoder.bias": BODY["bias"]}
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({**names, "cls.bias": np.zeros(7)}, path)
    init = rh.InitFrom(path, "bert.encoder", rename={"bert.encoder.": "state/body/"})
    _, first = train(tmp_path / "b", STATE, 1, init)
    np.testing.assert_array_equal(first["body"]["kernel"], BODY["kernel"])


@pytest.mark.every_engine
def test_dtypes_become_those_of_the_model(tmp_path, engine):
    np.savez(tmp_path / "a.npz", bias=np.array([1.5, 2.5]))
    init = rh.InitFrom(tmp_path / "a.npz", rename={"": "state/body/"}, missing="keep")
    _, first = train(tmp_path / "b", STATE, 1, init, engine)
    assert "float32" in str(first["body"]["bias"].dtype)
    assert np.asarray(first["body"]["bias"]).tolist() == [1.5, 2.5]
    np.savez(tmp_path / "b.npz", bias=np.array([1, 2]))
    init = rh.InitFrom(tmp_path / "b.npz", rename={"": "state/body/"}, missing="keep")
    with pytest.raises(ValueError, match=r"is float32\[2\], 'bias' there int64\[2\]"):
        train(tmp_path / "c", STATE, 1, init, engine)


def test_where_there_is_nothing(tmp_path):
    with pytest.raises(NotFoundError, match="nothing"):
        train(tmp_path / "b", STATE, 1, tmp_path / "nothing")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": None}, "path must be given"),
        ({"path": ""}, "path must not be empty"),
        ({"path": "a", "only": 3}, "only|iterable"),
        ({"path": "a", "rename": ["a"]}, "rename must be a Mapping"),
        ({"path": "a", "missing": "ignore"}, "missing must be 'error' or 'keep', got 'ignore'"),
        ({"path": "a", "step": 1, "best": "b"}, "step and best"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        rh.InitFrom(**arguments)
    with pytest.raises(TypeError, match="init_from must be a str or a Path"):
        rh.Scaffold(init_from=3)
