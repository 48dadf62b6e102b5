"""Fit a line in PyTorch: the step, the module and the optimizer do not change."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import runhooks as rh

torch.manual_seed(0)
x = torch.randn(1920, 2)
y = x @ torch.tensor([[2.0], [-3.0]])
train_loader = DataLoader(TensorDataset(x[:1600], y[:1600]), batch_size=32, shuffle=True)
test_loader = DataLoader(TensorDataset(x[1600:], y[1600:]), batch_size=32)
model = nn.Linear(2, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return {"loss": loss}


def test_step(model, x, y):  # in evaluation mode, without gradients
    return {"error": nn.functional.mse_loss(model(x), y)}


graph = rh.torch.graph(
    train_step, ["loss"], data=train_loader, epochs=10, model=model, optimizer=optimizer
)
with graph.as_default():
    rh.summary.scalar("loss")
    rh.summary.histogram("gradients/model/weight")
    test = rh.EvaluationHook(test_step, test_loader, every_n_epochs=1)
    report = {"epoch": "epoch", "loss": rh.epoch_mean("loss")}
    hooks = [test, rh.LoggingTensorHook(report, trigger=rh.Trigger(every_epochs=1))]
    rh.train.train("train_op", "runs/torch-line", hooks, save_summaries_steps=10)
