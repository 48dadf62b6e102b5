"""A small model, its optimizer and a train step, as users write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks

import runhooks as rh


class Training:
    """A model with dropout, Adam with a schedule, and a step over them."""

    def __init__(self, seed: int = 0, device: str = "cpu") -> None:
        torch.manual_seed(seed)
        layers = nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)
        self.images = torch.randn(16, 4).to(device)
        self.labels = torch.randint(0, 3, (16,)).to(device)
        self.losses: list[float] = []

    @property
    def objects(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}

    @property
    def batch(self) -> dict[str, torch.Tensor]:
        return {"images": self.images, "labels": self.labels}

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.losses.append(loss.item())
        return {"loss": loss}

    def graph(self, **objects: Any) -> rh.torch.Graph:
        return rh.torch.graph(self.step, outputs=["loss"], **{**self.objects, **objects})


@pytest.fixture(autouse=True)
def _threads_of_torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def make_training() -> Callable[..., Training]:
    """Makes a training; the same one for the same seed."""
    return Training


@pytest.fixture
def training() -> Training:
    return Training()


@pytest.fixture
def hooks_left() -> Callable[..., int]:
    """How many hooks modules, and optimizers in general, have."""

    def hooks_left(*modules: nn.Module) -> int:
        on_modules = sum(
            len(part._forward_hooks) + len(part._forward_pre_hooks) + len(part._backward_hooks)
            for module in modules
            for part in module.modules()
        )
        return on_modules + len(_global_optimizer_pre_hooks)

    return hooks_left
