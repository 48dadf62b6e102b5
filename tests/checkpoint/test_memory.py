"""What memory checkpoints take beside the state."""

import gc
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import read_checkpoint

MIB = 1 << 20
PARTS, PART_BYTES = 4, 4 * MIB


def state():
    rng = np.random.default_rng(0)
    return {str(part): rng.random(PART_BYTES // 4, np.float32) for part in range(PARTS)}


def peak_bytes(call):
    """The most memory that Python and NumPy have while ``call`` runs, beyond what they have now."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def session(engine):
    with rh.Graph(engine=engine).as_default() as graph:
        rh.Variable(state(), name="state")
    sess = rh.Session(graph)
    sess.snapshot()
    return sess


@pytest.mark.every_engine
def test_restoring_takes_memory_for_the_state_once(engine, tmp_path):
    with session(engine) as sess:
        saver = rh.Saver()
        path = saver.save(sess, tmp_path / "model.ckpt")
        before = sess.snapshot(into={}).arrays
        restore = peak_bytes(lambda: saver.restore(sess, path))
        assert restore < PARTS * PART_BYTES + 3 * MIB
        for name, array in sess.snapshot().arrays.items():
            np.testing.assert_array_equal(array, before[name])


def test_restoring_a_module_takes_memory_for_the_state_once(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(PART_BYTES // 4096, 1024, bias=False)
    with rh.Session(rh.torch.graph(lambda: None, model=model)) as sess:
        saver, before = rh.Saver(), model.weight.detach().clone()
        path = saver.save(sess, tmp_path / "model.ckpt")
        torch.nn.init.zeros_(model.weight)
        assert peak_bytes(lambda: saver.restore(sess, path)) < PART_BYTES + 2 * MIB
    assert torch.equal(model.weight, before)


@pytest.mark.every_engine
def test_what_is_restored_twice_is_not_shared(engine, tmp_path):
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


def resident_bytes(name):
    """What the process has in memory, VmRSS, or has had at most, VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say it")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.every_engine
def test_saving_takes_memory_for_one_copy_at_most(engine, asynchronous, tmp_path):
    size = 64 * MIB
    with rh.Graph(engine=engine).as_default() as graph:
        weights = rh.Variable(np.ones(size // 4, np.float32), name="weights")
        train_op = rh.group(weights.assign(rh.call(lambda w: w + 1, weights)))
    saver = rh.Saver(asynchronous=asynchronous)
    with rh.Session(graph) as sess:
        sess.run(train_op)
        sess.wait()
        gc.collect()
        before = resident_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM counts from now on
        saves = 4 if engine == "jax" and asynchronous else 1
        for _ in range(saves):
            path = saver.save(sess, tmp_path / "model.ckpt")
            if engine == "jax":  # on the others a step itself takes a copy
                sess.run(train_op)
            saver.wait()
            for thread in threading.enumerate():
                if thread.name == "runhooks-compile":
                    thread.join()
        peak = resident_bytes("VmHWM") - before
    assert peak < 32 * MIB + asynchronous * size
    saved = read_checkpoint(Path(path)).arrays["weights"]
    assert (saved == 1 + saves).all()
