"""The processes of a cluster: ``cluster_program.py JOBS FOLDER LAST_STEP SAVE_STEPS VARIABLES``.

VARIABLES: ``resource`` or, as TensorFlow 1 had them, ``reference``.

Reads commands, one a line, and answers each with a number: ``start JOB TASK`` with the process
that it makes, ``wait PROCESS`` with its exit status, ``kill PROCESS`` too, ``living`` with how many
there are. When there are no more commands, or whoever gave them has died, all are killed.
"""

import json
import logging
import os
import signal
import sys
from pathlib import Path

import tensorflow

from runhooks.tensorflow import train

tf = tensorflow.compat.v1


class Life(train.SessionRunHook):
    """Notes where the first recovery has come from and gone to, and says when it trains."""

    def __init__(self, trains):
        self.trains, self.runs, self.lost_at, self.restored, self.lost_in = trains, 0, None, None, 0

    def after_create_session(self, session, coord):
        if self.runs and self.restored is None:
            self.lost_at, self.lost_in = self.step, self.runs
            self.restored = int((session.checkpoint or "-0").rpartition("-")[2])

    def after_run(self, run_context, run_values):
        self.runs, self.step = self.runs + 1, run_context.session.global_step
        if self.runs == 3:
            self.trains.touch()


def main(jobs, folder, last_step, save_steps, variables, job, task):
    if variables == "reference":
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
        life = Life(Path(folder, f"{job}{task}-trains"))
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


def start(arguments, job, task):
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        with Path(arguments[1], f"{job}{task}-{os.getpid()}.log").open("w") as log:
            for output in (1, 2):
                os.dup2(log.fileno(), output)
            main(*arguments, job, task)
            status = 0
    except BaseException:
        logging.exception("the process has failed")
        raise
    finally:
        os._exit(status)  # a server of TensorFlow's has no end


def obey(arguments):
    living = set()
    for line in sys.stdin:
        command, *words = line.split()
        if command == "start":
            answer = start(arguments, *words)
            living.add(answer)
        elif command == "living":
            ended = {one for one in living if os.waitid(os.P_PID, one, os.WEXITED | NOW)}
            answer = len(living - ended)
        else:
            answer = int(words[0])
            if command == "kill":
                os.kill(answer, signal.SIGKILL)
            living.discard(answer)
            answer = os.waitpid(answer, 0)[1]
        print(answer, flush=True)


NOW = os.WNOHANG | os.WNOWAIT

if __name__ == "__main__":
    try:
        obey(sys.argv[1:])
    finally:
        os.killpg(0, signal.SIGKILL)  # started as the leader of a group of its own
