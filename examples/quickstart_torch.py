"""Fit a line in PyTorch: the step, the module and the optimizer do not change."""

import torch
from torch import nn

import runhooks as rh

model = nn.Linear(2, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)


def train_step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return {"loss": loss}


graph = rh.torch.graph(train_step, ["loss"], model=model, optimizer=optimizer)
with graph.as_default():
    rh.summary.scalar("loss")
    rh.summary.histogram("gradients/model/weight")
    hooks = [rh.StopAtStepHook(last_step=500), rh.ProgressHook(500, "loss")]
    with rh.MonitoredTrainingSession(
        checkpoint_dir="runs/torch-line", hooks=hooks, save_summaries_steps=10
    ) as session:
        while not session.should_stop():
            x = torch.randn(32, 2)
            session.run("train_op", {"x": x, "y": x @ torch.tensor([[2.0], [-3.0]])})
