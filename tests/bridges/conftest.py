"""What the tests of bridges over PyTorch share: digits, a hook that keeps what it sees."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits

import runhooks as rh
from tests.bridges.recorder import Recorder

DOCS = Path(__file__).parents[2] / "docs" / "bridges.md"


class Raises(rh.SessionRunHook):
    """Raises after a step."""

    def __init__(self, step: int, error: BaseException) -> None:
        self.step, self.error = step, error

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.global_step == self.step:
            raise self.error


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


@pytest.fixture
def raises() -> type[Raises]:
    return Raises


@pytest.fixture(scope="session")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """256 images, 8 batches of 32."""
    found = load_digits()
    return torch.tensor(found.data[:256], dtype=torch.float32) / 16, torch.tensor(
        found.target[:256]
    )


@pytest.fixture
def shown() -> Any:
    """Returns the program that docs/bridges.md shows under a heading."""

    def program(heading: str) -> str:
        found = re.search(rf"^## {heading}\n.*?```python\n(.*?)```", DOCS.read_text(), re.M | re.S)
        assert found is not None, heading
        return found[1]

    return program


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    level = logging.getLogger("lightning.pytorch").level
    yield
    logging.getLogger("lightning.pytorch").setLevel(level)
    torch.set_num_threads(threads)
