"""Asynchronous saves on jax write the buffers of the variables, which the next run leaves alone."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import runhooks as rh
from runhooks.checkpoint import read_checkpoint

SIZE = 17 << 20  # of 4 bytes: a state that is worth it
FROZEN = 70_001


@pytest.fixture
def compiled() -> list[str]:
    """The names of the steps that XLA has compiled since."""
    names: list[str] = []

    def listen(event: str, duration: float, fun_name: str = "", **kwargs: Any) -> None:
        if event.endswith("backend_compile_duration") and fun_name in ("jit(step)", "jit(leaving)"):
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return names


class Loop:
    """A loop over a step that counts, in a large array and in a small one."""

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        self.folder, self.size = folder, size
        with rh.Graph(engine="jax").as_default() as graph:
            state = {
                "large": np.zeros(size, np.float32),
                "small": np.zeros((), np.int32),
                "frozen": np.arange(FROZEN, dtype=np.float32),
                "key": jax.random.key(1),
            }
            variable = rh.Variable(state, name="state")
            self.other = rh.Variable(np.zeros(FROZEN, np.float32), name="other")
            new, self.loss = rh.call(self.step, variable, num_outputs=2, name="step")
            step = rh.train.create_global_step()
            self.train_op = rh.group(variable.assign(new), step.assign_add(1))
            self.other_op = self.other.assign_add(np.float32(1))
        self.session, self.saver = rh.Session(graph), rh.Saver(asynchronous=True)

    @staticmethod
    def step(state: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        new = {"large": state["large"] + 1, "small": state["small"] + 1}
        return {**state, **new, "key": jax.random.split(state["key"])[0]}, state["small"]

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.session.run([self.train_op, self.loss])[1] == self.session.global_step - 1

    def save(self) -> int:
        self.saver.save(self.session, self.folder / "model.ckpt", self.session.global_step)
        return self.session.global_step or 0

    def prepare(self) -> None:
        """Make the first save, and wait until the step is compiled that leaves buffers alone."""
        self.run()
        self.save()
        self.run()
        finish_compiling()
        self.saver.wait()

    def check(self, step: int, other: int = 0) -> None:
        arrays = read_checkpoint(self.folder / f"model.ckpt-{step}").arrays
        assert (arrays["state/large"] == step).all()
        assert arrays["state/small"] == arrays["global_step"] == step
        np.testing.assert_array_equal(arrays["state/frozen"], np.arange(FROZEN))
        key = jax.random.key(1)
        for _ in range(step):
            key = jax.random.split(key)[0]
        np.testing.assert_array_equal(arrays["state/key"], jax.random.key_data(key))
        assert (arrays["other"] == other).all()

    def live(self, value: float) -> Any:
        """The array of the state on the device with this value."""
        live = [it for it in jax.live_arrays() if it.shape == (self.size,)]
        (found,) = [it for it in live if it[0] == value]
        return found


def finish_compiling() -> None:
    for thread in threading.enumerate():
        if thread.name == "runhooks-compile":
            thread.join()


def test_each_checkpoint_has_the_state_of_its_step(
    tmp_path: Path, held_disk: Any, compiled: list[str]
) -> None:
    loop = Loop(tmp_path)
    held_disk.release()
    loop.prepare()
    for steps in (1, 2, 3, 1):
        held_disk.hold()
        saved = loop.save()
        loop.run(steps)
        held_disk.release()
        loop.saver.wait()
        loop.check(saved)
    loop.saver.restore(loop.session, tmp_path / "model.ckpt-2")
    loop.run()
    loop.saver.save(loop.session, tmp_path / "again.ckpt")
    loop.run()
    loop.saver.wait()
    assert (read_checkpoint(tmp_path / "again.ckpt").arrays["state/large"] == 3).all()
    assert compiled == ["jit(step)", "jit(leaving)"]


def test_the_run_after_a_save_leaves_the_buffers_alone_and_the_next_takes_them_over(
    tmp_path: Path, held_disk: Any
) -> None:
    loop = Loop(tmp_path, SIZE + 1)
    held_disk.release()
    loop.prepare()
    for _ in range(2):
        held_disk.hold()
        saved = loop.save()
        written = loop.live(saved)
        loop.run()
        following = loop.live(saved + 1)
        assert not written.is_deleted()
        loop.run()
        assert following.is_deleted()
        assert not written.is_deleted()
        held_disk.release()
        loop.saver.wait()
    del written, following
    live = [it for it in jax.live_arrays() if it.shape == (SIZE + 1,)]
    assert len(live) == 2  # the state, and what the next save lets a run write into


def test_a_run_after_the_checkpoint_is_written_takes_the_buffers_over(tmp_path: Path) -> None:
    loop = Loop(tmp_path, SIZE + 2)
    loop.prepare()
    saved = loop.save()
    loop.saver.wait()
    written = loop.live(saved)
    loop.run()
    assert written.is_deleted()
    loop.check(saved)


def test_a_closed_session_holds_no_buffers(tmp_path: Path, held_disk: Any) -> None:
    loop = Loop(tmp_path, SIZE + 4)
    held_disk.release()
    loop.prepare()
    loop.save()
    loop.run()
    loop.saver.wait()
    loop.session.close()
    assert not [it for it in jax.live_arrays() if it.shape == (SIZE + 4,)]


def test_two_savers_and_runs_that_assign_a_part_each(tmp_path: Path, held_disk: Any) -> None:
    loop = Loop(tmp_path)
    held_disk.release()
    loop.prepare()
    held_disk.hold()
    saved = loop.save()
    loop.session.run(loop.other_op)  # not compiled for this: XLA copies
    second = rh.Saver(asynchronous=True)
    second.save(loop.session, tmp_path / "second.ckpt")
    loop.run()
    loop.session.run(loop.other_op)
    held_disk.release()
    loop.saver.wait()
    second.wait()
    loop.check(saved)
    arrays = read_checkpoint(tmp_path / "second.ckpt").arrays
    assert (arrays["state/large"] == saved).all()
    assert (arrays["other"] == 1).all()


def test_a_state_that_was_changed_between_the_save_and_the_run(
    tmp_path: Path, held_disk: Any
) -> None:
    loop = Loop(tmp_path)
    held_disk.release()
    loop.prepare()
    held_disk.hold()
    saved = loop.save()
    loop.session.assign({"state/small": 100})
    loop.session.run(loop.train_op)
    assert loop.session.read("state/small")["state/small"] == 101
    held_disk.release()
    loop.saver.wait()
    loop.check(saved)


def test_a_save_that_fails_is_raised_and_the_next_one_is_right(
    tmp_path: Path, held_disk: Any
) -> None:
    loop = Loop(tmp_path)
    held_disk.release()
    loop.prepare()
    held_disk.hold()
    loop.save()
    loop.run()
    held_disk.fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(OSError, match="No space left"):
        loop.saver.wait()
    held_disk.release()
    saved = loop.save()
    loop.run()
    loop.saver.wait()
    loop.check(saved)


def test_the_runs_of_a_monitored_session_leave_them_alone_too(
    tmp_path: Path, held_disk: Any
) -> None:
    loop = Loop(tmp_path, SIZE + 3)
    held_disk.release()
    scaffold = rh.Scaffold(saver=rh.Saver(asynchronous=True))
    with (
        loop.session.graph.as_default(),
        rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path, save_checkpoint_steps=5, scaffold=scaffold
        ) as session,
    ):
        for step in range(1, 22):
            session.run(loop.train_op)
            if step == 10:
                finish_compiling()
                scaffold.saver.wait()
                held_disk.hold()
            if step == 15:
                written = loop.live(15)
            if step == 16:
                assert not written.is_deleted()
                following = loop.live(16)
            if step == 17:
                assert following.is_deleted()
                assert not written.is_deleted()
                held_disk.release()
    loop.check(15)


def test_nothing_is_compiled_for_a_small_state(tmp_path: Path, compiled: list[str]) -> None:
    loop = Loop(tmp_path, 1000)
    for _ in range(3):
        loop.run()
        saved = loop.save()
        loop.run()
        loop.saver.wait()
        loop.check(saved)
    finish_compiling()
    assert compiled == ["jit(step)"]


SHARDED = """
import logging, sys, threading
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import runhooks as rh
from runhooks.checkpoint import read_checkpoint

