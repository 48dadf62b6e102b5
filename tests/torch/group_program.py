"""A training with worker processes, all of which get a SIGTERM: in a step, and where they start.

``group_program.py FOLDER step|start|none``
"""

import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import runhooks as rh


def started(worker):
    if moment == "start" and steps == 4 and worker == 1:  # of the second epoch
        os.killpg(0, signal.SIGTERM)


folder, moment = sys.argv[1:]
steps = 0
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 2))
loader = DataLoader(data, 4, shuffle=True, num_workers=2, worker_init_fn=started)


def step(batch):
    global steps
    steps += 1
    optimizer.zero_grad()
    model(batch[0]).pow(2).mean().backward()
    if moment == "step" and steps == 4:
        os.killpg(0, signal.SIGTERM)
        until = time.monotonic() + 0.5
        while time.monotonic() < until:  # the workers end meanwhile
            torch.ones(100, 100) @ torch.ones(100, 100)
    optimizer.step()


graph = rh.torch.graph(step, data=loader, epochs=2, model=model, optimizer=optimizer)
with graph.as_default(), rh.MonitoredTrainingSession(checkpoint_dir=folder) as sess:
    while not sess.should_stop():
        sess.run("train_op")
print(sess.global_step, sess.stop_reason, model.weight.tolist(), sep="; ")
