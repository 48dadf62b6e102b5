"""The examples that put a bare loop under hooks, each for another way to write a network."""

import ast
import importlib
import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import runhooks as rh

EXAMPLES = Path(__file__).parents[1] / "examples"
MOST_ADDED = {
    "jax_plain": 6,
    "flax_linen": 6,
    "flax_nnx": 8,
    "equinox_mlp": 8,
    "numpy_kmeans": 6,
}
STEPS = 100


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[] if name == "numpy_kmeans" else pytest.mark.slow)
        for name in MOST_ADDED
    ],
)
def example(request, tmp_path_factory):
    """An example after ``STEPS`` steps under hooks, and the directory of its run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        module = importlib.import_module(request.param)
        directory = tmp_path_factory.mktemp(request.param)
        module.train(str(directory), STEPS)
        yield module, directory
        for name in ("digits_data", request.param):
            sys.modules.pop(name, None)


def statements(module, function):
    tree = ast.parse(Path(module.__file__).read_text())
    (found,) = [it for it in tree.body if isinstance(it, ast.FunctionDef) and it.name == function]
    return [node for node in ast.walk(found) if isinstance(node, ast.stmt)][1:]


def test_few_statements_are_added_to_the_bare_loop(example):
    module, _ = example
    bare, hooked = (statements(module, function) for function in ("bare", "train"))
    bare = [it for it in bare if not isinstance(it, ast.Return)]  # for the tests
    assert len(hooked) - len(bare) <= MOST_ADDED[module.__name__]


def test_the_loop_under_hooks_computes_what_the_bare_loop_does(example, capsys):
    module, directory = example
    bare = [
        np.asarray(leaf) for leaf in jax.tree.leaves(module.bare(STEPS)) if hasattr(leaf, "shape")
    ]
    arrays = load_file(directory / f"model.ckpt-{STEPS}" / "checkpoint.safetensors")
    for leaf in bare:
        assert any(
            leaf.shape == it.shape and np.allclose(leaf, it, rtol=1e-2, atol=1e-3)
            for it in arrays.values()
        )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["50", "100"]
    evaluated = rh.read_eval_metrics(directory / "eval")
    (metric,) = evaluated[STEPS]
    assert evaluated[STEPS][metric] == pytest.approx(float(lines[-1].split()[-1]), abs=0.02)


def test_it_learns_and_shows_it(example):
    _, directory = example
    evaluated = rh.read_eval_metrics(directory / "eval")
    (reached,) = evaluated[STEPS].values()
    assert reached > 0.8
    run = rh.events.read(str(directory))["."]
    assert run.scalars["loss"].steps.tolist() == [1]
    assert any(name.startswith(("gradients/", "moved")) for name in run.histograms)


def test_interrupted_and_resumed_it_ends_with_the_same_checkpoint(example, tmp_path, monkeypatch):
    module, directory = example
    batches = module.batches

    def broken(step):
        yield from itertools.islice(batches(step), 60 - step)
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(module, "batches", broken)
        with pytest.raises(OSError, match="the disk is gone"):
            module.train(str(tmp_path), STEPS)
    assert rh.latest_checkpoint(tmp_path).endswith("model.ckpt-50")
    module.train(str(tmp_path), STEPS)
    saved = Path(f"model.ckpt-{STEPS}", "checkpoint.safetensors")
    whole, resumed = (load_file(it / saved) for it in (directory, tmp_path))
    assert whole.keys() == resumed.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, resumed[name])


# --- Fine-tuning


@pytest.mark.slow
def test_a_body_goes_on_under_a_new_head(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.syspath_prepend(EXAMPLES)
    caplog.set_level("INFO", "runhooks")
    fine_tuning = importlib.import_module("fine_tuning")
    fine_tuning.main(str(tmp_path), STEPS)
    (line,) = [line for line in caplog.messages if line.startswith("initialized from")]
    assert "state/params/body (2 arrays); not from there:" in line
    assert "state/params/head (2 arrays)" in line
    _, _, reached = capsys.readouterr().out.partition("task: ")
    assert float(reached.split("%")[0]) > 50
    head = rh.load(tmp_path / "digits", "ema/state/params/head")
    assert head["kernel"].shape == (32, 10)
    fine_tuning.main(str(tmp_path), STEPS)  # it has nothing left to do
    assert capsys.readouterr().out.partition("task: ")[2] == reached
    for name in ("digits_data", "fine_tuning"):
        sys.modules.pop(name, None)
