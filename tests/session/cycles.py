"""``python cycles.py ENGINE DIR CYCLES``: opens and closes that many sessions in this process.

Prints what the process held after the first of them, and after the last.
"""

import gc
import json
import os
import sys
import threading
from pathlib import Path

import numpy as np

import runhooks as rh

WARM_UP = 50


class Beside(rh.SessionRunHook):
    """Keeps a thread beside each session."""

    def after_create_session(self, session, coord):
        thread = threading.Thread(target=coord.wait_for_stop, daemon=True)
        coord.register_thread(thread)
        thread.start()


class LostNowAndThen:
    """The elements of an input; every tenth is drawn only after the session was lost."""

    def __init__(self):
        self.draws = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.draws += 1
        if self.draws % 11 == 0:
            raise rh.errors.AbortedError("lost")
        return self.draws


def held():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - a Path would open it twice
        "objects": len(gc.get_objects()),
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
    }


def main(engine, folder, cycles):
    recoveries = 0
    with rh.Graph(engine=engine).as_default():
        weights = rh.Variable(np.zeros(2, np.float32), name="weights")
        rh.summary.scalar("loss", rh.call(lambda w: w.sum(), weights))
        train_op = rh.group(
            rh.inputs(LostNowAndThen()),
            weights.assign_add(np.ones(2, np.float32)),
            rh.train.get_or_create_global_step().assign_add(1),
        )
        for number in range(cycles):
            if number == WARM_UP:
                before = held()
            with rh.MonitoredTrainingSession(
                checkpoint_dir=folder,
                save_summaries_steps=1,
                log_step_count_steps=1,
                hooks=[Beside()],
            ) as session:
                session.run(train_op)
            recoveries += session.recoveries
    print(json.dumps({"before": before, "after": held(), "recoveries": recoveries}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