compiled = []
log = logging.getLogger("runhooks")
log.setLevel(logging.INFO)
log.addFilter(lambda record: compiled.append(1) if "saves" in record.getMessage() else None)
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
shardings = [NamedSharding(mesh, P(*it)) for it in [("a", "b"), (None, "a"), ("b",), ()]]
values = [np.arange(1 << 22, dtype=np.float32).reshape(2048, 2048) + i for i in range(4)]
state = [jax.device_put(*it) for it in zip(values, shardings)]
with rh.Graph("jax").as_default():
    variable = rh.Variable(state, name="state")
    scale = rh.placeholder("scale")
    train_op = variable.assign(rh.call(lambda s, k: [it + k for it in s], variable, scale))
    session, saver = rh.Session(), rh.Saver(asynchronous=True)
total = 0
for save in range(4):
    session.run(train_op, {scale: np.float32(1)})
    total += 1
    path = saver.save(session, sys.argv[1] + f"/model.ckpt-{save}")
    # Of another type in the third round: what was compiled does not fit.
    session.run(train_op, {scale: np.float32(1) if save != 2 else np.int32(1)})
    session.run(train_op, {scale: np.float32(1)})
    for thread in threading.enumerate():
        if thread.name == "runhooks-compile":
            thread.join()
    saver.wait()
    saved = read_checkpoint(Path(path)).arrays
    for i, value in enumerate(values):
        np.testing.assert_array_equal(saved[f"state/{i}"], value + total)
    total += 2
    for array, value, sharding in zip(session.run(variable), values, shardings):
        assert array.sharding.is_equivalent_to(sharding, 2)
        np.testing.assert_array_equal(array, value + total)
print("compiled", len(compiled))
"""


def test_arrays_that_are_spread_over_devices(tmp_path: Path) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHARDED, str(tmp_path)],
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "compiled 2\n", done.stderr
