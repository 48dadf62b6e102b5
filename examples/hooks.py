"""Two hooks: one that stops the loop, and one that acts every 50 steps."""

import numpy as np

import runhooks as rh


class StopWhenGood(rh.SessionRunHook):
    def __init__(self, loss, limit):
        self.loss, self.limit = loss, limit

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.loss)  # fetched in the same run that trains

    def after_run(self, run_context, run_values):
        if run_values.results < self.limit:
            run_context.request_stop()


class PrintNorm(rh.SessionRunHook):
    def __init__(self, gradient):
        self.norm = rh.call(np.linalg.norm, gradient)  # computed in the runs that ask for it
        self.timer = rh.Timer(rh.Trigger(every_steps=50))

    def next_due(self):  # the session does not call this hook before then
        return self.timer.due()

    def before_run(self, run_context):
        return rh.SessionRunArgs(self.norm)

    def after_run(self, run_context, run_values):
        self.timer.update_last_triggered_step(run_context.next_step)
        print(f"step {run_context.next_step}: gradient norm {run_values.results:.4f}")


def descend(x):
    gradient = 0.02 * (x - [3.0, 4.0])
    return x - gradient, gradient, np.sum((x - [3.0, 4.0]) ** 2)


with rh.Graph().as_default():
    x = rh.Variable(np.zeros(2), name="x")
    new_x, gradient, loss = rh.call(descend, x, num_outputs=3)
    train_op = rh.group(x.assign(new_x), rh.train.create_global_step().assign_add(1))

    hooks = [StopWhenGood(loss, limit=1e-3), PrintNorm(gradient)]
    with rh.MonitoredSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(train_op)
            if session.global_step % 100 == 0:
                print("loss", session.run(loss, hooks=False))  # a run without hooks
