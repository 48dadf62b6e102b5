"""Savers and the sessions of each engine."""

from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import runhooks as rh


class Layer(NamedTuple):
    kernel: Any
    bias: Any


@pytest.fixture
def step(graph, engine):
    """The global step of a graph with a pytree of several dtypes in a variable."""
    small = np.float16 if engine == "mlx" else ml_dtypes.float8_e4m3fn
    rh.Variable(
        {
            "layers": [Layer(np.ones((2, 3), np.float32), np.zeros(3, ml_dtypes.bfloat16))],
            "scale": np.full((), 0.5, small),
            "empty": np.zeros((0, 2), np.int8),
        },
        name="state",
    )
    rh.Variable(np.arange(3), name="seen")
    return rh.train.create_global_step()


def trained(step):
    sess = rh.Session()
    sess.run(step.assign_add(7))
    return sess


@pytest.mark.every_engine
def test_a_session_comes_back_bit_by_bit(step, tmp_path):
    with trained(step) as sess, rh.Session() as fresh:
        path = rh.Saver().save(sess, tmp_path / "model.ckpt", global_step=step)
        assert path.endswith("model.ckpt-7")
        rh.Saver().restore(fresh, path)
        assert fresh.global_step == 7
        before, after = sess.snapshot().arrays, fresh.snapshot().arrays
    assert before.keys() == after.keys()
    assert "state/layers/0/kernel" in before
    for name, array in before.items():
        assert after[name].dtype == array.dtype
        assert after[name].tobytes() == array.tobytes()


@pytest.mark.every_engine
def test_some_variables_alone(step, tmp_path):
    saver = rh.Saver([step])
    with trained(step) as sess, rh.Session() as fresh:
        path = saver.save(sess, tmp_path / "model.ckpt")
        with pytest.raises(ValueError, match="missing") as error:
            rh.Saver().restore(fresh, path)
        assert str(path) in error.value.__notes__[0]
        assert fresh.global_step == 0
        saver.restore(fresh, path)
        assert fresh.global_step == 7


@pytest.mark.parametrize("name", ["nonsense", "state/layers/0/kernel", "stat", "scope", ""])
def test_a_name_that_is_not_a_variable_is_refused(step, tmp_path, name):
    with rh.name_scope("scope"):
        rh.Variable(np.zeros(2), name="inner")
    with trained(step) as sess:
        path = rh.Saver().save(sess, tmp_path / "model.ckpt")
        for use in (
            lambda: rh.Saver([name]).restore(sess, path),
            lambda: rh.Saver(["seen", name]).restore(sess, path),
            lambda: rh.Saver([name]).save(sess, tmp_path / "part.ckpt"),
        ):
            with pytest.raises(ValueError, match="var_list") as error:
                use()
            assert repr(name) in str(error.value)
        with pytest.raises(ValueError, match="did you mean 'state'"):
            rh.Saver(["stat"]).restore(sess, path)
        assert sess.global_step == 7
        assert sess.checkpoint == path


def test_a_variable_without_arrays_is_no_unknown_name(tmp_path):
    with rh.Graph().as_default():
        rh.Variable({}, name="empty")
        with rh.Session() as sess:
            path = rh.Saver(["empty"]).save(sess, tmp_path / "model.ckpt")
            rh.Saver(["empty"]).restore(sess, path)


def test_a_variable_that_the_checkpoint_lacks_is_named(step, tmp_path):
    with trained(step) as sess:
        path = rh.Saver(["seen"]).save(sess, tmp_path / "model.ckpt")
        with pytest.raises(ValueError, match="'state/"):
            rh.Saver(["state"]).restore(sess, path)


def test_a_module_is_known_by_its_name(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    graph = rh.torch.Graph(model=model)
    with rh.Session(graph) as sess:
        path = rh.Saver(["model"]).save(sess, tmp_path / "model.ckpt")
        before = model.weight.detach().clone()
        torch.nn.init.zeros_(model.weight)
        rh.Saver(["model"]).restore(sess, path)
        assert torch.equal(model.weight, before)
        with pytest.raises(ValueError, match="did you mean 'model'"):
            rh.Saver(["model/weight"]).restore(sess, path)


def test_a_session_knows_its_last_checkpoint(step, tmp_path):
    with trained(step) as sess:
        assert sess.checkpoint is None
        rh.Saver([step]).save(sess, tmp_path / "part.ckpt")
        assert sess.checkpoint is None
        path = rh.Saver().save(sess, tmp_path / "model.ckpt")
        assert sess.checkpoint == path
        sess.load(sess.snapshot())
        assert sess.checkpoint is None
        rh.Saver().restore(sess, Path(path))
        assert sess.checkpoint == path
        rh.Saver([step]).restore(sess, tmp_path / "part.ckpt")
        assert sess.checkpoint == str(tmp_path / "part.ckpt")
