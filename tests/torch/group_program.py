"""A training with worker processes, all of which get a SIGTERM: in a step, and where they start.

``group_program.py FOLDER step|start|none``
"""

import multiprocessing
import os
import signal
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import runhooks as rh


def started(worker):
    if moment == "start" and steps == 4:  # of the second epoch
        if worker == 1:
            os.killpg(0, signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # in C: no handler is left to be called
        signal.pause()  # it has no batch before the signal comes


folder, moment = sys.argv[1:]
os.setsid()
steps = 0
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 2))
# Forked, which is not the default from Python 3.14 on: they know the moment and the steps.
workers = {"num_workers": 2, "worker_init_fn": started, "multiprocessing_context": "fork"}
loader = DataLoader(data, 4, shuffle=True, **workers)


def step(batch):
    global steps
    steps += 1
    optimizer.zero_grad()
    model(batch[0]).pow(2).mean().backward()
    if moment == "step" and steps == 4:
        children = [child.pid for child in multiprocessing.active_children()]
        assert len(children) == 2
        os.killpg(0, signal.SIGTERM)
        for worker in children:
            os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
    optimizer.step()


graph = rh.torch.graph(step, data=loader, epochs=2, model=model, optimizer=optimizer)
with graph.as_default(), rh.MonitoredTrainingSession(checkpoint_dir=folder) as sess:
    while not sess.should_stop():
        sess.run("train_op")
print(sess.global_step, sess.stop_reason, model.weight.tolist(), sep="; ")
