"""Savers and the sessions of both engines."""

from __future__ import annotations

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
def step(graph: rh.Graph) -> rh.Variable:
    """The global step of a graph with a pytree of several dtypes in a variable."""
    rh.Variable(
        {
            "layers": [Layer(np.ones((2, 3), np.float32), np.zeros(3, ml_dtypes.bfloat16))],
            "scale": np.full((), 0.5, ml_dtypes.float8_e4m3fn),
            "empty": np.zeros((0, 2), np.int8),
        },
        name="state",
    )
    rh.Variable(np.arange(3), name="seen")
    return rh.train.create_global_step()


def trained(step: rh.Variable) -> rh.Session:
    sess = rh.Session()
    sess.run(step.assign_add(7))
    return sess


def test_a_session_comes_back_bit_by_bit(step: rh.Variable, tmp_path: Path) -> None:
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


def test_some_variables_alone(step: rh.Variable, tmp_path: Path) -> None:
    saver = rh.Saver([step])
    with trained(step) as sess, rh.Session() as fresh:
        path = saver.save(sess, tmp_path / "model.ckpt")
        with pytest.raises(ValueError, match="missing") as error:
            rh.Saver().restore(fresh, path)
        assert str(path) in error.value.__notes__[0]
        assert fresh.global_step == 0
        saver.restore(fresh, path)
        assert fresh.global_step == 7


def test_a_session_knows_which_checkpoint_holds_all_of_it(
    step: rh.Variable, tmp_path: Path
) -> None:
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
        rh.Saver([step]).restore(sess, path)
        assert sess.checkpoint is None


def test_what_hooks_keep_comes_back(step: rh.Variable, tmp_path: Path) -> None:
    class Best:
        def __init__(self) -> None:
            self.loss = np.inf

        def state_dict(self) -> dict[str, float]:
            return {"loss": self.loss}

        def load_state_dict(self, state: dict[str, float]) -> None:
            self.loss = state["loss"]

    best, other = Best(), Best()
    with trained(step) as sess, rh.Session() as fresh:
        sess.attach("best", best)
        fresh.attach("best", other)
        best.loss = 0.25
        rh.Saver().restore(fresh, rh.Saver().save(sess, tmp_path / "model.ckpt"))
    assert other.loss == 0.25
