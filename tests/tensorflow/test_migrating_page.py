"""The program of docs/migrating.md that was one for ``tf.estimator``, and the first one, run."""

import re
import runpy
from pathlib import Path

import tensorflow.compat.v1 as tf

import runhooks as rh

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart_tf1.py"
PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"


def test_an_estimator_becomes_a_loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, PAGE.name, "exec"), {})
    errors = rh.read_eval_metrics("runs/estimator/eval")
    assert list(errors) == [0, 50, 100, 150, 160]
    assert errors[160]["error"] < errors[0]["error"] / 2
    assert rh.events.read("runs/estimator")["."].scalars["loss"].steps.tolist() == [1, 101]


def test_the_first_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verbosity = tf.logging.get_verbosity()
    runpy.run_path(str(EXAMPLE))
    tf.logging.set_verbosity(verbosity)
    losses = rh.events.read("runs").only.scalars["loss"]
    assert losses.steps.tolist() == list(range(1, 500, 10))
    assert losses.values[-1] < 1e-3 < losses.values[0]
