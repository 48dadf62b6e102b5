"""Sessions opened and closed a thousand times in one process leave nothing behind."""

import gc
import logging
import os
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

import runhooks as rh

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")

CYCLES = {"python": 1_000, "jax": 200, "torch": 200}
WARM_UP = 50


class Beside(rh.SessionRunHook):
    """Keeps a thread beside each session."""

    def after_create_session(self, session, coord):
        rh.LooperThread.loop(coord, 3600, lambda: None)


class Held(NamedTuple):
    """What the process holds. ``memory``: bytes of it that are resident."""

    threads: int
    files: int
    objects: int
    memory: int

    @classmethod
    def now(cls):
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            threading.active_count(),
            len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - a Path would open it twice
            len(gc.get_objects()),
            pages * os.sysconf("SC_PAGE_SIZE"),
        )


def test_many_sessions_leave_no_thread_no_file_and_no_memory(
    graph, engine, model, tmp_path, caplog
):
    caplog.set_level(logging.ERROR, "runhooks")  # pytest keeps what is logged
    rh.summary.scalar("loss", model.loss)

    def cycle(number):
        with rh.MonitoredTrainingSession(
            checkpoint_dir=tmp_path,
            save_summaries_steps=1,
            log_step_count_steps=1,
            hooks=[Beside()],
        ) as session:
            if number % 10 == 0:
                model.faults.fail(rh.errors.AbortedError("lost"))
            session.run(model.train_op)

    for number in range(WARM_UP):
        cycle(number)
    before = Held.now()
    cycles = CYCLES[engine] - WARM_UP
    for number in range(cycles):
        cycle(number)
    after = Held.now()
    assert after.threads <= before.threads
    assert after.files <= before.files
    assert after.objects - before.objects < cycles / 4
    assert after.memory - before.memory < 8 * 2**20  # jax takes a megabyte now and then
