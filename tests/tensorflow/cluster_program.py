"""A process of a cluster, given JOBS FOLDER LAST_STEP SAVE_STEPS JOB TASK.

Its variables are references, as TensorFlow 1 had them.
"""

import json
import logging
import sys
import time
from pathlib import Path

import tensorflow

from runhooks.tensorflow import train

tf = tensorflow.compat.v1


class Life(train.SessionRunHook):
    """Notes where the first recovery has come from and gone to, and says when it trains.

    From the step ``pauses_at`` on it waits until the server was killed, if it has made its runs.
    """

    def __init__(self, folder, name, pauses_at):
        self.trains, self.killed = folder / f"{name}-trains", folder / "killed"
        self.pauses_at = pauses_at
        self.runs, self.lost_at, self.restored, self.lost_in = 0, None, None, 0

    def after_create_session(self, session, coord):
        if self.runs and self.restored is None:
            self.lost_at, self.lost_in = self.step, self.runs
            self.restored = int((session.checkpoint or "-0").rpartition("-")[2])

    def after_run(self, run_context, run_values):
        self.runs, self.step = self.runs + 1, run_context.session.global_step
        if self.runs == 3:
            self.trains.touch()
        while self.runs >= 3 and self.step >= self.pauses_at and not self.killed.exists():
            time.sleep(0.01)


def main(jobs, folder, last_step, save_steps, job, task):
    tf.disable_resource_variables()
    cluster = tf.train.ClusterSpec(json.loads(jobs))
    server = tf.train.Server(cluster, job_name=job, task_index=int(task))
    if job == "ps":
        server.join()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
    own = f"/job:{job}/task:{task}"
    with (
        tf.Graph().as_default(),
        tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=own)),
    ):
        step = tf.train.get_or_create_global_step()
        weights = tf.get_variable("weights", [2], initializer=tf.zeros_initializer())
        with tf.control_dependencies([tf.assign_add(weights, [1.0, 1.0], use_locking=True)]):
            train_op = tf.assign_add(step, 1, use_locking=True).op
        life = Life(Path(folder), f"{job}{task}", int(last_step) // 2)
        with train.MonitoredTrainingSession(
            server.target,
            is_chief=job == "chief",
            checkpoint_dir=folder,
            hooks=[train.StopAtStepHook(last_step=int(last_step)), life],
            config=tf.ConfigProto(device_filters=["/job:ps", own]),
            save_checkpoint_steps=int(save_steps),
        ) as session:
            while not session.should_stop():
                session.run(train_op)
    told = {
        "recoveries": session.recoveries,
        "reason": session.stop_reason,
        "lost_at": life.lost_at,
        "restored": life.restored,
        "runs_after_recovery": life.runs - life.lost_in,
    }
    Path(folder, f"{job}{task}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
