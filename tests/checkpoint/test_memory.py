"""What memory checkpoints take beside the state."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runhooks as rh

MIB = 1 << 20
PARTS, PART_BYTES = 4, 8 * MIB


def state() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {str(part): rng.random(PART_BYTES // 4, np.float32) for part in range(PARTS)}


def peak_bytes(call: Callable[[], object]) -> int:
    """The most memory that Python and NumPy have while ``call`` runs, beyond what they have now."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def session(engine: str) -> rh.Session:
    with rh.Graph(engine=engine).as_default() as graph:
        rh.Variable(state(), name="state")
    sess = rh.Session(graph)
    sess.snapshot()
    return sess


@pytest.mark.every_engine
def test_restoring_takes_memory_for_the_state_once(engine: str, tmp_path: Path) -> None:
    with session(engine) as sess:
        saver = rh.Saver()
        path = saver.save(sess, tmp_path / "model.ckpt")
        before = sess.snapshot(into={}).arrays
        restore = peak_bytes(lambda: saver.restore(sess, path))
        assert restore < PARTS * PART_BYTES + 4 * MIB
        for name, array in sess.snapshot().arrays.items():
            np.testing.assert_array_equal(array, before[name])


def test_restoring_a_module_takes_memory_for_the_state_once(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(PART_BYTES // 4096, 1024, bias=False)
    with rh.Session(rh.torch.graph(lambda: None, model=model)) as sess:
        saver, before = rh.Saver(), model.weight.detach().clone()
        path = saver.save(sess, tmp_path / "model.ckpt")
        torch.nn.init.zeros_(model.weight)
        assert peak_bytes(lambda: saver.restore(sess, path)) < PART_BYTES + 2 * MIB
    assert torch.equal(model.weight, before)


@pytest.mark.every_engine
def test_what_is_restored_twice_is_not_shared(engine: str, tmp_path: Path) -> None:
    with rh.Graph(engine=engine).as_default() as graph:
        weights = rh.Variable(np.zeros(100_000, np.float32), name="weights")
        step = weights.assign(rh.call(lambda w: w * 2 + 1, weights))
    with rh.Session(graph) as sess:
        saver = rh.Saver()
        sess.run(step)
        path = saver.save(sess, tmp_path / "model.ckpt")
        for _ in range(2):
            saver.restore(sess, path)
            kept = sess.snapshot().arrays["weights"]  # on jax, memory that the next run takes over
            assert engine != "python" or not kept.flags.writeable
            sess.run(step)
            np.testing.assert_array_equal(kept, np.ones(100_000))
            np.testing.assert_array_equal(sess.run(weights), np.full(100_000, 3))
